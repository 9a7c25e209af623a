// transform_bytes_test — byte order, index widening and transposition on every CPU target.
#include "target_iteration.h"
#include "testing.h"

import zt.core;
import zt.transform;

namespace zt {
namespace {

Bytes Swapped(Bytes bytes, std::size_t width) {
  for (std::size_t i = 0; i < bytes.size(); i += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + width));
  }
  return bytes;
}

TEST(SwapBytes, BothFormsAtAnyLengthAndAlignment) {
  ForEachTarget([] {
    for (const std::size_t width : {1u, 2u, 4u, 8u}) {
      for (std::size_t count = 0; count <= 3 * 64 / width + 1; ++count) {
        const std::size_t size = count * width, offset = 1 + count % 7;
        const Bytes in = RandomBytes(size, static_cast<unsigned>(count));
        const Bytes wanted = Swapped(in, width);
        Bytes room(offset + size + 70, std::byte{0x11});
        std::copy(in.begin(), in.end(), room.begin() + static_cast<std::ptrdiff_t>(offset));
        SwapBytes(std::span(room).subspan(offset, size), width);
        Bytes expected(room.size(), std::byte{0x11});
        std::copy(wanted.begin(), wanted.end(),
                  expected.begin() + static_cast<std::ptrdiff_t>(offset));
        ASSERT_EQ(room, expected) << width << " bytes, " << count;
        Bytes other(room.size(), std::byte{0x11});
        SwapBytes(std::span<const std::byte>(in), std::span(other).subspan(offset, size), width);
        ASSERT_EQ(other, expected) << width << " bytes, " << count;
      }
    }
  });
}

// Above the size whose results are stored past the caches, at alignments that allow it
// and that do not.
TEST(SwapBytes, LargeResultsAreTheSame) {
  const std::size_t size = (std::size_t{16} << 20) + 24;
  const Bytes in = RandomBytes(size, 3);
  const Bytes wanted = Swapped(in, 8);
  ForEachTarget([&] {
    for (const std::size_t offset : {0u, 8u, 3u}) {
      Bytes out(size + 64 + 16, std::byte{0x22});
      SwapBytes(std::span<const std::byte>(in), std::span(out).subspan(offset, size), 8);
      ASSERT_EQ(std::memcmp(out.data() + offset, wanted.data(), size), 0) << offset;
      for (std::size_t i = offset + size; i < out.size(); ++i) ASSERT_EQ(out[i], std::byte{0x22});
    }
  });
}

TEST(Conversion, LargeResultsAreTheSameAsSmallOnes) {
  const std::size_t count = (std::size_t{4} << 20) + 1234;
  const Bytes in = RandomBytes(count * 2 + 2, 5);
  const auto conversion =
      *MakeConversion({DType::kF16, ""}, {DType::kU8, "f8_e5m2"}, OnOverflow::kInf);
  const auto wider = *MakeConversion({DType::kF16, ""}, {DType::kF32, ""}, OnOverflow::kInf);
  for (const auto& transform : {conversion, wider}) {
    const std::size_t out_unit = transform->output_unit();
    Bytes wanted(count * out_unit);
    NumericCounts small;
    for (std::size_t i = 0; i < count; i += 1000) {
      const std::size_t n = std::min<std::size_t>(1000, count - i);
      transform->Apply(std::span(in).subspan(i * 2, n * 2),
                       std::span(wanted).subspan(i * out_unit, n * out_unit), small);
    }
    ForEachTarget([&] {
      for (const std::size_t offset : {0u, 4u, 1u}) {
        Bytes out(offset + wanted.size());
        NumericCounts large;
        transform->Apply(std::span(in).first(count * 2), std::span(out).subspan(offset), large);
        ASSERT_EQ(std::memcmp(out.data() + offset, wanted.data(), wanted.size()), 0) << offset;
        EXPECT_EQ(large.overflow, small.overflow);
      }
    });
  }
}

template <typename T>
void CheckWidening(DType dtype) {
  SCOPED_TRACE(Name(dtype));
  std::mt19937_64 random(9);
  for (std::size_t count = 0; count <= 3 * 64 + 1; ++count) {
    Bytes in(1 + count * sizeof(T));
    std::vector<std::uint64_t> wanted(count), out(count, 77);
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = i % 5 == 0 ? std::numeric_limits<T>::max()
                                    : static_cast<T>(random() & static_cast<std::uint64_t>(
                                                                    std::numeric_limits<T>::max()));
      const T bytes = Little(value);
      std::memcpy(in.data() + 1 + i * sizeof(T), &bytes, sizeof(T));
      wanted[i] = static_cast<std::uint64_t>(value);
    }
    const auto source = std::span(std::as_const(in)).subspan(1);
    ASSERT_OK(WidenToU64(source, dtype, out));
    ASSERT_EQ(out, wanted);
    if (std::numeric_limits<T>::is_signed && count > 2) {
      const std::size_t at = count - 1 - count / 3;
      const T negative = std::numeric_limits<T>::min();
      const T bytes = Little(negative);
      std::memcpy(in.data() + 1 + at * sizeof(T), &bytes, sizeof(T));
      ASSERT_THAT(
          WidenToU64(source, dtype, out),
          Fails(StatusCode::kDataLoss, "index " + std::to_string(at) + " is negative: " +
                                           std::to_string(static_cast<std::int64_t>(negative))));
    }
  }
}

TEST(WidenToU64, EveryIntegerTypeAndTheFirstNegative) {
  ForEachTarget([] {
    CheckWidening<std::int8_t>(DType::kI8);
    CheckWidening<std::uint8_t>(DType::kU8);
    CheckWidening<std::int16_t>(DType::kI16);
    CheckWidening<std::uint16_t>(DType::kU16);
    CheckWidening<std::int32_t>(DType::kI32);
    CheckWidening<std::uint32_t>(DType::kU32);
    CheckWidening<std::int64_t>(DType::kI64);
    CheckWidening<std::uint64_t>(DType::kU64);
  });
}

TEST(WidenToU64, RefusesOtherTypesAndSizes) {
  Bytes in(8);
  std::vector<std::uint64_t> out(2);
  EXPECT_EQ(WidenToU64(in, DType::kF32, out).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(WidenToU64(in, DType::kI64, out).code(), StatusCode::kInvalidArgument);
}

TEST(Transpose, EveryWidthAndShapeWithStrides) {
  const std::size_t sides[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 33, 64, 65, 130, 257, 530};
  ForEachTarget([&] {
    for (const std::size_t width : {1u, 2u, 4u, 8u, 16u}) {
      for (const std::size_t rows : sides) {
        for (const std::size_t cols : sides) {
          const std::size_t in_stride = cols + rows % 3, out_stride = rows + cols % 4;
          const Bytes in = RandomBytes(1 + rows * in_stride * width, 1);
          Bytes out(1 + cols * out_stride * width + 64, std::byte{0x33});
          Bytes wanted = out;
          for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t c = 0; c < cols; ++c) {
              std::memcpy(wanted.data() + 1 + (c * out_stride + r) * width,
                          in.data() + 1 + (r * in_stride + c) * width, width);
            }
          }
          Transpose(in.data() + 1, in_stride, out.data() + 1, out_stride, rows, cols, width);
          ASSERT_EQ(out, wanted) << rows << " by " << cols << " of " << width;
        }
      }
    }
  });
}

// What reaches over 12 MiB is stored past the caches; it may be a part of a larger matrix.
TEST(Transpose, LargeResultsAreTheSame) {
  ForEachTarget([&] {
    for (const auto& [width, rows] : {std::pair{1u, 4099u},
                                      {2u, 4099u},
                                      {4u, 4099u},
                                      {8u, 4099u},
                                      {16u, 4099u},
                                      {1u, 300u},
                                      {2u, 130u},
                                      {4u, 130u},
                                      {4u, 3u},
                                      {8u, 65u}}) {
      const std::size_t out_stride = rows == 4099 ? rows + 5 : 40001;
      const std::size_t cols = (std::size_t{12} << 20) / out_stride / width + 3;
      const Bytes in = RandomBytes(1 + rows * cols * width, 1);
      Bytes out(1 + cols * out_stride * width, std::byte{0x33}), wanted = out;
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < cols; ++c) {
          std::memcpy(wanted.data() + 1 + (c * out_stride + r) * width,
                      in.data() + 1 + (r * cols + c) * width, width);
        }
      }
      Transpose(in.data() + 1, cols, out.data() + 1, out_stride, rows, cols, width);
      ASSERT_TRUE(out == wanted) << width << " " << rows;
    }
  });
}

}  // namespace
}  // namespace zt
