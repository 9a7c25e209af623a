// zt.transform:quant — the arithmetic of quantized checkpoints: codes to f32, times their scales.
export module zt.transform:quant;

import zt.std;
import zt.core;

export namespace zt {

// How a row of codes is stored.
enum class Codes : std::uint8_t {
  kE4m3,        // a byte each: f8_e4m3fn
  kI8,          // a byte each, signed
  kLowFirst,    // `bits` each, dense, the lowest bits of the first byte first
  kHighNibble,  // 4 bits each, the high nibble of a byte first
  kPicked,      // 4 bits: a nibble of each `unit` bytes, which `shift` selects
};
struct CodeLayout {
  Codes kind = Codes::kE4m3;
  unsigned bits = 8;  // of kLowFirst: 1 to 8
  unsigned unit = 1;  // of kPicked: 1 or 4 bytes
  // Of kLowFirst: the codes in each word of 4 bytes, whose other bits are unused; 0: there is no gap.
  unsigned per_word = 0;
  // The values of codes of 4 bits.
  std::array<float, 16> values = {};
};

// The values of e2m1 (-0 included), and the numbers from 0 on.
extern const std::array<float, 16> kE2m1Values;
extern const std::array<float, 16> kPlainValues;

// The bytes that `count` codes take, from code `first` of a row on: where they begin, where they
// end.
std::pair<std::uint64_t, std::uint64_t> BytesOfCodes(const CodeLayout& layout, std::uint64_t first,
                                                     std::uint64_t count);

// Decodes out.size() codes from code `first` of a row on. `bytes` begins with the first of
// BytesOfCodes. `shift` is of kPicked: the bit where the nibble is in its unit. Numbers are f32 in
// the host's byte order, exact.
void DecodeCodes(const CodeLayout& layout, const std::byte* bytes, std::uint64_t first,
                 unsigned shift, std::span<float> out);

// x[i] = (x[i] - zeros[k]) * scales[k], k = (into + i) / group; `zeros` may be null. The difference
// and the product are rounded to f32, each by itself. A NaN is the positive quiet one, whatever the
// processor makes of NaNs and infinities.
void ScaleRuns(std::span<float> x, const float* scales, const float* zeros, std::size_t into,
               std::size_t group);
// The same with a scale for each element.
void ScaleEach(std::span<float> x, const float* scales, const float* zeros);
// The same with those of the group of each element, which is below 2^31; `zeros` is not null.
void ScaleGathered(std::span<float> x, const std::uint32_t* groups, const float* scales,
                   const float* zeros);

// Scales as f32: of f32, f16, bf16, i8, f8_e4m3fn, f8_e8m0, or u8, which is taken for f8_e8m0.
// kUnimplemented for others.
Status DecodeScales(const ElementType& element, std::span<const std::byte> in, float* out);

}  // namespace zt
