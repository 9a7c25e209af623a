// zt.open:formats — detects, by their first bytes, files that are often mistaken for models and
// models in formats that are not read.
module zt.open;

import zt.std;
import :formats;

namespace zt {
namespace {

using namespace std::string_view_literals;

struct Magic {
  std::size_t offset;
  std::string_view bytes;
  std::string_view what;
};

constexpr std::string_view kGgml =
    "a GGML file from before GGUF; convert it with llama.cpp's scripts";
constexpr std::string_view kAnswer =
    "a server's error message instead of the file; download it again";
constexpr std::string_view kHtml =
    "an HTML page instead of the file; download it again, after logging in if necessary";

constexpr std::string_view kOnnxText =
    "the text of an ONNX model; save it with onnx as .onnx (onnx.save(onnx.load(FILE), OUT))";

constexpr Magic kMagics[] = {
    {0, "version https://git-lfs.github.com/spec/"sv,
     "a Git LFS pointer instead of the file; run 'git lfs pull' in the clone"},
    {0, "\x1f\x8b"sv, "compressed with gzip; decompress it first (gunzip)"},
    {0, "\x28\xb5\x2f\xfd"sv, "compressed with zstd; decompress it first (unzstd)"},
    {0, "\xfd\x37zXZ\0"sv, "compressed with xz; decompress it first (unxz)"},
    {0, "BZh"sv, "compressed with bzip2; decompress it first (bunzip2)"},
    {0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive; unpack it first"},
    {257, "ustar"sv, "a tar archive; unpack it first"},
    {4, "ORTM"sv,
     "an ONNX Runtime model (.ort), which is not read; convert the .onnx file that it was made of"},
    {4, "TFL3"sv, "a TensorFlow Lite model, which is not read"},
    {0, "PAR1"sv, "a Parquet file, which holds tables, not tensors"},
    {0, "MATLAB 5.0 MAT-file"sv,
     "a MATLAB file; load it with scipy.io.loadmat and save the arrays as npz"},
    {0, "tjgg"sv, kGgml},
    {0, "lmgg"sv, kGgml},
    {0, "fmgg"sv, kGgml},
};

// The beginnings of texts, in lower case and without leading blanks. Most are error messages that
// servers send instead of the file.
constexpr Magic kTexts[] = {
    {0, "<!doctype html", kHtml},
    {0, "<html", kHtml},
    {0, "<?xml", "an XML document; download the file again"},
    {0, "ir_version: ", kOnnxText},
    {0, "<\n   ir_version: ", kOnnxText},
    {0, "entry not found", kAnswer},
    {0, "repository not found", kAnswer},
    {0, "invalid username or password", kAnswer},
    {0, "access to model", kAnswer},
    {0, "404: not found", kAnswer},
    {0, "not found", kAnswer},
    {0, "access denied", kAnswer},
};

bool IsBlank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

bool IsPrintable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; });
}

// Detects a kind of text by its beginning.
std::optional<std::string_view> NameText(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  const std::string lower = Lower(text.substr(0, 40));
  for (const Magic& each : kTexts) {
    if (lower.starts_with(each.bytes)) return each.what;
  }
  if (text.size() > 1 && text[0] == '{' && (text[1] == '"' || IsBlank(text[1])))
    return "JSON text; name the model's file or its folder";
  return std::nullopt;
}

// A map whose first key is text, which flax writes.
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

// A model of CTranslate2: its version, and the length and the name of its specification.
bool IsCTranslate2(std::string_view text) {
  if (text.size() < 8 || text.substr(1, 3) != "\0\0\0"sv || text[5] != '\0') return false;
  const auto size = static_cast<unsigned char>(text[4]);
  if (size < 2 || text.size() < 6U + size || text[5 + size] != '\0') return false;
  const std::string_view name = text.substr(6, size - 1);
  return IsPrintable(name) && name.ends_with("Spec");
}

}  // namespace

bool IsLfsPointer(std::span<const std::byte> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  return text.starts_with(kMagics[0].bytes);
}

std::optional<std::string> NameForeign(std::span<const std::byte> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  for (const Magic& magic : kMagics) {
    if (text.size() > magic.offset && text.substr(magic.offset).starts_with(magic.bytes))
      return std::string(magic.what);
  }
  if (const auto what = NameText(text)) return std::string(*what);
  if (IsMessagePack(text))
    return "msgpack, as flax writes it, which is not read; save the arrays as npz or safetensors";
  if (IsCTranslate2(text))
    return "a CTranslate2 model, which is not read; convert the model that it was made of";
  // Protocol buffers have no magic number; these are the first fields of a SavedModel of
  // TensorFlow.
  if (text.size() >= 8 && text.starts_with("\x08\x01\x12"))
    return "a TensorFlow SavedModel, which is not read; save the weights as npz or safetensors";
  return std::nullopt;
}

}  // namespace zt
