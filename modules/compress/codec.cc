// zt.compress:codec — the table of codecs.
module zt.compress;

import zt.std;
import :codec;
import zt.core;

namespace zt {
namespace {

constexpr std::size_t kMostCodecs = 16;

// Rows are only added, never removed, so lookups need no lock.
struct Table {
  Table() {
    Put(Encoding::kZstd, compress::internal::ZstdCodec());
    Put(Encoding::kPlanes, compress::internal::PlanesCodec());
  }
  void Put(Encoding encoding, const Codec& codec) {
    const auto row = static_cast<std::size_t>(encoding);
    codecs[row] = &codec;
    used = std::max<std::size_t>(used, row + 1);
  }
  internal::Mutex mutex;  // held while a row is added
  std::array<const Codec*, kMostCodecs> codecs{};
  std::atomic<std::size_t> used = 1;  // number of rows, including kRaw
};

Table& TheTable() {
  static Table* const table = new Table;  // codecs live as long as the process
  return *table;
}

}  // namespace

CodecParameters Codec::Parameters(const ElementType&, std::uint64_t) const { return {}; }

Status CheckFrames(const CodecParameters& parameters, std::span<const Frame> frames) {
  if (parameters.frame_content == 0) return OkStatus();
  for (const Frame& frame : frames) {
    const bool last = &frame == &frames.back();
    if (frame.content_bytes == parameters.frame_content) continue;
    if (last && frame.content_bytes < parameters.frame_content) continue;
    return InvalidData("a frame has " + std::to_string(frame.content_bytes) +
                       " bytes of content, 'chunk' is " + std::to_string(parameters.frame_content));
  }
  return OkStatus();
}

Status Codec::CheckFrame(const CodecParameters& parameters, std::span<const std::byte> in,
                         std::uint64_t content) const {
  std::vector<std::byte> decoded(content);
  return DecodeFrame(parameters, in, decoded);
}

bool Codec::IsBounded(const CodecParameters&) const { return true; }

const Codec* FindCodec(Encoding encoding) {
  const Table& table = TheTable();
  const auto row = static_cast<std::size_t>(encoding);
  return row < table.used.load(std::memory_order_acquire) ? table.codecs[row] : nullptr;
}

std::string_view Name(Encoding encoding) {
  const Codec* codec = FindCodec(encoding);
  return codec == nullptr ? "raw" : codec->name();
}

std::optional<Encoding> ParseEncoding(std::string_view name) {
  if (name == Name(Encoding::kRaw)) return Encoding::kRaw;
  for (const Encoding encoding : Encodings()) {
    if (name == Name(encoding)) return encoding;
  }
  return std::nullopt;
}

std::vector<Encoding> Encodings() {
  std::vector<Encoding> encodings;
  const std::size_t used = TheTable().used.load(std::memory_order_acquire);
  for (std::size_t row = 1; row < used; ++row) encodings.push_back(static_cast<Encoding>(row));
  return encodings;
}

StatusOr<Encoding> RegisterCodec(std::unique_ptr<const Codec> codec) {
  Table& table = TheTable();
  const internal::MutexLock lock(table.mutex);
  const std::string name(codec->name());
  if (ParseEncoding(name)) return InvalidArgument("there is a codec " + Quote(name) + " already");
  const std::size_t row = table.used.load(std::memory_order_relaxed);
  if (row == kMostCodecs) return InvalidArgument("the table of codecs is full");
  table.codecs[row] = codec.release();
  table.used.store(row + 1, std::memory_order_release);
  return static_cast<Encoding>(row);
}

}  // namespace zt
