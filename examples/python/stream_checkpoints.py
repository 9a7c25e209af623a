"""stream_checkpoints.py FOLDER [STEPS]: a training loop that writes a checkpoint every ten steps, and goes on from the last one.

The loop is a linear regression in numpy. A checkpoint appears when it is whole, so a run that is killed leaves none in half.
"""
import pathlib
import sys

import numpy
import ztstream


def last_checkpoint(folder):
    """The tensors and the step of the last checkpoint; nothing where there is none."""
    found = sorted(folder.glob("step-*.zt"), key=lambda path: int(path.stem[5:]))
    if not found:
        return None
    with ztstream.open(found[-1]) as f:
        return f.numpy(copy=True), f.attributes["step"]


def main(folder, steps):
    folder.mkdir(parents=True, exist_ok=True)
    random = numpy.random.default_rng(0)
    inputs = random.standard_normal((512, 16))
    targets = inputs @ numpy.arange(16.0)
    state, begin = last_checkpoint(folder) or ({"weight": numpy.zeros(16), "momentum": numpy.zeros(16)}, 0)
    for step in range(begin + 1, begin + steps + 1):
        error = inputs @ state["weight"] - targets
        state["momentum"] = 0.9 * state["momentum"] + inputs.T @ error / len(inputs)
        state["weight"] = state["weight"] - 0.1 * state["momentum"]
        if step % 10 == 0:
            loss = float((error**2).mean())
            ztstream.save_file(state, folder / f"step-{step:06}.zt", compress="planes",
                               attributes={"step": step, "loss": loss})
            print(f"step {step}: loss {loss:.6g}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: " + __doc__.partition(":")[0])
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 30)
