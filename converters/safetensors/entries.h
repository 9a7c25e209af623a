// The JSON of a safetensors header, entry by entry, over simdjson. Plain: simdjson's header and the module zt.std cannot
// meet in one unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zt::safetensors {

// Bytes that simdjson may read behind the text. They hold zeros.
inline constexpr std::size_t kPadding = 64;

// A tensor's entry as it stands there. Views are valid during the call.
struct Entry {
  std::string_view name, dtype;
  std::span<const std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // data_offsets
};

// What is wrong with a header: "key 'NAME' is there twice" is {"key ", "NAME", " is there twice"}.
struct Fault {
  std::string before;
  std::optional<std::string> quoted = std::nullopt;
  std::string_view after = {};
  bool memory = false;                               // not the header: memory ran out
  std::optional<std::string> tensor = std::nullopt;  // whose entry it is in
};

// Takes what a header holds. False ends the parsing.
class EntryTaker {
 public:
  virtual ~EntryTaker() = default;
  virtual bool TakeEntry(const Entry& entry) = 0;
  virtual bool TakeMetadata(std::string_view key, std::string_view text) = 0;
};

// Parses headers, or parts of them, each an object with the members of the whole; keeps its memory from one to the next.
class EntryParser {
 public:
  EntryParser();
  ~EntryParser();
  EntryParser(const EntryParser&) = delete;
  EntryParser& operator=(const EntryParser&) = delete;

  // Hands every member of the object `text` to `taker`, in order. Behind the text lie kPadding bytes that can be read.
  // nullopt where all is well or `taker` ended it.
  std::optional<Fault> Parse(std::string_view text, EntryTaker& taker);
  // `__metadata__` has been there; only once is allowed, in all parts together.
  bool has_metadata() const { return has_metadata_; }
  void ForgetMetadata() { has_metadata_ = false; }

 private:
  struct Json;
  Json* json_;
  bool has_metadata_ = false;
};

// What is wrong with `text` as JSON, wherever in it.
std::optional<Fault> FindJsonFault(std::string_view text);

}  // namespace zt::safetensors
