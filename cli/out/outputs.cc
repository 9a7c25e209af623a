// zt.cli:paths — opens and writes outputs, and refuses those that cannot be.
module;

#include <unistd.h>

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :output;
import :paths;

namespace zt::cli::internal {

namespace fs = std::filesystem;

StatusOr<std::unique_ptr<Sink>> OpenSink(const std::string& output,
                                         const FileSinkOptions& options) {
  if (output == "-") {
    if (::isatty(STDOUT_FILENO) != 0) {
      return InvalidArgument("standard output is a terminal; redirect it or name a file with -o");
    }
    return DescriptorSink(STDOUT_FILENO, "standard output");
  }
  return TheStore().Create(output, options);
}

Status WriteText(const std::string& path, std::string_view text, const FileSinkOptions& options) {
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Sink> sink, OpenSink(path, options));
  const std::span<const std::byte> piece = std::as_bytes(std::span(text));
  ZT_RETURN_IF_ERROR(WithFile(sink->Append(std::span(&piece, 1)), path));
  return WithFile(sink->Finish(text.size()), path);
}

NumberedOptions FilesAtOnce(const Args& args, TensorSource& source,
                            std::span<const ComponentId> read, std::uint64_t frame_bytes) {
  NumberedOptions options;
  options.threads = args.threads;
  options.memory_bytes = MemoryFor(args.memory, args.threads);
  for (const ComponentId id : read) {
    const bool ordered = source.sequential(id) && source.unordered_reader(id) == nullptr;
    if (ordered || IsUrl(source.file(id))) options.most = 1;
    frame_bytes = std::max(frame_bytes, source.preferred_read(id));
  }
  // A frame is in memory up to three times, and the next one is read meanwhile.
  options.least_memory = std::max(options.least_memory, 4 * frame_bytes);
  if (!IsUrl(args.output)) return options;
  // The parts of an upload take memory beside that of the run. One upload always does.
  constexpr std::uint64_t kPart = 16 << 20, kParts = 5;
  const std::uint64_t upload = kParts * (args.part_bytes != 0 ? args.part_bytes : kPart);
  const std::uint64_t uploads = options.memory_bytes / (options.least_memory + upload);
  options.most = static_cast<unsigned>(std::clamp<std::uint64_t>(uploads, 1, options.most));
  options.memory_bytes -= (options.most - 1) * upload;
  return options;
}

Status CheckFolderOf(const std::string& output) {
  if (output == "-" || IsUrl(output)) return OkStatus();
  std::error_code error;
  const fs::path folder = fs::path(output).parent_path();
  if (folder.empty() || fs::is_directory(folder, error)) return OkStatus();
  if (fs::exists(folder, error))
    return WithFile(IoError(folder.string() + " is not a folder; name another output"), output);
  if (error) return OkStatus();  // what may not be looked at may be there: opening it tells
  return WithFile(IoError("there is no folder " + folder.string() + "; make the folder first"),
                  output);
}

Status CheckOutput(const std::string& output, bool force) {
  if (output.ends_with('/'))
    return WithFile(InvalidArgument("the output is a folder; name a file"), output);
  ZT_RETURN_IF_ERROR(CheckFolderOf(output));
  std::error_code error;
  if (output == "-" || force || IsUrl(output) || !fs::is_regular_file(output, error))
    return OkStatus();
  return WithFile(WithAdvice(AlreadyExists("the output exists already"), Advice::kReplace), output);
}

}  // namespace zt::cli::internal
