// zt.cli — verify: every byte of a .zt file against its manifest.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :extraction;
import :compare;
import :conversion;
import :shards;
import :options;
import :rules;
import :paths;
import :signals;
import zt.convert.composite;
import zt.convert.delta;
import zt.convert.files;
import zt.convert.shards;

namespace zt::cli::internal {
namespace {

// The files of a hub's cache: blobs, and what lies among the links to them and is none.
struct CacheFiles {
  std::vector<std::string> blobs, others;
};

// A problem and the file that has it.
struct FileProblem {
  std::string file;
  VerifyProblem what;
};

// The findings for the file, or for all shards of an index.
struct Findings {
  SpecVersion version = SpecVersion::k1_2;
  VerifyReport totals;                     // without its problems
  std::uint64_t shard_digests = 0;         // of totals.digests, those of whole shards
  std::optional<bool> model_checked = {};  // of a delta, what it makes of its base
  std::vector<FileProblem> problems;
};

std::string ProblemText(const VerifyProblem& problem) {
  std::string out;
  if (!problem.object.empty()) out += TensorContext(problem.object) + ": ";
  if (!problem.component.empty() && problem.component != "data")
    out += "component " + Quote(problem.component) + ": ";
  return out + problem.message;
}

// The sources as convert would write them to a file of this version.
StatusOr<std::unique_ptr<TensorSource>> OpenAgainst(const Args& args, SpecVersion version) {
  SourceOptions input = args.source_options();
  input.no_files = WhyNoFiles(version);
  input.any_size = true;
  if (!HasRules(args)) {
    ZT_ASSIGN_OR_RETURN(auto plain, OpenUngrouped(args.against, input));
    WarnAll(args, UnusedQuant(args, *plain));
    return plain;
  }
  ZT_ASSIGN_OR_RETURN(Rules rules, MakeRules(args));
  rules.plan.spec = version;
  rules.plan.storage.digest = Traits(version).digest;
  ZT_ASSIGN_OR_RETURN(auto source, rules.Open(args, args.against, input, false));
  WarnAll(args, UnusedQuant(args, *source));
  // If the version cannot express the file's attributes, convert left them out.
  rules.plan.attributes = !args.no_metadata && CheckExpressible(source->attributes(), version).ok();
  std::vector<std::string> warnings;
  ZT_ASSIGN_OR_RETURN(source, ChangedSource::Make(std::move(source), rules, warnings));
  WarnAll(args, warnings);
  ZT_RETURN_IF_ERROR(rules.selector().CheckAnyLeft(args.against.front()));
  return WithFile(Ungroup(std::move(source)), args.against.front());
}

// Compares the file with its sources, which are read again.
StatusOr<Comparison> CompareAgainst(const Args& args, SpecVersion version) {
  SourceOptions own =
      args.source_options();  // --from is of the source, as --npy-void and --files are
  own.format.clear();
  own.files.clear();
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> file, OpenUngrouped({args.file()}, own));
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> source, OpenAgainst(args, version));
  ZT_ASSIGN_OR_RETURN(const std::uint64_t not_compared,
                      MatchFiles(file, *source, args.against, args));
  const bool attributes = CheckExpressible(source->attributes(), version).ok();
  ZT_ASSIGN_OR_RETURN(Comparison found,
                      CompareSources(*file, *source, args, "compare",
                                     {.attributes = attributes ? AttributeChoice::kConverted
                                                               : AttributeChoice::kTensors}));
  found.files_not_compared = not_compared;
  return found;
}

// True if options of convert, which were not given here, may have made the differences.
bool MayHaveRules(const Args& args, const Comparison& compared) {
  return !HasRules(args) && std::ranges::any_of(compared.differences, [](const Difference& each) {
    return each.file ? each.kind == DifferenceKind::kOnlySecond
                     : each.kind != DifferenceKind::kValues;
  });
}

// "NAME/ROLE: why" of each.
Json Lines(const std::vector<VerifyProblem>& problems) {
  Json lines = Json::array();
  for (const VerifyProblem& each : problems) {
    std::string line = each.object;
    if (!each.component.empty()) line += "/" + each.component;
    lines.push_back(line + (line.empty() ? "" : ": ") + each.message);
  }
  return lines;
}

Json ReportJson(const Args& args, const Findings& found, const Comparison& compared, bool good) {
  const VerifyReport& report = found.totals;
  Json problems = Json::array();
  for (const auto& [file, problem] : found.problems) {
    Json row = Json::object();
    if (file != args.file()) row["file"] = file;
    if (!problem.object.empty()) row["object"] = problem.object;
    if (!problem.component.empty()) row["component"] = problem.component;
    row["message"] = problem.message;
    problems.push_back(std::move(row));
  }
  Json json = Envelope(args, good);
  json["file"] = args.file();
  json["objects_checked"] = report.objects;
  json["components_checked"] = report.components;
  json["digests"] = report.digests;
  json["unhashed"] = report.unhashed;
  json["unverified"] = Lines(report.unverified);
  json["bytes_stored"] = report.stored_bytes;
  json["bytes_decoded"] = report.decoded_bytes;
  if (!report.undecodable.empty()) json["undecodable"] = Lines(report.undecodable);
  if (!report.unchecked.empty()) json["unchecked"] = Lines(report.unchecked);
  if (report.unreferenced_bytes > 0) json["bytes_unreferenced"] = report.unreferenced_bytes;
  if (found.model_checked) json["model_checked"] = *found.model_checked;
  json["problems"] = std::move(problems);
  if (args.against.empty()) return json;
  Json differences = Json::array();
  for (const Difference& each : compared.differences) differences.push_back(ToJson(each));
  json["against"] = args.against;
  json["compared"] = compared.both.all;
  if (compared.files_not_compared > 0) json["files_not_compared"] = compared.files_not_compared;
  json["differences"] = std::move(differences);
  return json;
}

void PrintProblems(const Args& args, const Findings& found, const Comparison& compared) {
  for (const auto& [file, problem] : found.problems) Note(file + ": " + ProblemText(problem));
  const std::vector<Difference>& differences = compared.differences;
  for (std::size_t i = 0; i < std::min(differences.size(), kMostDifferences); ++i) {
    Note(args.file() + ": " + FormatDifference(differences[i], "the file", "the source"));
  }
  if (differences.size() > kMostDifferences) {
    Note(args.file() + ": and " +
         Counted(differences.size() - kMostDifferences, "more difference") + "; --json lists all");
  }
  if (MayHaveRules(args, compared)) {
    Note(args.file() +
         ": if it was converted with --dtype, --rename, --exclude, --files or the like, give "
         "verify the same options");
  }
  if (args.quiet) return;
  const bool said = !args.against.empty() && found.problems.empty();  // by the comparison
  for (const VerifyProblem& each : found.totals.unverified) {
    if (said) break;
    Warn(args.file() + ": " + ProblemText(each) +
         " is not a known digest algorithm; its bytes are not checked");
  }
  for (const VerifyProblem& each : found.totals.undecodable) {
    Warn(args.file() + ": " + ProblemText(each) + "; what it holds cannot be checked");
  }
  for (const VerifyProblem& each : found.totals.unchecked) {
    Warn(args.file() + ": " + ProblemText(each));
  }
}

std::string GoodText(const Args& args, const Findings& found, const Comparison& compared,
                     double seconds) {
  const VerifyReport& report = found.totals;
  std::string out = args.file() + ": good: " + Counted(report.objects, "object") + ", " +
                    Counted(report.components, "component") + ", ";
  if (report.digests == 0 && report.unhashed > 0) {
    out += "no digests: content not checked";
  } else {
    out += Counted(report.digests, "digest") + (report.digests == 1 ? " matches" : " match");
  }
  if (found.shard_digests > 0) {
    out += " (" + std::to_string(report.digests - found.shard_digests) + " of components and " +
           std::to_string(found.shard_digests) + " of shards)";
  }
  if (report.digests > 0 && report.unhashed > 0) {
    out += ", content of " + Counted(report.unhashed, "component") + " not checked";
  }
  out += ", " + HumanBytes(report.stored_bytes) + " in " + HumanSeconds(seconds);
  if (report.unreferenced_bytes > 0) {
    out += "; " + HumanBytes(report.unreferenced_bytes) +
           " belong to no tensor (earlier generations, or padding that is not zero)";
  }
  if (!args.against.empty()) {
    out += "; " + CountText(compared.both) +
           (compared.both.all == 1 ? " equals the source" : " equal the source");
  } else if (found.model_checked) {
    out += *found.model_checked ? "; what it makes of its base has its digests"
                                : "; what it makes of its base is checked with --base";
  }
  return out;
}

// The file, or each shard of an index, whose digest has to be the one that the index names.
class Verification {
 public:
  explicit Verification(const Args& args) : args_(args), bar_(args, "verify") {}

  Status File(const std::string& path) {
    ZT_ASSIGN_OR_RETURN(const auto reader, OpenReader(path, args_.source_options()));
    VerifyOptions options;
    options.threads = args_.threads;
    options.memory_bytes = args_.memory;
    options.canonical = args_.canonical;
    options.cancelled = &Interrupted();
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
      bar_.Update(before_ + done, std::max(all_, total), 0, 0);
    };
    ZT_ASSIGN_OR_RETURN(VerifyReport report, Verify(*reader, options));
    found.version = reader->manifest().version;
    for (const StoredShard& shard : reader->manifest().shards) {  // they are known, or a problem
      const auto digest = ParseDigest(shard.digest);
      found.shard_digests += digest.ok() && digest->kind != DigestKind::kNone ? 1 : 0;
    }
    if (report.problems.empty() &&
        std::ranges::count(reader->manifest().objects, kDeltaFormat, &StoredObject::format) > 0) {
      if (FindMember(reader->manifest().attributes, kDeltaAttribute) == nullptr)
        found.problems.push_back(
            {path, {"", "", "it holds what differs from a base, and does not say from which"}});
      found.model_checked = false;
      ZT_RETURN_IF_ERROR(CheckDelta(path));
    }
    for (VerifyProblem& problem : report.problems) {
      problem.message += AdviceText(args_, problem.advice);
      found.problems.push_back({path, std::move(problem)});
    }
    VerifyReport& totals = found.totals;
    for (VerifyProblem& each : report.unverified) totals.unverified.push_back(std::move(each));
    for (VerifyProblem& each : report.undecodable) totals.undecodable.push_back(std::move(each));
    for (VerifyProblem& each : report.unchecked) totals.unchecked.push_back(std::move(each));
    totals.unreferenced_bytes += report.unreferenced_bytes;
    totals.objects += report.objects;
    totals.components += report.components;
    totals.digests += report.digests;
    totals.unhashed += report.unhashed;
    totals.stored_bytes += report.stored_bytes;
    totals.decoded_bytes += report.decoded_bytes;
    return OkStatus();
  }

  Status Index(const std::string& path) {
    // Opening compares the index with its shards both ways.
    ZT_RETURN_IF_ERROR(FindFormat("zt")->open_folder(path, {}, args_.source_options()).status());
    ZT_ASSIGN_OR_RETURN(const ShardIndex index, ReadShardIndex(path, TheStore()));
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : index.weight_map) shards.insert(shard);
    for (const auto& [shard, file] : index.files) {
      shards.insert(shard);
      all_ += file.bytes;
    }
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    for (const std::string& shard : shards) {
      const std::string file = (folder / shard).string();
      ZT_RETURN_IF_ERROR(WithFile(File(file), file));
      const auto listed = index.files.find(shard);
      if (listed == index.files.end()) continue;
      ZT_RETURN_IF_ERROR(WithFile(CompareDigest(file, listed->second.digest), file));
      before_ += listed->second.bytes;
    }
    return OkStatus();
  }

  // Makes the model of a delta and its base, and writes it nowhere: each chunk has a digest.
  Status Results() {
    ZT_ASSIGN_OR_RETURN(const auto source, OpenInputs({args_.file()}, args_.source_options()));
    if (args_.used_bases->empty()) return InvalidArgument("it is no delta, and needs no --base");
    ZT_ASSIGN_OR_RETURN(const bool folder, TheStore().IsFolder(args_.file()));
    if (folder) {  // of another form, whose tensors have checksums
      SourceOptions options = args_.source_options();
      options.deltas_as_stored = true;
      ZT_ASSIGN_OR_RETURN(const auto stored, OpenInputs({args_.file()}, options));
      const auto tensors = [](const TensorSource& of) {
        return of.objects().size() - CountFiles(of.objects());
      };
      found.totals.digests = tensors(*stored);
      found.totals.objects = found.totals.components = tensors(*source);
      for (const Object& object : source->objects()) found.totals.stored_bytes += Bytes(object);
    }
    PlanOptions plan_options;
    plan_options.attributes = false;
    plan_options.storage.digest = DigestKind::kNone;
    ZT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(*source, plan_options));
    WriterOptions options;
    options.threads = args_.threads;
    options.memory_bytes = args_.memory;
    options.stages.push_back(CheckDigests(*source, plan));
    ZT_RETURN_IF_ERROR(WriteFile(DiscardSink(), *source, plan, std::move(options)).status());
    found.model_checked = true;
    return OkStatus();
  }

  // Checks the cache of a hub: the name of a blob is its SHA-256, or Git's digest, which is not
  // compared.
  Status Cache(const CacheFiles& files) {
    for (const std::string& path : files.others) {
      found.totals.unchecked.push_back(
          {"", "", Quote(path) + " is no link to a blob, and was not checked"});
    }
    for (const std::string& path : files.blobs) {
      std::error_code none;
      all_ += std::filesystem::file_size(path, none);
    }
    for (const std::string& path : files.blobs) {
      const std::string name = std::filesystem::path(path).filename().string();
      if (name.ends_with(".incomplete")) {
        found.problems.push_back(
            {path, {"", "", "its download was not finished; download it again, or remove it"}});
        continue;
      }
      if (!IsHex(name, 64)) {
        ++found.totals.unhashed;
        if (!IsHex(name, 40)) {
          found.totals.unchecked.push_back(
              {"", "", "the name of " + Quote(path) + " is no digest; it was not checked"});
        }
        continue;
      }
      const auto is = DigestOfFile(path, DigestKind::kSha256);
      if (!is.ok()) return WithFile(is.status(), path);
      ++found.totals.digests;
      std::error_code none;
      found.totals.stored_bytes += std::filesystem::file_size(path, none);
      bar_.Update(found.totals.stored_bytes, all_, 0, 0);
      if (*is == "sha256:" + name) continue;
      found.problems.push_back(
          {path,
           {"", "",
            "its content is not that of its name, but has " + *is + "; download it again"}});
    }
    if (found.totals.digests > 0 || !found.problems.empty()) return OkStatus();
    return Unsupported("nothing of it can be checked: no blob has its SHA-256 as name");
  }
  static bool IsHex(std::string_view name, std::size_t size) {
    return name.size() == size && name.find_first_not_of("0123456789abcdef") == name.npos;
  }

  double End() {
    bar_.End();
    return bar_.seconds();
  }

  Findings found;

 private:
  // Checks what needs no base.
  Status CheckDelta(const std::string& path) {
    SourceOptions options = args_.source_options();
    options.as_stored = options.deltas_as_stored = true;
    options.files = {"all"};
    ZT_ASSIGN_OR_RETURN(const auto delta, OpenInputs({path}, options));
    ZT_ASSIGN_OR_RETURN(const std::vector<DeltaProblem> problems, CheckDeltas(*delta));
    for (const DeltaProblem& each : problems)
      found.problems.push_back({path, {each.object, "", each.message}});
    return OkStatus();
  }

  Status CompareDigest(const std::string& file, const std::string& listed) {
    ZT_ASSIGN_OR_RETURN(const DigestText digest, ParseDigest(listed));
    if (digest.kind == DigestKind::kNone) {
      found.totals.unverified.push_back({"", "", digest.algorithm});
      return OkStatus();
    }
    ZT_ASSIGN_OR_RETURN(const std::string is, DigestOfFile(file, digest.kind));
    ++found.totals.digests;
    ++found.shard_digests;
    if (is == digest.canonical) return OkStatus();
    found.problems.push_back(
        {file, {"", "", "the digest of the file is " + is + ", the index says " + listed}});
    return OkStatus();
  }

  const Args& args_;
  ProgressBar bar_;
  std::uint64_t before_ = 0, all_ = 0;  // bytes of shards
};

// The file that is to be verified: of a folder the index or root in it.
StatusOr<std::string> FileToVerify(const Args& args) {
  std::string file = args.file();
  ZT_ASSIGN_OR_RETURN(const bool folder, TheStore().IsFolder(file));
  if (folder) {
    SourceOptions options = args.source_options();
    options.format = "zt";
    ZT_ASSIGN_OR_RETURN(auto found, FindZtIn(file, options));
    if (!found) {
      return InvalidArgument(
          "the folder holds no .zt.index.json and no root of shards; name the .zt file that is "
          "meant; 'ztstream inspect' lists checkpoints of other formats; --base checks a disk "
          "delta");
    }
    file = *std::move(found);
  }
  if (!IsIndexPath(file)) ZT_RETURN_IF_ERROR(WithFile(CheckIsZt(file), file));
  return file;
}

// What is wrong with the rules and paths of the sources, before the file is read, which takes long.
Status CheckAgainst(const Args& args) {
  if (HasRules(args)) ZT_RETURN_IF_ERROR(MakeRules(args).status());
  for (const std::string& path : args.against) {
    std::error_code error;
    if (IsStandardInput(path) || IsUrl(path) || std::filesystem::exists(path, error)) continue;
    ZT_RETURN_IF_ERROR(WithFile(TheStore().Open(path).status(), path));
  }
  return OkStatus();
}

// What lies in a hub's cache, a model of it, or one snapshot: all blobs in it, and those to which
// links lead. Errors name a link that leads nowhere. No blobs if the folder is no part of a cache.
StatusOr<CacheFiles> FilesOfCache(const std::string& folder) {
  namespace fs = std::filesystem;
  CacheFiles files;
  std::error_code error, none;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const fs::path& path = it->path();
    const std::string name = path.filename().string();
    if (it->is_directory(none)) {
      const bool blobs =
          name == "blobs" && fs::is_directory(path.parent_path() / "snapshots", none);
      if (blobs || name == "refs" || name == ".no_exist" || name == ".locks")
        it.disable_recursion_pending();
      if (!blobs) continue;
      const fs::path all = fs::canonical(path, none);
      for (fs::directory_iterator blob(all, error); !error && blob != fs::directory_iterator();
           blob.increment(error)) {
        if (blob->is_regular_file(none)) files.blobs.push_back(blob->path().string());
      }
      if (error) break;
      continue;
    }
    std::error_code no_link;
    const fs::path target = fs::read_symlink(path, no_link);
    if (no_link || target.parent_path().filename() != "blobs") {
      files.others.push_back(path.string());
      continue;
    }
    ZT_RETURN_IF_ERROR(WithFile(TheStore().Open(path.string()).status(), path.string()));
    const fs::path within = fs::canonical(path.parent_path() / target.parent_path(), none);
    files.blobs.push_back((within / target.filename()).string());
  }
  if (error) return WithFile(IoError(error.value(), "cannot list the folder"), folder);
  std::ranges::sort(files.others);
  std::ranges::sort(files.blobs);
  files.blobs.erase(std::unique(files.blobs.begin(), files.blobs.end()), files.blobs.end());
  return files;
}

// Prints what was found; `good` if that is nothing. Returns the exit status.
int Tell(const Args& args, const Findings& found, const Comparison& compared,
         const std::string& good) {
  const bool is_good = found.problems.empty() && compared.differences.empty();
  Status printed = OkStatus();
  if (args.json) {
    printed = PrintJson(args, ReportJson(args, found, compared, is_good));
  } else if (is_good && !args.quiet) {
    printed = Print(Printable(good) + "\n");
  }
  PrintProblems(args, found, compared);
  if (!printed.ok()) return Fail(args, printed);
  return is_good ? 0 : 1;
}

int RunOnCache(const Args& args, const CacheFiles& files) {
  Verification verification(args);
  const Status status = verification.Cache(files);
  const double seconds = verification.End();
  if (!status.ok()) return Fail(args, WithFile(status, args.file()));
  const Findings& found = verification.found;
  std::string text = args.file() + ": good: " + Counted(found.totals.digests, "blob") +
                     (found.totals.digests == 1 ? " has the digest of its name, "
                                                : " have the digests of their names, ") +
                     HumanBytes(found.totals.stored_bytes) + " in " + HumanSeconds(seconds);
  if (found.totals.unhashed > 0) {
    text += "; " + std::to_string(found.totals.unhashed) +
            " more have names of Git, which are not checked";
  }
  if (!files.others.empty())
    text += "; " + Counted(files.others.size(), "file") + " beside the links not checked";
  return Tell(args, found, {}, text);
}

int RunOn(const Args& args) {
  Verification verification(args);
  const auto folder = TheStore().IsFolder(args.file());
  Status status = !folder.ok()               ? folder.status()
                  : *folder                  ? OkStatus()
                  : IsIndexPath(args.file()) ? verification.Index(args.file())
                                             : verification.File(args.file());
  if (status.ok() && verification.found.problems.empty() && !args.base.empty())
    status = verification.Results();
  const double seconds = verification.End();
  Findings& found = verification.found;
  if (!status.ok()) {
    if (status.code() != StatusCode::kDataLoss) return Fail(args, WithFile(status, args.file()));
    std::string message = Fact(status);  // damage is a finding
    for (const Advice advice : AdviceOf(status)) message += AdviceText(args, advice);
    found.problems.push_back(
        {FileOf(status).value_or(args.file()),
         {TensorOf(status).value_or(""), ComponentOf(status).value_or(""), std::move(message)}});
  }
  Comparison compared;
  if (!args.against.empty() && found.problems.empty()) {
    auto comparison = CompareAgainst(args, found.version);
    if (!comparison.ok()) return Fail(args, comparison.status());
    compared = *std::move(comparison);
    if (found.model_checked)
      found.model_checked = compared.differences.empty() && compared.files_not_compared == 0;
  }
  return Tell(args, found, compared, GoodText(args, found, compared, seconds));
}

}  // namespace

int RunVerify(const Args& args) {
  if (const Status wrong = CheckAgainst(args); !wrong.ok()) return Fail(args, wrong);
  StatusOr<std::string> file = WithFile(FileToVerify(args), args.file());
  // Of a folder: it has no .zt file that could be meant.
  const bool none = file.status().code() == StatusCode::kInvalidArgument &&
                    TheStore().IsFolder(args.file()).value_or(false);
  if (none && !args.base.empty()) file = args.file();
  if (!file.ok() && none && args.against.empty() && !IsUrl(args.file())) {
    const auto cache = FilesOfCache(args.file());
    if (!cache.ok()) return Fail(args, cache.status());
    if (!cache->blobs.empty()) return RunOnCache(args, *cache);
  }
  if (!file.ok()) return Fail(args, file.status());
  Args named = args;
  named.inputs = {*std::move(file)};
  return RunOn(named);
}

}  // namespace zt::cli::internal
