// zt.cli:conversion — one .zt file of a conversion, written and published, and its estimated size;
// the files of a model in plans and comparisons. Internal.
module zt.cli:conversion;

import zt.std;
import :output;
import zt.convert.delta;
import zt.open;

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
// An error if a delta of this base, which stands on `deltas` others, is one too many for readers.
Status CheckDepth(const std::string& base, std::size_t deltas);
// The result of convert under --json, without what is known only after writing.
Json SummaryJson(const Args& args, const TensorSource& source, const Plan& plan,
                 const std::vector<std::string>& warnings);

// For SourceOptions::no_files: why a file of this version can hold none; empty if it can.
std::string WhyNoFiles(SpecVersion version);

// Plans the files. Files of a folder are compressed if that saves space. The headers that restore
// the original weight files are removed if the plan changes tensors. Returns warnings.
std::vector<std::string> PlanFiles(const Args& args, const TensorSource& source, Plan& plan);

// For the comparison of two sources: if `other`, opened from these paths, has no files, is no folder
// that could have some, and none were asked for, removes those of `side` that are not named like
// weights, prints a note and returns how many they were.
StatusOr<std::uint64_t> MatchFiles(std::unique_ptr<TensorSource>& side, const TensorSource& other,
                                   const std::vector<std::string>& other_paths, const Args& args);

// Adds to a result under --json what was left out of a folder, if anything was.
void AddLeftOut(const Args& args, Json& json);
// Prints how many files were left out, or, if `verbose`, each of them with the reason.
void NoteLeftOut(const Args& args);

// The number of files among the objects.
std::uint64_t CountFiles(const std::vector<Object>& objects);
std::uint64_t CountFiles(const Plan& plan);

}  // namespace zt::cli::internal
