// zt.cli:conversion — one .zt file of a conversion, written and published, and its estimated size.
// Internal.
module zt.cli:conversion;

import zt.std;
import :output;
import zt.convert.delta;

namespace zt::cli::internal {

// "f32 [2, 3]".
std::string Describe(const Object& object);
// The bytes of all components whose sizes are known.
std::uint64_t Bytes(const Object& object);

// A warning if --quant group finds no module; why one that it finds is no group, the source says.
std::vector<std::string> UnusedQuant(const Args& args, const TensorSource& source);

// Streams the planned objects of `source` into `sink` and finishes both. A signal cancels it. The
// returned writer has the results. With `delta`, which is for the source, differences are written;
// `whole` says that the plan is no shard of another.
StatusOr<std::unique_ptr<Writer>> WriteFile(std::unique_ptr<Sink> sink, TensorSource& source,
                                            const Plan& plan, WriterOptions options,
                                            DeltaMaker* delta = nullptr, bool whole = true);
// The warnings of values that were changed by the conversion.
std::vector<std::string> WarningsOf(const std::vector<NumericFinding>& findings, const Plan& plan);
// Prints these, and appends them to `warnings`, an array.
void Report(const Common& common, const std::vector<NumericFinding>& findings, const Plan& plan,
            Json& warnings);
Json ToJson(const std::vector<NumericFinding>& findings);

// Estimates the size of the file that `plan` makes, from a sample of its input, at most 32 MiB.
// The estimate is exact if the sample is all of it. nullopt if the input can be read only once, or
// if the sample cannot be converted: the conversion then says why.
StatusOr<std::optional<std::uint64_t>> EstimateBytes(TensorSource& source, const Plan& plan,
                                                     const WriterOptions& options);
// Reads a sample of what deltas among the inputs make, at most 80 MiB: an error if a base has other
// values there.
Status TryBases(const Args& args, TensorSource& source, const Plan& plan);
// True if some components may be stored compressed.
bool Compresses(const Plan& plan);
// How much of a plan is stored as differences from --base.
std::string DeltaText(const Args& args, const DeltaCounts& counts);
Json DeltaJson(const Args& args, const DeltaCounts& counts);
// The result of convert under --json, without what is known only after writing.
Json SummaryJson(const Args& args, const TensorSource& source, const Plan& plan,
                 const std::vector<std::string>& warnings);

}  // namespace zt::cli::internal
