// zt.cli — bench: how fast this input is read, converted, compressed and written here, and what
// that suggests.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :rules;
import :options;
import :conversion;
import :outputs;
import :signals;

namespace zt::cli::internal {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begin) {
  return std::max(std::chrono::duration<double>(Clock::now() - begin).count(), 1e-6);
}

// A measured task; `options` are those of `convert` for the same task.
struct Work {
  std::string_view name, options;
  std::string_view zstd = "";  // as --zstd takes it; empty: raw
  DigestKind digest = DigestKind::kCrc32c;
};
constexpr Work kReadFirst = {"read, first time", "", "", DigestKind::kNone};
constexpr Work kRead = {"read", "", "", DigestKind::kNone};
constexpr Work kWrite = {"write and sync", ""};
constexpr Work kConvert = {"convert", ""};
constexpr Work kConvertRaw = {"convert --raw", " --raw"};
constexpr Work kZstd = {"convert --zstd", " --zstd", "1"};
constexpr Work kHuffman = {"convert --zstd=huffman", " --zstd=huffman", "huffman"};
constexpr Work kPlanes = {"convert --zstd=planes", " --zstd=planes", "planes"};

struct Run {
  std::uint64_t bytes = 0;  // of the sample
  double seconds = 0;
  double ratio = 1;  // stored bytes for each byte
};

// The results of several runs of the same work.
struct Row {
  Work work;
  unsigned threads = 1;
  std::vector<Run> runs;  // the fastest first, once all are there
  double seconds() const {
    const std::size_t middle = runs.size() / 2;
    return runs.size() % 2 == 1 ? runs[middle].seconds
                                : (runs[middle - 1].seconds + runs[middle].seconds) / 2;
  }
  std::uint64_t bytes() const { return runs.front().bytes; }
  double ratio() const { return runs.front().ratio; }
  double rate() const { return static_cast<double>(bytes()) / seconds(); }
};

constexpr std::uint64_t kAll = ~std::uint64_t{0};

// Objects that can be read, spread evenly over the input, at most `limit` bytes of them; the
// smallest one if none fits.
std::set<std::string> Sample(const TensorSource& source, std::uint64_t limit) {
  std::vector<const Object*> objects;
  std::uint64_t total = 0;
  for (std::uint32_t o = 0; o < source.objects().size(); ++o) {
    if (!source.CheckReadable(o).ok()) continue;
    objects.push_back(&source.objects()[o]);
    total += Bytes(*objects.back());
  }
  std::set<std::string> names;
  std::uint64_t seen = 0, taken = 0;
  const double share = total > limit ? static_cast<double>(limit) / static_cast<double>(total) : 1;
  for (const Object* const object : objects) {
    const std::uint64_t bytes = Bytes(*object);
    seen += bytes;
    if (taken + bytes > limit || static_cast<double>(taken) > share * static_cast<double>(seen))
      continue;
    taken += bytes;
    names.insert(object->name);
  }
  if (names.empty() && !objects.empty()) {
    names.insert((*std::ranges::min_element(objects, {}, [](const Object* object) {
                   return Bytes(*object);
                 }))->name);
  }
  return names;
}

// The conversion that compresses nothing. Of a .zt file that is compressed, convert alone keeps that.
Work RawOf(const TensorSource& source) {
  for (std::uint32_t o = 0; o < source.objects().size(); ++o) {
    for (std::uint32_t c = 0; c < source.objects()[o].components.size(); ++c) {
      if (source.encoded({o, c})) return kConvertRaw;
    }
  }
  return kConvert;
}

// The plan of the named objects.
StatusOr<Plan> PlanOf(const TensorSource& source, const std::set<std::string>& names,
                      const Work& work, ZstdOptions& zstd) {
  PlanOptions options;
  options.storage.digest = work.digest;
  ApplyZstd(ParseZstd(work.zstd), options.storage, zstd);
  options.keep = [&](const Object& object) { return names.contains(object.name); };
  return MakePlan(source, options);
}

// True if the sample has floats that byte planes suit.
StatusOr<bool> HasPlanes(const TensorSource& source, const std::set<std::string>& names) {
  ZstdOptions zstd;
  ZT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(source, names, kPlanes, zstd));
  return std::ranges::any_of(plan.objects, [](const PlannedObject& object) {
    return std::ranges::any_of(object.components, [](const PlannedComponent& component) {
      return component.storage.encoding == Encoding::kPlanes;
    });
  });
}

StatusOr<Run> MeasureConvert(TensorSource& source, const std::set<std::string>& names,
                             const Work& work, unsigned threads, const Common& common) {
  WriterOptions options;
  ZT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(source, names, work, options.zstd));
  options.threads = threads;
  options.memory_bytes = common.memory;
  const Clock::time_point begin = Clock::now();
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer,
                      WriteFile(DiscardSink(), source, plan, std::move(options)));
  Run run = {plan.input_bytes(source), Since(begin)};
  run.ratio = static_cast<double>(writer->file_bytes()) /
              static_cast<double>(std::max<std::uint64_t>(run.bytes, 1));
  return run;
}

// Bytes that no disk shrinks, written to a file and synced. It lies in a hidden folder that gets no
// name: it is removed, after a kill by the next run.
StatusOr<Run> MeasureWrite(const std::string& folder, std::uint64_t bytes) {
  std::vector<std::byte> block(std::size_t{4} << 20);
  std::mt19937_64 random(1);
  for (std::size_t i = 0; i + 8 <= block.size(); i += 8) {
    const std::uint64_t word = random();
    std::copy_n(reinterpret_cast<const std::byte*>(&word), 8,
                block.begin() + static_cast<std::ptrdiff_t>(i));
  }
  fs::path unused = fs::path(folder) / "ztstream-bench";
  for (std::error_code error; fs::exists(fs::symlink_status(unused, error));) unused += "-";
  const Clock::time_point begin = Clock::now();
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<FolderSink> hidden,
                      FolderSink::Create(unused.string(), {}));
  FileSinkOptions options = hidden->StagedOptions("sample");
  options.sync = true;
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Sink> sink,
                      OpenSink(hidden->Staged("sample"), options));
  Status status = sink->Reserve(bytes);
  for (std::uint64_t at = 0; status.ok() && at < bytes; at += block.size()) {
    if (Interrupted()) {
      status = Cancelled("interrupted");
      break;
    }
    const std::span<const std::byte> piece =
        std::span(block).first(std::min<std::uint64_t>(block.size(), bytes - at));
    status = sink->Append(std::span(&piece, 1));
  }
  if (status.ok()) status = sink->Finish(bytes);
  if (!status.ok()) return WithFile(status, sink->name());
  return Run{bytes, Since(begin)};
}

struct Suggestion {
  std::string options;      // of `convert`
  double seconds = 0;       // for the whole input, estimated
  std::uint64_t bytes = 0;  // of the output, estimated
};

struct Report {
  std::vector<Row> rows;
  std::uint64_t input_bytes = 0;
  std::vector<Suggestion> suggestions;  // the fastest first
};

// The estimated size of the output for the whole input.
StatusOr<std::uint64_t> SizeOf(TensorSource& source, const Work& work) {
  WriterOptions options;
  ZT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(source, Sample(source, kAll), work, options.zstd));
  ZT_ASSIGN_OR_RETURN(const auto bytes, EstimateBytes(source, plan, options));
  return bytes.value_or(plan.output_bytes());
}

// Estimates the time of converting, in which reading, working and writing overlap: that of the
// slowest.
Status Suggest(TensorSource& source, Report& report) {
  const Row& write = report.rows.back();
  for (const Work& work : {RawOf(source), kZstd, kHuffman, kPlanes}) {
    const Row* one = nullptr;
    const Row* best = nullptr;
    for (const Row& row : report.rows) {
      if (row.work.name != work.name) continue;
      if (row.threads == 1) one = &row;
      if (best == nullptr || row.rate() > best->rate()) best = &row;
    }
    if (one == nullptr || best == nullptr) continue;
    Suggestion made;
    ZT_ASSIGN_OR_RETURN(made.bytes, SizeOf(source, work));
    const auto spent = [&](const Row& row) {
      return std::max(static_cast<double>(report.input_bytes) / row.rate(),
                      static_cast<double>(made.bytes) / write.rate());
    };
    made.options = std::string(work.options);
    if (one != best &&
        spent(*one) < 1.05 * spent(*best)) {  // more threads gain nothing: the disk is the limit
      best = one;
      made.options += " --threads 1";
    }
    made.seconds = spent(*best);
    report.suggestions.push_back(std::move(made));
  }
  std::ranges::sort(report.suggestions, {}, &Suggestion::seconds);
  return OkStatus();
}

StatusOr<Report> Measure(const Args& args) {
  const Status once = InvalidArgument("bench reads its input several times; name a file");
  if (std::ranges::find(args.inputs, "-") != args.inputs.end())
    return WithFile(once, "standard input");
  SourceOptions input = args.source_options();
  input.files = {"none"};
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> source, OpenInputs(args.inputs, input));
  if (!source->seekable()) return WithFile(once, args.inputs.front());
  const std::set<std::string> names = Sample(*source, args.limit);
  if (names.empty())
    return WithFile(InvalidArgument("there is no tensor to measure with"), args.inputs.front());
  std::string folder = args.folder;
  if (folder.empty()) {
    const fs::path first = args.inputs.front();
    folder = fs::is_directory(first)       ? first.string()
             : first.parent_path().empty() ? "."
                                           : first.parent_path().string();
  }

  Report report;
  for (std::uint32_t o = 0; o < source->objects().size(); ++o) {
    if (source->CheckReadable(o).ok()) report.input_bytes += Bytes(source->objects()[o]);
  }
  const unsigned all = args.threads == 0 ? UsableThreads() : args.threads;
  std::uint64_t sample = 1;
  const auto measure = [&](Row& row) -> Status {
    auto run = row.work.name == kWrite.name
                   ? MeasureWrite(folder, sample)
                   : MeasureConvert(*source, names, row.work, row.threads, args);
    ZT_ASSIGN_OR_RETURN(row.runs.emplace_back(), std::move(run));
    return OkStatus();
  };
  // Measures the disk, unless the input is in the page cache. Only the first read does so.
  ZT_RETURN_IF_ERROR(measure(report.rows.emplace_back(Row{kReadFirst, all, {}})));
  sample = std::max<std::uint64_t>(report.rows.front().bytes(), 1);
  ZT_ASSIGN_OR_RETURN(const bool planes, HasPlanes(*source, names));
  for (const Work& work : {kRead, RawOf(*source), kZstd, kHuffman, kPlanes}) {
    if (work.name == kPlanes.name && !planes) continue;
    report.rows.push_back({work, 1, {}});
    if (all > 1) report.rows.push_back({work, all, {}});
  }
  report.rows.push_back({kWrite, 1, {}});
  for (unsigned run = 0; run < args.runs; ++run) {  // in turn: all meet the same machine
    for (Row& row : std::span(report.rows).subspan(1)) ZT_RETURN_IF_ERROR(measure(row));
  }
  for (Row& row : report.rows) std::ranges::sort(row.runs, {}, &Run::seconds);
  ZT_RETURN_IF_ERROR(Suggest(*source, report));
  return report;
}

std::string ToText(const Report& report) {
  char line[160];
  std::snprintf(
      line, sizeof line, "%s of %s a run; medians of %s in turn\n%-24s %8s %10s %20s %10s %8s\n",
      HumanBytes(report.rows.front().bytes()).c_str(), HumanBytes(report.input_bytes).c_str(),
      Counted(report.rows.back().runs.size(), "run").c_str(), "work", "threads", "seconds",
      "fastest to slowest", "MB/s", "size");
  std::string out = line;
  for (const Row& row : report.rows) {
    char spread[32];
    std::snprintf(spread, sizeof spread, "%.3f to %.3f", row.runs.front().seconds,
                  row.runs.back().seconds);
    std::snprintf(line, sizeof line, "%-24s %8u %10.3f %20s %10.1f %7.1f%%\n", row.work.name.data(),
                  row.threads, row.seconds(), spread, row.rate() / 1e6, 100 * row.ratio());
    out += line;
  }
  out += "estimated for all of it, fastest first\n";
  for (const Suggestion& each : report.suggestions) {
    std::snprintf(line, sizeof line, "  ztstream convert%-24s %10.1f s   %s\n",
                  each.options.c_str(), each.seconds, HumanBytes(each.bytes).c_str());
    out += line;
  }
  return out;
}

Json ToJson(const Report& report, const Args& args) {
  Json rows = Json::array(), suggestions = Json::array();
  for (const Row& row : report.rows) {
    rows.push_back({{"work", row.work.name},
                    {"threads", row.threads},
                    {"bytes", row.bytes()},
                    {"runs", row.runs.size()},
                    {"seconds", row.seconds()},
                    {"seconds_min", row.runs.front().seconds},
                    {"seconds_max", row.runs.back().seconds},
                    {"bytes_per_second", row.rate()},
                    {"ratio", row.ratio()}});
  }
  for (const Suggestion& each : report.suggestions) {
    suggestions.push_back({{"options", each.options.empty() ? "" : each.options.substr(1)},
                           {"seconds", each.seconds},
                           {"bytes", each.bytes}});
  }
  Json json = Envelope(args, true);
  json["inputs"] = args.inputs;
  json["bytes_in"] = report.input_bytes;
  json["measurements"] = std::move(rows);
  json["suggestions"] = std::move(suggestions);
  return json;
}

}  // namespace

int RunBench(const Args& args) {
  const auto report = Measure(args);
  if (!report.ok()) return Fail(args, report.status());
  return Done(args, args.json ? PrintJson(args, ToJson(*report, args)) : Print(ToText(*report)));
}

}  // namespace zt::cli::internal
