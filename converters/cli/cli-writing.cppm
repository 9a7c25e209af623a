// zt.cli:writing — one .zt file of a conversion, written and published. Internal.
module zt.cli:writing;

import zt.std;
import :args;
import :output;
import zt;

namespace zt::cli::internal {

// What is known of a file once it is written.
struct WrittenFile {
  std::uint64_t bytes = 0;
  std::vector<NumericFinding> findings;
};

// Streams what `plan` says of `source` into `sink` and finishes both. A signal cancels it.
StatusOr<WrittenFile> WriteFile(std::unique_ptr<Sink> sink, TensorSource& source, const Plan& plan,
                                WriterOptions options);
// Warns of values that did not come over whole, and adds the lines to `warnings`, an array.
void Report(const Common& common, const WrittenFile& written, const Plan& plan, Json& warnings);
Json ToJson(const std::vector<NumericFinding>& findings);

// What convert prints with --json, up to what only writing tells.
Json SummaryJson(const ConvertArgs& args, const TensorSource& source, const Plan& plan,
                 const std::vector<std::string>& warnings);

}  // namespace zt::cli::internal
