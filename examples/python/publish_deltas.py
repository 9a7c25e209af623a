"""publish_deltas.py FOLDER [STEPS]: a training loop that publishes every step as what it changed, and every tenth in full.

The loop is a linear regression in numpy. A file appears when it is whole; receive_deltas.py follows them.
"""
import pathlib
import sys

import numpy
import ztstream


def publish(state, folder, step):
    """Writes the file of a step: what differs from that of the step before, which lies beside it."""
    path, before = (folder / f"step-{number:06}.zt" for number in (step, step - 1))
    if step % 10 == 1 or not before.exists():
        ztstream.save_file(state, path, attributes={"step": step})
        return path
    whole = folder / "whole.zt"
    ztstream.save_file(state, whole, attributes={"step": step}, overwrite=True)
    ztstream.convert(whole, path, base=before)
    return path


def main(folder, steps):
    folder.mkdir(parents=True, exist_ok=True)
    random = numpy.random.default_rng(0)
    inputs = random.standard_normal((512, 4096)).astype("f4")
    targets = inputs @ random.standard_normal(4096).astype("f4")
    state = {"weight": numpy.zeros(4096, "f4"), "embedding": random.standard_normal((1024, 64)).astype("f4")}
    for step in range(1, steps + 1):
        state["weight"] -= 0.1 / 4096 * inputs.T @ (inputs @ state["weight"] - targets)
        print(f"{publish(state, folder, step).name}: norm {float(numpy.linalg.norm(state['weight'])):.6f}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: " + __doc__.partition(":")[0])
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 15)
