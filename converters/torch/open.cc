// zt.convert.torch — which container a file is.
module;

#include "core/status_macros.h"

module zt.convert.torch;

import zt.std;
import :contents;
import :open;
import zt.convert.zip;
import zt.core;
import zt.source;

namespace zt {
namespace torch::internal {

namespace {

// As torch before 0.2 wrote its checkpoints.
bool IsTar(std::string_view head) { return head.size() > 262 && head.substr(257, 5) == "ustar"; }

}  // namespace

bool LooksLikeTorch(std::span<const std::byte> head) {
  return LooksLikeZip(head) || LooksLikeTorchStream(head) ||
         IsTar({reinterpret_cast<const char*>(head.data()), head.size()});
}

Object Unreadable(std::string name, std::string_view what) {
  return {std::move(name), "torch." + std::string(what), {0}, {}, {{"data", {DType::kU8, ""}, 0}}};
}

void AddLeftOut(const Contents& contents, TensorSource& source) {
  for (const std::string& warning : contents.warnings) source.AddWarning(warning);
  if (contents.left_out.empty()) return;
  std::string line =
      "values that are no tensors, and no numbers, texts or flags that an attribute can hold, are "
      "left out:";
  for (std::size_t i = 0; i < contents.left_out.size(); ++i) {
    line += (i > 0 ? ", " : " ") + contents.left_out[i];
  }
  if (contents.left_out_more > 0) {
    line += " and " + std::to_string(contents.left_out_more) + " more";
  }
  source.AddWarning(std::move(line));
}

StatusOr<std::unique_ptr<TensorSource>> OpenOneOf(std::shared_ptr<ByteSource> bytes,
                                                  const std::string& stem,
                                                  std::uint64_t memory_limit,
                                                  const SourceMemory& memory) {
  ZT_ASSIGN_OR_RETURN(const std::vector<std::byte> head, Peek(*bytes, 512));
  if (LooksLikeZip(head)) return OpenArchive(std::move(bytes), stem, memory_limit, memory);
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (IsTar(text)) {
    return Unsupported(
        "it is a tar file, as torch before 0.2 wrote them; load it with torch.load and save it "
        "again");
  }
  if (text.starts_with(kOldMagic)) {
    return Unsupported(
        "it is a checkpoint in a pickle of protocol 0 or 1, 2 to 5 are read; load it and save it "
        "again with torch.save");
  }
  return OpenStream(std::move(bytes), stem, memory_limit, memory);
}

}  // namespace torch::internal

StatusOr<std::unique_ptr<TensorSource>> OpenTorch(std::shared_ptr<ByteSource> bytes,
                                                  const std::string& stem,
                                                  const InputOptions& options) {
  return torch::internal::OpenOneOf(std::move(bytes), stem, options.memory_limit,
                                    torch::internal::SharedMemory(options.memory_limit));
}

}  // namespace zt
