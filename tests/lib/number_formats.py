"""Element types one value at a time, in doubles and whole numbers: the independent computation that tests compare with.

decode() and convert() know the types that ztstream converts, by their zTensor names; nothing here is shared with the
program. Only numpy is needed.
"""
import numpy

# name: bits of exponent and mantissa, bias, whether it has infinities, whether it is of the fnuz family
FLOATS = {
    "f64": (11, 52, 1023, True, False), "f32": (8, 23, 127, True, False), "f16": (5, 10, 15, True, False),
    "bf16": (8, 7, 127, True, False), "f8_e4m3fn": (4, 3, 7, False, False), "f8_e5m2": (5, 2, 15, True, False),
    "f8_e4m3fnuz": (4, 3, 8, False, True), "f8_e5m2fnuz": (5, 2, 16, False, True),
}
INTEGERS = {name: numpy.dtype("<" + name[0] + str(int(name[1:]) // 8))
            for name in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")}
COMPLEX = {"complex64": "f32", "complex128": "f64"}


def width(name):
    """Bytes of an element."""
    if name in COMPLEX:
        return 2 * width(COMPLEX[name])
    if name in INTEGERS:
        return INTEGERS[name].itemsize
    return (FLOATS[name][0] + FLOATS[name][1] + 1) // 8 if name in FLOATS else 1


def patterns(name, data):
    """The bits of each element."""
    return numpy.frombuffer(data, f"<u{width(name)}").astype(numpy.uint64)


def is_nan(name, bits):
    exponent, mantissa, _, has_infinity, fnuz = FLOATS[name]
    sign = numpy.uint64(1) << numpy.uint64(exponent + mantissa)
    magnitude = bits & (sign - numpy.uint64(1))
    if fnuz:
        return bits == sign
    top = ((1 << exponent) - 1) << mantissa
    return magnitude > numpy.uint64(top) if has_infinity else magnitude == numpy.uint64(top | (1 << mantissa) - 1)


def decode(name, data):
    """Doubles; every value of a float type is one."""
    if name in ("f64", "f32"):
        return numpy.frombuffer(data, "<f8" if name == "f64" else "<f4").astype(numpy.float64)
    exponent_bits, mantissa_bits, bias, has_infinity, _ = FLOATS[name]
    bits = patterns(name, data)
    sign = numpy.uint64(1) << numpy.uint64(exponent_bits + mantissa_bits)
    magnitude = (bits & (sign - numpy.uint64(1))).astype(numpy.int64)
    exponent, mantissa = magnitude >> mantissa_bits, (magnitude & (1 << mantissa_bits) - 1).astype(numpy.float64)
    small = numpy.ldexp(mantissa, 1 - bias - mantissa_bits)
    large = numpy.ldexp(1 + numpy.ldexp(mantissa, -mantissa_bits), (exponent - bias).astype(int))
    values = numpy.where(exponent == 0, small, large)
    if has_infinity:
        values = numpy.where(magnitude == ((1 << exponent_bits) - 1) << mantissa_bits, numpy.inf, values)
    values = numpy.where(bits & sign != 0, -values, values)
    return numpy.where(is_nan(name, bits), numpy.nan, values)


def encode(name, values, saturate):
    """(bits, how many do not fit): to the nearest, halves to even. NaN become some NaN."""
    exponent_bits, mantissa_bits, bias, has_infinity, fnuz = FLOATS[name]
    sign = 1 << (exponent_bits + mantissa_bits)
    top = ((1 << exponent_bits) - 1) << mantissa_bits
    largest = top - 1 if has_infinity else (top | (1 << mantissa_bits) - 1) - (0 if fnuz else 1)
    nan = sign if fnuz else top | (1 << mantissa_bits) - 1
    magnitude = numpy.abs(values)
    finite = numpy.where(numpy.isfinite(magnitude), magnitude, 0)
    exponent = numpy.maximum(numpy.frexp(finite)[1] - 1, 1 - bias)
    units = numpy.rint(numpy.ldexp(finite, mantissa_bits - exponent))
    units = numpy.minimum(units, 2.0 ** (mantissa_bits + 1))
    bits = units.astype(numpy.uint64) + ((exponent - (1 - bias)).astype(numpy.uint64) << numpy.uint64(mantissa_bits))
    bits = numpy.where(finite == 0, numpy.uint64(0), bits)
    beyond = bits > numpy.uint64(largest)
    infinite = numpy.isinf(values)
    negative = numpy.where(numpy.signbit(values), numpy.uint64(sign), numpy.uint64(0))
    instead = numpy.uint64(largest if saturate else top if has_infinity else nan)
    bits = numpy.where(beyond, instead, bits)
    if has_infinity:
        bits = numpy.where(infinite, numpy.uint64(top), bits)
    else:
        bits = numpy.where(infinite, numpy.uint64(largest if saturate else nan), bits)
        beyond = beyond | infinite
    if fnuz:
        signed = numpy.where((bits == 0) | (bits == numpy.uint64(nan)), bits, bits | negative)
    else:
        signed = bits | negative
    return numpy.where(numpy.isnan(values), numpy.uint64(nan), signed), int(numpy.count_nonzero(beyond))


def round_to_odd(whole):
    """64-bit whole numbers as doubles that round to any narrower type as the numbers themselves would."""
    magnitudes = [abs(int(number)) for number in whole]
    doubles = numpy.array([float(m if m < 1 << 53 else (m >> 11 | (m & 0x7ff != 0)) << 11) for m in magnitudes], numpy.float64)
    return numpy.where(numpy.array([int(number) < 0 for number in whole], bool), -doubles, doubles)


def convert(source, target, data, saturate):
    """(bytes, values lost): elements of `source` as those of `target`; both are names of zTensor."""
    if source == target:
        return data, 0
    if source in COMPLEX:
        return convert(COMPLEX[source], COMPLEX[target], data, saturate)
    whole = None
    if source == "bool":
        whole = numpy.frombuffer(data, "u1")
    elif source in INTEGERS:
        whole = numpy.frombuffer(data, INTEGERS[source])
    if target in INTEGERS:
        into = INTEGERS[target]
        least, most = int(numpy.iinfo(into).min), int(numpy.iinfo(into).max)
        if whole is not None:
            numbers = [int(number) for number in whole]
            lost = sum(not least <= number <= most for number in numbers)
            return numpy.array([min(max(number, least), most) for number in numbers], into).tobytes(), lost
        values = numpy.trunc(decode(source, data))
        nan, over, under = numpy.isnan(values), values >= float(most + 1), values < float(least)
        inside = numpy.where(nan | over | under, 0, values)
        out = inside.astype(into)
        out[over], out[under] = most, least
        return out.tobytes(), int(numpy.count_nonzero(nan | over | under))
    if whole is not None and target == "f64":
        return whole.astype("<f8").tobytes(), 0
    if whole is not None:
        values = round_to_odd(whole) if whole.dtype.itemsize == 8 else whole.astype(numpy.float64)
    else:
        values = decode(source, data)
    if target == "f64":
        return values.astype("<f8").tobytes(), 0
    bits, lost = encode(target, values, saturate)
    return bits.astype(f"<u{width(target)}").tobytes(), lost


def same(name, got, want):
    """Whether two buffers hold the same values: NaN are alike, all else is compared bit by bit."""
    if got == want:
        return True
    name = COMPLEX.get(name, name)
    if len(got) != len(want) or name not in FLOATS:
        return False
    left, right = patterns(name, got), patterns(name, want)
    return bool(numpy.all((left == right) | is_nan(name, left) & is_nan(name, right)))
