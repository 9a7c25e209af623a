// zt.cli:writing — one .zt file of a conversion, written and published. Internal.
module zt.cli:writing;

import zt.std;
import :args;
import :output;
import zt;

namespace zt::cli::internal {

// Streams what `plan` says of `source` into `sink` and finishes both; the writer knows what became of them. A signal cancels it.
StatusOr<std::unique_ptr<Writer>> WriteFile(std::unique_ptr<Sink> sink, TensorSource& source,
                                            const Plan& plan, WriterOptions options);
// Warns of values that did not come over whole, and adds the lines to `warnings`, an array.
void Report(const Common& common, const std::vector<NumericFinding>& findings, const Plan& plan,
            Json& warnings);
Json ToJson(const std::vector<NumericFinding>& findings);

// What convert prints with --json, up to what only writing tells.
Json SummaryJson(const ConvertArgs& args, const TensorSource& source, const Plan& plan,
                 const std::vector<std::string>& warnings);

}  // namespace zt::cli::internal
