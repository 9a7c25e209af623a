// delta_kernel — differences between the elements of two arrays, group by group. `width` is 1, 2, 4
// or 8 bytes; elements have the host's byte order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::kernel {

// The bits of an element that are its key: `mask`, at most 255, of element >> shift. The highest
// bit of an element is in no key.
struct DeltaKey {
  unsigned shift, mask;
};

// The elements whose old values have keys up to this one, and above that of the group before, in
// the order of the array. The last group has 255.
struct DeltaGroup {
  std::uint8_t last_key;
  // There is a value for each element; else for those that changed, and gaps say which: a byte for
  // each, the elements of the group since the one before. 255 stands for 255 elements, of which none
  // changed.
  bool all;
  std::uint32_t value_count, gap_count;
  std::uint8_t* values;
  std::uint8_t* gaps;
};

// Adds to counts[key] the elements of `old` that have the key, and to changed[key] those that differ
// from `fresh`.
void CountKeys(const std::uint8_t* old, const std::uint8_t* fresh, std::size_t count,
               std::size_t width, DeltaKey key, std::uint32_t* counts, std::uint32_t* changed);

// Fills in the values of the groups, and gaps with their number. Values are differences, which wrap,
// with the sign in the lowest bit (zigzag). There is room: the groups' gaps are at most that of the
// values and a 255th of their elements.
void PackGroups(const std::uint8_t* old, const std::uint8_t* fresh, std::size_t count,
                std::size_t width, DeltaKey key, DeltaGroup* groups, std::size_t group_count);

// Adds the differences to the elements. False unless gaps and values fit the groups; some elements
// may then have been changed.
bool AddGroups(std::uint8_t* elements, std::size_t count, std::size_t width, DeltaKey key,
               const DeltaGroup* groups, std::size_t group_count);

}  // namespace zt::kernel
