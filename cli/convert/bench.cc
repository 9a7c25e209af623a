// zt.cli — bench: how long a conversion takes here. It converts a sample of the input into real files,
// and measures reading, working and writing apart to say which of them is the limit.
module;

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :rules;
import :options;
import :conversion;
import :paths;
import :signals;

namespace zt::cli::internal {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A way to convert.
struct Work {
  std::string_view options;    // of `convert`
  std::string_view zstd = "";  // as --zstd takes it; empty: raw
  DigestKind digest = DigestKind::kCrc32c;
};
constexpr Work kRead = {"", "", DigestKind::kNone};
constexpr Work kConvert = {""};
constexpr Work kConvertRaw = {"--raw"};
constexpr Work kZstd = {"--zstd", "1"};
constexpr Work kHuffman = {"--zstd=huffman", "huffman"};
constexpr Work kPlanes = {"--zstd=planes", "planes"};

// The seconds of several runs of the same; in order once all are there.
struct Row {
  std::string name;
  std::vector<double> seconds = {};
  double median() const {
    const std::size_t middle = seconds.size() / 2;
    return seconds.size() % 2 == 1 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
  }
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

// Bytes that no disk shrinks.
std::vector<std::byte> Noise(std::size_t size) {
  std::vector<std::byte> noise(size);
  std::mt19937_64 random(1);
  for (std::size_t i = 0; i + 8 <= size; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(noise.data() + i, &word, 8);
  }
  return noise;
}

// Takes a file out of the page cache. What is no file here is not in it.
void Evict(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  fdatasync(file);
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
}

// What each way takes.
struct Estimate {
  std::string options;
  std::string_view limit;                        // "reading", "working" or "writing"
  double seconds = 0, fastest = 0, slowest = 0;  // for all of it
  std::uint64_t bytes = 0;                       // of the output, for all of it
};

struct Report {
  std::uint64_t input_bytes = 0;  // of the input
  std::uint64_t all_bytes = 0;    // that the estimates are for
  std::uint64_t sample_bytes = 0;
  bool from_disk = false;  // whether reads of conversions met the disk, or the page cache
  double load = 0;         // the system's average of the last minute, before
  unsigned threads = 0;
  std::vector<Row> rows;
  std::vector<Estimate> estimates;  // the fastest first
};

class Bench {
 public:
  Bench(const Args& args, TensorSource& source)
      : args_(args), source_(source), names_(Sample(source, args.limit)) {
    for (std::uint32_t o = 0; o < source.objects().size(); ++o) {
      const Object& object = source.objects()[o];
      if (!source.CheckReadable(o).ok()) continue;
      report_.input_bytes += Bytes(object);
      if (!names_.contains(object.name)) continue;
      for (std::uint32_t c = 0; c < object.components.size(); ++c)
        files_.insert(source.file({o, c}));
    }
    report_.all_bytes = args.whole == 0 ? report_.input_bytes : args.whole;
    report_.threads = args.threads == 0 ? UsableThreads() : args.threads;
    if (getloadavg(&report_.load, 1) != 1) report_.load = 0;
  }

  StatusOr<Report> Run() {
    if (report_.input_bytes == 0)
      return WithFile(InvalidArgument("there is no tensor to measure with that has a value"),
                      args_.inputs.front());
    ZT_ASSIGN_OR_RETURN(const double first, Convert(kRead, DiscardSink()));
    ZT_ASSIGN_OR_RETURN(const double again, Convert(kRead, DiscardSink()));
    // Of another model, or what a first reading waits for, nothing is in memory.
    report_.from_disk = report_.all_bytes > report_.input_bytes || first > 1.5 * again;
    const std::vector<Work> ways = {RawOf(source_), kZstd, kHuffman, kPlanes};
    // The rows of each way are at its number, after those two.
    std::vector<Row>& rows = report_.rows;
    rows.push_back({.name = report_.from_disk ? "read from disk" : "read from memory"});
    rows.push_back({.name = "write and sync"});
    for (const std::string_view what : {"convert to nowhere", "convert to a file"}) {
      for (const Work& work : ways)
        rows.push_back({.name = std::string(what) + (work.options.empty() ? "" : " ") +
                                std::string(work.options)});
    }
    const std::span<Row> works = std::span(rows).subspan(2, ways.size()),
                         wholes = std::span(rows).subspan(2 + ways.size());
    for (unsigned run = 0; run < args_.runs; ++run) {  // in turn: all meet the same machine
      ZT_RETURN_IF_ERROR(Measure(rows[0], [&] { return Convert(kRead, DiscardSink(), true); }));
      ZT_RETURN_IF_ERROR(Measure(rows[1], [&] { return Write(); }));
      for (std::size_t i = 0; i < ways.size(); ++i) {
        ZT_RETURN_IF_ERROR(Measure(works[i], [&] { return Convert(ways[i], DiscardSink()); }));
        ZT_RETURN_IF_ERROR(Measure(wholes[i], [&] { return ConvertToFile(ways[i]); }));
      }
    }
    for (Row& row : rows) std::ranges::sort(row.seconds);
    for (std::size_t i = 0; i < ways.size(); ++i) {
      ZT_RETURN_IF_ERROR(Add(ways[i], works[i], wholes[i]));
    }
    std::ranges::sort(report_.estimates, {}, &Estimate::seconds);
    return std::move(report_);
  }

 private:
  static Status Measure(Row& row, const std::function<StatusOr<double>()>& run) {
    ZT_ASSIGN_OR_RETURN(row.seconds.emplace_back(), run());
    return OkStatus();
  }

  // Converts the sample; with `cold` from the disk, if conversions read from there. Returns seconds.
  StatusOr<double> Convert(const Work& work, std::unique_ptr<Sink> sink, bool cold = false) {
    WriterOptions options;
    ZT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(source_, names_, work, options.zstd));
    options.threads = report_.threads;
    options.memory_bytes = args_.memory;
    if (cold && report_.from_disk) std::ranges::for_each(files_, Evict);
    const Clock::time_point begin = Clock::now();
    ZT_RETURN_IF_ERROR(WriteFile(std::move(sink), source_, plan, std::move(options)).status());
    report_.sample_bytes = std::max<std::uint64_t>(plan.input_bytes(source_), 1);
    return Since(begin);
  }

  StatusOr<double> ConvertToFile(const Work& work) {
    return WithHidden(
        [&](std::unique_ptr<Sink> sink) { return Convert(work, std::move(sink), true); });
  }

  StatusOr<double> Write() {
    return WithHidden([&](std::unique_ptr<Sink> sink) -> StatusOr<double> {
      const std::span<const std::byte> noise = noise_;
      const Clock::time_point begin = Clock::now();
      Status status = sink->Reserve(report_.sample_bytes);
      for (std::uint64_t at = 0; status.ok() && at < report_.sample_bytes; at += noise.size()) {
        if (Interrupted()) return Cancelled("interrupted");
        const auto piece =
            noise.first(std::min<std::uint64_t>(noise.size(), report_.sample_bytes - at));
        status = sink->Append(std::span(&piece, 1));
      }
      if (status.ok()) status = sink->Finish(report_.sample_bytes);
      if (!status.ok()) return WithFile(status, sink->name());
      return Since(begin);
    });
  }

  // Runs with a file in a hidden folder that gets no name: it is removed, after a kill by the next run.
  StatusOr<double> WithHidden(
      const std::function<StatusOr<double>(std::unique_ptr<Sink>)>& run) const {
    std::string folder = args_.output;
    if (folder.empty()) {
      const fs::path first = args_.inputs.front();
      folder = fs::is_directory(first) ? first.string() : first.parent_path().string();
    }
    if (folder.empty()) folder = ".";
    if (!fs::is_directory(folder)) {
      return WithFile(IoError("it is no folder of this machine; -o names one to write to"), folder);
    }
    fs::path unused = fs::path(folder) / "ztstream-bench";
    for (std::error_code error; fs::exists(fs::symlink_status(unused, error));) unused += "-";
    ZT_ASSIGN_OR_RETURN(const std::unique_ptr<FolderSink> hidden,
                        FolderSink::Create(unused.string(), {}));
    FileSinkOptions options = hidden->StagedOptions("sample");
    options.sync = true;
    ZT_ASSIGN_OR_RETURN(std::unique_ptr<Sink> sink, OpenSink(hidden->Staged("sample"), options));
    return run(std::move(sink));
  }

  // Estimates what a way takes for all of it.
  Status Add(const Work& way, const Row& work, const Row& whole) {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t size, SizeOf(way));
    const auto all = static_cast<double>(report_.all_bytes);
    const double scale = all / static_cast<double>(report_.sample_bytes);
    const double share = static_cast<double>(size) / static_cast<double>(report_.input_bytes);
    const double reading = report_.rows[0].median(), working = work.median();
    const double writing = share * report_.rows[1].median();
    const std::string_view limit = reading > std::max(working, writing) ? "reading"
                                   : working > writing                  ? "working"
                                                                        : "writing";
    report_.estimates.push_back({std::string(way.options), limit, scale * whole.median(),
                                 scale * whole.seconds.front(), scale * whole.seconds.back(),
                                 static_cast<std::uint64_t>(share * all)});
    return OkStatus();
  }

  // The estimated size of the output for the whole input.
  StatusOr<std::uint64_t> SizeOf(const Work& work) {
    WriterOptions options;
    ZT_ASSIGN_OR_RETURN(const Plan plan,
                        PlanOf(source_, Sample(source_, kAll), work, options.zstd));
    ZT_ASSIGN_OR_RETURN(const auto bytes, EstimateBytes(source_, plan, options));
    return bytes.value_or(plan.output_bytes());
  }

  static double Since(Clock::time_point begin) {
    return std::max(std::chrono::duration<double>(Clock::now() - begin).count(), 1e-6);
  }

  const Args& args_;
  TensorSource& source_;
  const std::set<std::string> names_;  // of the sample
  std::set<std::string> files_;        // that the sample lies in
  const std::vector<std::byte> noise_ = Noise(std::size_t{4} << 20);
  Report report_;
};

StatusOr<Report> Measure(const Args& args) {
  const Status once = InvalidArgument("bench reads its input several times; name a file");
  for (const std::string& each : args.inputs) {
    if (IsPipe(each)) return WithFile(once, IsStandardInput(each) ? "standard input" : each);
  }
  SourceOptions input = args.source_options();
  input.files = {"none"};
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> source, OpenInputs(args.inputs, input));
  if (!source->seekable()) return WithFile(once, args.inputs.front());
  return Bench(args, *source).Run();
}

std::string ToText(const Report& report) {
  char line[200];
  const double sample = static_cast<double>(report.sample_bytes);
  std::snprintf(line, sizeof line,
                "%s of %s; medians of %s in turn; %s, load %.1f before\n%-34s %9s %20s %9s\n",
                HumanBytes(report.sample_bytes).c_str(), HumanBytes(report.input_bytes).c_str(),
                Counted(report.rows.back().seconds.size(), "run").c_str(),
                Counted(report.threads, "thread").c_str(), report.load, "a run", "seconds",
                "fastest to slowest", "GB/s");
  std::string out = line;
  for (const Row& row : report.rows) {
    char spread[40];
    std::snprintf(spread, sizeof spread, "%.3f to %.3f", row.seconds.front(), row.seconds.back());
    std::snprintf(line, sizeof line, "%-34s %9.3f %20s %9.3f\n", row.name.c_str(), row.median(),
                  spread, sample / row.median() / 1e9);
    out += line;
  }
  std::snprintf(line, sizeof line, "\n%-34s %9s %20s %9s %12s\n",
                ("for " + HumanBytes(report.all_bytes)).c_str(), "seconds", "fastest to slowest",
                "limit", "output");
  out += line;
  for (const Estimate& each : report.estimates) {
    char spread[40];
    std::snprintf(spread, sizeof spread, "%.1f to %.1f", each.fastest, each.slowest);
    std::snprintf(line, sizeof line, "ztstream convert %-17s %9.1f %20s %9s %12s\n",
                  each.options.c_str(), each.seconds, spread, each.limit.data(),
                  HumanBytes(each.bytes).c_str());
    out += line;
  }
  return out;
}

Json ToJson(const Report& report, const Args& args) {
  Json rows = Json::array(), estimates = Json::array();
  for (const Row& row : report.rows) {
    rows.push_back({{"work", row.name},
                    {"runs", row.seconds.size()},
                    {"seconds", row.median()},
                    {"seconds_min", row.seconds.front()},
                    {"seconds_max", row.seconds.back()},
                    {"bytes_per_second", static_cast<double>(report.sample_bytes) / row.median()}});
  }
  for (const Estimate& each : report.estimates) {
    estimates.push_back({{"options", each.options},
                         {"seconds", each.seconds},
                         {"seconds_min", each.fastest},
                         {"seconds_max", each.slowest},
                         {"limit", each.limit},
                         {"bytes", each.bytes}});
  }
  Json json = Envelope(args, true);
  json["inputs"] = args.inputs;
  json["bytes_in"] = report.input_bytes;
  json["bytes_sample"] = report.sample_bytes;
  json["bytes_estimated"] = report.all_bytes;
  json["threads"] = report.threads;
  json["load"] = report.load;
  json["reads_from"] = report.from_disk ? "disk" : "memory";
  json["measurements"] = std::move(rows);
  json["suggestions"] = std::move(estimates);
  return json;
}

}  // namespace

int RunBench(const Args& args) {
  const auto report = Measure(args);
  if (!report.ok()) return Fail(args, report.status());
  return Done(args, args.json ? PrintJson(args, ToJson(*report, args)) : Print(ToText(*report)));
}

}  // namespace zt::cli::internal
