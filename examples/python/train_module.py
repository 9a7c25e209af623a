"""train_module.py FILE.zt [STEPS]: trains a torch module. Run again, it goes on: weights, optimizer and step are one file."""
import pathlib
import sys

import torch
import ztstream

if len(sys.argv) < 2:
    sys.exit("usage: " + __doc__.partition(":")[0])
torch.manual_seed(1)
model, path, state = torch.nn.Linear(8, 2), pathlib.Path(sys.argv[1]), {"step": 0}
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
if path.exists():
    state = ztstream.load(path, framework="torch")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
for step in range(state["step"] + 1, state["step"] + 1 + int([*sys.argv, 20][2])):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8, generator=torch.Generator().manual_seed(step))).square().mean()
    loss.backward()
    optimizer.step()
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
with ztstream.save_file(state, path, overwrite=True, background=True):  # the file is there when the block ends
    print(f"step {step}: loss {loss.item():.6g}")
