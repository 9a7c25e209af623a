// Random programs of the library: sources of every kind, objects in memory and piece by piece, aliases, flushes, stages.
// Each is run with several numbers of threads; the bytes are the same, and what is read back is what was meant.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

import zt;

namespace zt {
namespace {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

std::span<const std::byte> Part(const Bytes& bytes, std::uint64_t offset, std::uint64_t count) {
  return std::span(bytes).subspan(offset, count);
}

// How a component of RandomSource is served.
struct Served {
  std::uint64_t offset = 0, count = 0;  // in the source's bytes
  bool ordered = false, view = false, extent = false;
  std::uint64_t preferred = 0;
};

// Serves each component in its own way, and checks how it is asked.
class RandomSource final : public TensorSource {
 public:
  std::string_view format() const override { return "random"; }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    const Served& served = At(id);
    if (offset + out.size() > served.count) return InvalidData("read beyond the end");
    if (served.ordered) {
      const std::lock_guard lock(mutex_);
      std::uint64_t& position = positions_[{id.object, id.component}];
      if (offset < position) return InvalidData("read out of order");
      position = offset + out.size();
    }
    std::ranges::copy(Part(bytes_, served.offset + offset, out.size()), out.begin());
    return OkStatus();
  }
  bool sequential(ComponentId id) const override { return At(id).ordered; }
  std::uint64_t preferred_read(ComponentId id) const override { return At(id).preferred; }
  std::optional<Extent> extent(ComponentId id) const override {
    if (!At(id).extent) return std::nullopt;
    return Extent{source_.get(), At(id).offset, At(id).count};
  }
  std::optional<std::span<const std::byte>> View(ComponentId id) const override {
    if (!At(id).view) return std::nullopt;
    return Part(bytes_, At(id).offset, At(id).count);
  }

  void Push(Object object, std::vector<Served> components) {
    objects_.push_back(std::move(object));
    served_.push_back(std::move(components));
  }
  void SetBytes(Bytes bytes) {
    bytes_ = std::move(bytes);
    source_ = MemoryBytes(bytes_, "random");
  }
  std::span<const std::byte> BytesOf(ComponentId id) const {
    return Part(bytes_, At(id).offset, At(id).count);
  }

 private:
  const Served& At(ComponentId id) const { return served_[id.object][id.component]; }
  Bytes bytes_;
  std::shared_ptr<ByteSource> source_;
  std::vector<std::vector<Served>> served_;
  std::mutex mutex_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> positions_;
};

Bytes Mixed(std::span<const std::byte> bytes) {
  Bytes out(bytes.begin(), bytes.end());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] ^= std::byte{0x5a} ^ static_cast<std::byte>(i * 7);
  }
  return out;
}

// Does to chunks what Mixed does to components.
class MixStage final : public Stage {
 public:
  explicit MixStage(StageOrder order) : order_(order) {}
  StageOrder order() const override { return order_; }
  Status Process(Chunk& chunk) override {
    Buffer out = chunk.pool->Take(chunk.bytes().size());
    for (std::size_t i = 0; i < chunk.bytes().size(); ++i) {
      out.bytes()[i] =
          chunk.bytes()[i] ^ std::byte{0x5a} ^ static_cast<std::byte>((chunk.offset + i) * 7);
    }
    chunk.Replace(std::move(out));
    return OkStatus();
  }

 private:
  StageOrder order_;
};

struct Expected {
  std::string name;
  std::map<std::string, Bytes> components;  // by role
};

// One program, the same for a seed whatever the threads.
class Program {
 public:
  Program(std::uint64_t seed, unsigned threads) : random_(seed) {
    options_.threads = threads;
    if (Chance(3)) options_.spec = SpecVersion::k2_0;
    options_.memory_bytes = Chance(2) ? 64 << 20 : (1 << 16) + Below(1 << 20);
    options_.zstd.frame_bytes = 1024 + (Chance(3) ? Below(3000000) : Below(70000));
    options_.zstd.huffman = Chance(4);
    options_.min_gain = static_cast<double>(Below(3)) * 0.02;
    options_.storage = AnyStorage();
    mixes_ = Chance(3);
    if (mixes_) {
      options_.stages = {std::make_shared<MixStage>(static_cast<StageOrder>(Below(3)))};
    }
    if (Chance(2)) options_.progress = [](const Progress&) {};
  }

  Status Run(Bytes& file) {
    auto writer = Writer::Create(MemorySink(file), options_);
    if (!writer.ok()) return writer.status();
    Status status = OkStatus();
    const auto steps = 1 + Below(6);
    for (std::uint64_t step = 0; step < steps && status.ok(); ++step) {
      switch (Below(4)) {
        case 0:
        case 1:
          status = AddSource(**writer);
          break;
        case 2:
          status = Stream(**writer);
          break;
        default:
          status = AddMemory(**writer);
      }
      if (status.ok() && Chance(4)) status = (*writer)->Flush();
    }
    return status.ok() ? (*writer)->Finish() : status;
  }

  const std::vector<Expected>& expected() const { return expected_; }

 private:
  std::uint64_t Below(std::uint64_t end) { return random_() % end; }
  bool Chance(std::uint64_t in) { return Below(in) == 0; }

  Storage AnyStorage() {
    Storage storage;
    storage.compression = static_cast<Compression>(Below(3));
    const auto digest = static_cast<DigestKind>(Below(4));
    if (CheckDigest(digest, options_.spec).ok()) storage.digest = digest;
    if (Chance(4)) storage.encoding = Encoding::kPlanes;
    return storage;
  }

  std::uint64_t AnySize() {
    switch (Below(10)) {
      case 0:
        return 0;
      case 1:
        return 4;
      case 2:
        return Below(16) * 4;
      case 3:
        return 262144 - 64 * Below(2);
      case 4:
        return Below(250000) * 4;
      default:
        return Below(2000) * 4;
    }
  }

  void Fill(std::span<std::byte> bytes) {
    const std::uint64_t kind = Below(3);
    for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      const auto value = kind == 0   ? static_cast<float>(Below(5))
                         : kind == 1 ? (static_cast<float>(Below(2000)) - 1000) / 7
                                     : 1.5F;
      std::memcpy(&bytes[i], &value, 4);
    }
  }

  Bytes Wanted(std::span<const std::byte> bytes) const {
    return mixes_ ? Mixed(bytes) : Bytes(bytes.begin(), bytes.end());
  }

  std::string NewName() { return "t" + std::to_string(names_++); }

  Served AnyService(std::uint64_t mode) {
    Served served;
    served.ordered = mode == 0 ? Chance(2) : mode == 1;
    served.view = mode >= 2 && Chance(2);
    served.extent = !served.ordered && !served.view && !Chance(4);
    served.preferred = Chance(6) ? 4 * (1 + Below(200000)) : 0;
    return served;
  }

  Status AddSource(Writer& writer) {
    RandomSource& source = *sources_.emplace_back(std::make_unique<RandomSource>());
    const std::uint64_t mode = Below(4), count = 1 + Below(Chance(3) ? 300 : 12);
    std::uint64_t end = 0;
    std::vector<Served> before;  // others may have the same bytes: tied weights
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t components = Chance(5) ? 1 + Below(4) : 1;
      Object object = {.name = NewName(), .format = components == 1 ? "dense" : "random.multi/1"};
      std::vector<Served> all;
      for (std::uint64_t c = 0; c < components; ++c) {
        Served served = AnyService(mode);
        served.offset = end;
        served.count = count > 50 && !Chance(20) ? Below(40) * 4 : AnySize();
        if (!before.empty() && Chance(8)) {
          const Served& tied = before[Below(before.size())];
          if (tied.extent || tied.view) served = tied;
        }
        if (served.offset == end) end += served.count + (Chance(4) ? 64 : 0);
        object.components.push_back(
            {components == 1 ? "data" : "c" + std::to_string(c), {DType::kF32}, served.count});
        all.push_back(served);
        before.push_back(served);
      }
      if (components == 1) object.shape = {object.components[0].bytes / 4};
      source.Push(std::move(object), std::move(all));
    }
    Bytes bytes(end + 64);
    Fill(bytes);
    source.SetBytes(std::move(bytes));
    return AddPlanOf(source, writer);
  }

  Status AddPlanOf(RandomSource& source, Writer& writer) {
    PlanOptions options;
    options.spec = options_.spec;
    options.storage = AnyStorage();
    options.on_overflow = OnOverflow::kInf;
    const std::uint64_t converts = Below(3), salt = random_();
    options.convert = [=](const Object& object) -> std::optional<ElementType> {
      const std::uint64_t pick = (std::hash<std::string>()(object.name) ^ salt) % 3;
      if (converts == 0 || (converts == 2 && pick == 0)) return std::nullopt;
      return ElementType{converts == 1 || pick == 1 ? DType::kF64 : DType::kI32};
    };
    auto plan = MakePlan(source, options);
    if (!plan.ok()) return plan.status();
    const Plan& kept = *plans_.emplace_back(std::make_unique<Plan>(*std::move(plan)));
    for (const PlannedObject& object : kept.objects) {
      Expected expected = {.name = object.object->name, .components = {}};
      for (std::size_t c = 0; c < object.components.size(); ++c) {
        const auto in = source.BytesOf(object.components[c].source);
        Bytes bytes(in.begin(), in.end());
        if (const auto& transform = object.components[c].transform) {
          bytes.resize(in.size() / transform->input_unit() * transform->output_unit());
          NumericCounts counts;
          transform->Apply(in, bytes, counts);
        }
        expected.components[object.object->components[c].role] = Wanted(bytes);
      }
      expected_.push_back(std::move(expected));
    }
    return writer.AddSource(source, kept);
  }

  Status Stream(Writer& writer) {
    Object object = {.name = NewName(), .format = "random.multi/1"};
    std::vector<Bytes> all(1 + Below(3));
    std::vector<Storage> storage;
    for (std::size_t c = 0; c < all.size(); ++c) {
      all[c].resize(AnySize());
      Fill(all[c]);
      object.components.push_back(
          {"c" + std::to_string(c), {DType::kF32}, Chance(2) ? all[c].size() : kUnknownSize});
      storage.push_back(AnyStorage());
    }
    auto stream = writer.Begin(object, storage);
    if (!stream.ok()) return stream.status();
    Expected expected = {.name = object.name, .components = {}};
    for (std::size_t c = 0; c < all.size(); ++c) {
      Status status = c == 0 ? OkStatus() : (*stream)->NextComponent();
      for (std::size_t at = 0; at < all[c].size() && status.ok();) {
        const std::uint64_t take = std::min<std::uint64_t>(all[c].size() - at, 1 + Below(300000));
        status = (*stream)->Append(Part(all[c], at, take));
        at += take;
      }
      if (!status.ok()) return status;
      expected.components["c" + std::to_string(c)] = Wanted(all[c]);
    }
    expected_.push_back(std::move(expected));
    return (*stream)->Finish();
  }

  Status AddMemory(Writer& writer) {
    Bytes& bytes = *memory_.emplace_back(std::make_unique<Bytes>(AnySize()));
    Fill(bytes);
    const std::string name = NewName();
    Expected expected = {.name = name, .components = {}};
    Status status = OkStatus();
    if (Chance(3)) {
      const std::uint64_t half = bytes.size() / 8 * 4;
      const auto whole = Part(bytes, 0, bytes.size()), first = Part(bytes, 0, half);
      const auto second = Chance(2) ? whole : first;
      std::vector<Storage> storage = {AnyStorage(), AnyStorage(), AnyStorage()};
      if (Chance(2)) storage[2] = storage[0];
      status = writer.Add(
          {.name = name,
           .format = "random.multi/1",
           .components = {{"a", {DType::kU8}}, {"b", {DType::kU8}}, {"c", {DType::kU8}}}},
          {whole, second, whole}, storage);
      expected.components = {{"a", Wanted(whole)}, {"b", Wanted(second)}, {"c", Wanted(whole)}};
    } else {
      status = writer.Add(name, {bytes.size() / 4}, {DType::kF32}, bytes);
      expected.components = {{"data", Wanted(bytes)}};
    }
    expected_.push_back(expected);
    if (status.ok() && Chance(3)) {
      expected.name = NewName();
      status = writer.AddAlias(expected.name, name);
      expected_.push_back(std::move(expected));
    }
    return status;
  }

  Random random_;
  WriterOptions options_;
  bool mixes_ = false;
  int names_ = 0;
  std::vector<std::unique_ptr<RandomSource>> sources_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::vector<std::unique_ptr<Bytes>> memory_;
  std::vector<Expected> expected_;
};

void CheckFile(const Bytes& file, const std::vector<Expected>& expected) {
  auto opened = Reader::Open(MemoryBytes(file, "file"));
  ASSERT_TRUE(opened.ok()) << Message(opened.status());
  const Reader& reader = **opened;
  ASSERT_EQ(reader.manifest().objects.size(), expected.size());
  for (const Expected& each : expected) {
    const auto index = reader.Find(each.name);
    ASSERT_TRUE(index) << each.name;
    const StoredObject& object = reader.manifest().objects[*index];
    ASSERT_EQ(object.components.size(), each.components.size());
    for (std::uint32_t c = 0; c < object.components.size(); ++c) {
      const Bytes& want = each.components.at(object.components[c].role);
      const auto size = reader.DecodedBytes({*index, c});
      ASSERT_TRUE(size.ok()) << Message(size.status());
      ASSERT_EQ(*size, want.size()) << each.name;
      Bytes got(want.size());
      const Status status = reader.Read({*index, c}, 0, got);
      ASSERT_TRUE(status.ok()) << Message(status);
      ASSERT_TRUE(got == want) << each.name << '/' << object.components[c].role;
    }
  }
  const auto report = Verify(reader, {.threads = 2});
  ASSERT_TRUE(report.ok()) << Message(report.status());
  EXPECT_TRUE(report->problems.empty()) << report->problems[0].message;
}

// ZT_SEEDS asks for more than a run of all tests has time for.
TEST(RandomPrograms, GiveTheSameBytesForAnyThreadsAndWhatWasMeant) {
  const char* const asked = std::getenv("ZT_SEEDS");
  const std::uint64_t seeds = asked == nullptr ? 25 : std::strtoull(asked, nullptr, 10);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Bytes first;
    Program program(seed, 1);
    const Status status = program.Run(first);
    ASSERT_TRUE(status.ok()) << Message(status);
    CheckFile(first, program.expected());
    for (const unsigned threads : {2U, 3U}) {
      Bytes file;
      const Status again = Program(seed, threads).Run(file);
      ASSERT_TRUE(again.ok()) << Message(again);
      ASSERT_TRUE(file == first) << threads << " threads";
    }
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace zt
