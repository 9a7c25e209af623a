// delta_kernel — differences between the elements of two arrays, in the order of a part of their
// bits, and which of them are not zero. `width` is 1, 2, 4 or 8 bytes; elements have the host's
// byte order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::kernel {

// The bits of an element that are its key: element >> shift, and `mask` of that, at most 255.
struct DeltaKey {
  unsigned shift, mask;
};

// An array is walked at four places at once: the parts begin at multiples of count / kDeltaParts,
// and the last one ends with the array.
inline constexpr std::size_t kDeltaParts = 4;

// Adds to counts[p][key] the elements of part p that have the key.
void CountKeys(const std::uint8_t* in, std::size_t count, std::size_t width, DeltaKey key,
               std::uint32_t (*counts)[256]);

// Stores the difference of each element at place[p][g]++ of `out`, where p is its part and g the
// group of the key of its old value. A difference wraps, and has its sign in its lowest bit
// (zigzag).
void OrderDifferences(const std::uint8_t* old, const std::uint8_t* fresh, std::size_t count,
                      std::size_t width, DeltaKey key, const std::uint8_t* group_of,
                      std::uint32_t (*place)[256], std::uint8_t* out);
// Adds to each element the difference, not zigzag, at that place.
void AddOrdered(std::uint8_t* elements, std::size_t count, std::size_t width, DeltaKey key,
                const std::uint8_t* group_of, std::uint32_t (*place)[256],
                const std::uint8_t* differences);

// The same without an order.
void Differences(const std::uint8_t* old, const std::uint8_t* fresh, std::size_t count,
                 std::size_t width, std::uint8_t* out);
void AddDifferences(std::uint8_t* elements, const std::uint8_t* differences, std::size_t count,
                    std::size_t width);
// Makes differences of zigzag ones, in place.
void UndoZigZag(std::uint8_t* differences, std::size_t count, std::size_t width);

// The elements that are not zero.
std::size_t CountChanged(const std::uint8_t* in, std::size_t count, std::size_t width);
// Gathers the elements that are not zero in `values`. `gaps` gets a byte for each: the zeros since
// the one before. 255 stands for 255 zeros and no element. Returns the number of gaps, at most that
// of values and count / 255.
std::size_t PackChanged(const std::uint8_t* in, std::size_t count, std::size_t width,
                        std::uint8_t* values, std::uint8_t* gaps);
// The inverse; `out` has `count` zeros. False unless the gaps are for `changed` values and keep to
// the count.
bool UnpackChanged(const std::uint8_t* gaps, std::size_t gap_count, const std::uint8_t* values,
                   std::size_t changed, std::size_t width, std::uint8_t* out, std::size_t count);

}  // namespace zt::kernel
