"""compare_finetunes.py A B: which tensors of two checkpoints, of any formats, differ, and by how much. Tensor by tensor."""
import sys

import numpy
import ztstream


def as_floats(tensor):
    """Values to calculate with. numpy has no bf16 without ml_dtypes: a bf16 is the upper half of a float32."""
    if tensor.dtype == "bf16":
        return (tensor.view_bits().astype(numpy.uint32) << 16).view(numpy.float32)
    return tensor.numpy().astype(numpy.float64)


def main(first, second):
    with ztstream.open(first) as a, ztstream.open(second) as b:
        for name in sorted(set(a) | set(b)):
            if name not in a or name not in b:
                print(f"{name}: in {first if name in a else second} alone")
                continue
            if a[name].shape != b[name].shape:
                print(f"{name}: {a[name].shape} and {b[name].shape}")
                continue
            if not a[name].is_dense or not a[name].size or a[name].tobytes() == b[name].tobytes():
                continue
            try:
                before, change = as_floats(a[name]), as_floats(b[name]) - as_floats(a[name])
            except ztstream.UnsupportedError as error:
                print(f"{name}: differs; {error}")
                continue
            norm = float(numpy.linalg.norm(before)) or 1.0
            print(f"{name}: changed by {float(numpy.linalg.norm(change)) / norm:.3g} of its norm, "
                  f"at most {float(abs(change).max()):.3g}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: " + __doc__.partition(":")[0])
    main(*sys.argv[1:3])
