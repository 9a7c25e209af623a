// zt.cli:formats — files that are often taken for a model, or are one that is not read here, by their first bytes.
module zt.cli;

import zt.std;
import :formats;
import zt;

namespace zt::cli::internal {
namespace {

using namespace std::string_view_literals;

struct Magic {
  std::size_t offset;
  std::string_view bytes;
  std::string_view what;
};

constexpr Magic kMagics[] = {
    {0, "version https://git-lfs.github.com/spec/"sv,
     "a Git LFS pointer, not the file it stands for; run 'git lfs pull' where it was cloned"},
    {0, "\x1f\x8b"sv, "compressed with gzip; decompress it first (gunzip)"},
    {0, "\x28\xb5\x2f\xfd"sv, "compressed with zstd; decompress it first (unzstd)"},
    {0,
     "\xfd"
     "7zXZ\0"sv,
     "compressed with xz; decompress it first (unxz)"},
    {0, "BZh"sv, "compressed with bzip2; decompress it first (bunzip2)"},
    {0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive; unpack it first"},
    {257, "ustar"sv, "a tar archive; unpack it first"},
    {4, "TFL3"sv, "a TensorFlow Lite model, which is not read"},
    {0, "PAR1"sv, "a Parquet file, which holds tables, not tensors"},
    {0, "MATLAB 5.0 MAT-file"sv,
     "a MATLAB file; load it with scipy.io.loadmat and save the arrays as npz"},
    {0, "tjgg"sv, "a GGML file from before GGUF; convert it with llama.cpp's scripts"},
    {0, "lmgg"sv, "a GGML file from before GGUF; convert it with llama.cpp's scripts"},
    {0, "fmgg"sv, "a GGML file from before GGUF; convert it with llama.cpp's scripts"},
};

// What servers send in place of a file.
constexpr std::string_view kAnswers[] = {
    "Entry not found", "Repository not found", "Invalid username or password",
    "Access to model", "404: Not Found",       "Not Found",
    "Access denied"};

bool BeginsLike(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() &&
         std::equal(lower.begin(), lower.end(), text.begin(), [](char a, char b) {
           return a == static_cast<char>(std::tolower(static_cast<unsigned char>(b)));
         });
}

bool IsPrintable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; });
}

// Text of some kind, by how it begins.
std::optional<std::string_view> NameText(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  if (BeginsLike(text, "<!doctype html") || BeginsLike(text, "<html"))
    return "an HTML page, sent in place of the file; download it again, logged in if need be";
  if (BeginsLike(text, "<?xml")) return "an XML document; download the file again";
  for (const std::string_view answer : kAnswers) {
    if (text.starts_with(answer))
      return "a server's error message, sent in place of the file; download it again";
  }
  if (text.starts_with('{') && text.size() > 1 &&
      (text[1] == '"' || std::isspace(static_cast<unsigned char>(text[1]))))
    return "JSON text; name the model's file or its folder";
  return std::nullopt;
}

// Protocol buffers have no magic: the first fields of TensorFlow's SavedModel.
std::optional<std::string_view> NameProtocolBuffer(std::string_view text) {
  if (text.size() < 8 || text[0] != 8 || text[1] < 1 || text[1] > 20) return std::nullopt;
  const char tag = text[2];
  if (tag == 0x12 && text[1] == 1)
    return "a TensorFlow SavedModel, which is not read; save the weights as npz or safetensors";
  return std::nullopt;
}

// A map whose first key is text, as flax writes it.
bool IsMessagePack(std::string_view text) {
  if (text.size() < 4) return false;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::size_t at = (byte(0) & 0xf0) == 0x80 && byte(0) != 0x80 ? 1
                   : byte(0) == 0xde                           ? 3
                   : byte(0) == 0xdf                           ? 5
                                                               : 0;
  if (at == 0 || text.size() < at + 3) return false;
  std::size_t size = 0;
  if ((byte(at) & 0xe0) == 0xa0) {
    size = byte(at++) & 31;
  } else if (byte(at) == 0xd9) {
    size = byte(at + 1);
    at += 2;
  }
  return size > 0 && at + size < text.size() && IsPrintable(text.substr(at, size));
}

}  // namespace

std::optional<std::string> NameForeign(std::span<const std::byte> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  for (const Magic& magic : kMagics) {
    if (text.size() > magic.offset && text.substr(magic.offset).starts_with(magic.bytes))
      return std::string(magic.what);
  }
  if (const auto what = NameText(text)) return std::string(*what);
  if (text.size() > 2 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5)
    return "a Python pickle, but no checkpoint that torch.save wrote; save the arrays as npz or "
           "safetensors";
  if (IsMessagePack(text))
    return "msgpack, as flax writes it, which is not read; save the arrays as npz or safetensors";
  if (const auto what = NameProtocolBuffer(text)) return std::string(*what);
  return std::nullopt;
}

}  // namespace zt::cli::internal
