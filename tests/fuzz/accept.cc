// zt.fuzz.accept — bodies.
module;

#include "check.h"
module zt.fuzz.accept;

import zt.std;
import zt;
import zt.convert.gguf;
import zt.convert.layout;
import zt.convert.npy;
import zt.convert.safetensors;

namespace zt {
namespace {

// Aborts with the error of reading back what was written.
void MustBeOk(const Status& status, const char* what) {
  if (!status.ok()) ::fprintf(stderr, "%s: %s\n", what, std::string(Message(status)).c_str());
  ZT_FUZZ_CHECK(status.ok());
}

void CheckConverted(TensorSource& source, const PlanOptions& options) {
  const StatusOr<Plan> plan = MakePlan(source, options);
  if (!plan.ok()) return;
  std::vector<std::byte> file;
  auto writer = Writer::Create(MemorySink(file), {.spec = options.spec});
  ZT_FUZZ_CHECK(writer.ok());
  if (!(*writer)->AddSource(source, *plan).ok() || !(*writer)->Finish().ok()) return;
  const auto reader = Reader::Open(MemoryBytes(file, "output"));
  MustBeOk(reader.status(), "the .zt file does not open");
  const auto report = Verify(**reader);
  MustBeOk(report.status(), "the .zt file cannot be verified");
  for (const VerifyProblem& problem : report->problems) {
    ::fprintf(stderr, "%s: %s\n", problem.object.c_str(), problem.message.c_str());
  }
  ZT_FUZZ_CHECK(report->problems.empty());
}

using Planner = StatusOr<FileLayout> (*)(const TensorSource&, std::span<const std::uint32_t>);
using Opener = StatusOr<std::unique_ptr<TensorSource>> (*)(std::shared_ptr<ByteSource>,
                                                           const TensorSource& written);

void CheckLaidOut(TensorSource& source, Planner plan, Opener open) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < source.objects().size(); ++i) {
    if (source.CheckReadable(i).ok()) all.push_back(i);
  }
  if (all.empty()) return;
  const StatusOr<FileLayout> layout = plan(source, all);
  if (!layout.ok()) return;
  std::vector<std::byte> file;
  const auto sink = MemorySink(file);
  if (!WriteLayout(source, *layout, *sink).ok()) return;
  ZT_FUZZ_CHECK(file.size() == layout->bytes);
  MustBeOk(open(MemoryBytes(file, "output"), source).status(), "what was extracted does not open");
}

struct Format {
  Planner plan;
  Opener open;
};
constexpr Format kFormats[] = {
    {[](const TensorSource& source, std::span<const std::uint32_t> objects) {
       return PlanSafetensors(source, objects, {});
     },
     [](std::shared_ptr<ByteSource> bytes, const TensorSource&) {
       return OpenSafetensors(std::move(bytes));
     }},
    {[](const TensorSource& source, std::span<const std::uint32_t> objects) {
       return PlanNpz(source, objects);
     },
     [](std::shared_ptr<ByteSource> bytes, const TensorSource& written) {
       // The arrays of a sparse matrix that were kept as they are need not fit together.
       const bool sparse =
           !written.objects().empty() && written.objects().front().format != "dense";
       auto source = OpenNpz(bytes, "output", {});
       if (source.ok() || sparse) return source;
       return OpenNpz(bytes, "output", {.keep_sparse = true});
     }},
    {[](const TensorSource& source, std::span<const std::uint32_t> objects) {
       return PlanGguf(source, objects);
     },
     [](std::shared_ptr<ByteSource> bytes, const TensorSource&) {
       return OpenGguf(std::move(bytes));
     }},
};

bool Within(const TensorSource& source, std::uint64_t limit) {
  for (const Object& object : source.objects()) {
    for (const Component& component : object.components) {
      if (component.bytes == kUnknownSize || component.bytes > limit) return false;
      limit -= component.bytes;
    }
  }
  return true;
}

}  // namespace

void CheckAccepted(const OpenAgain& open, std::uint64_t limit) {
  PlanOptions raw, packed;
  packed.storage = {Compression::kAlways, DigestKind::kSha256};
  packed.spec = SpecVersion::k1_1;
  for (const PlanOptions* options : {&raw, &packed}) {
    const auto source = open();
    if (!source.ok() || !Within(**source, limit)) return;
    CheckConverted(**source, *options);
  }
  for (const Format& format : kFormats) {
    const auto source = open();
    if (source.ok()) CheckLaidOut(**source, format.plan, format.open);
  }
}

}  // namespace zt
