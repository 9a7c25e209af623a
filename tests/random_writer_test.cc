// Random programs of the library, valid or not: sources of every kind, plans edited by hand,
// objects in memory and piece by piece, sparse ones of random indices, aliases, flushes, stages
// that change, cut, empty and keep. What Finish calls OK is read, verified, and compared with what
// was meant, for several numbers of threads.
#include "testing.h"

import zt;

namespace zt {
namespace {

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
      if (offset < position && offset != 0) return InvalidData("read out of order");
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

// Whether the bytes of a tensor have rules, by its name.
bool IsPeculiar(const std::string& name) { return name.starts_with('p'); }

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
    if (IsPeculiar(chunk.object->name)) return OkStatus();
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

// The bytes that left a stage, by tensor and component: kept aside.
using Kept = std::map<std::pair<std::string, std::uint32_t>, Bytes>;

// Makes of each chunk what its component and place in it say, and keeps the outcome.
class WildStage final : public Stage {
 public:
  WildStage(std::uint64_t salt, Kept& kept) : salt_(salt), kept_(kept) {}
  StageOrder order() const override { return StageOrder::kInOrder; }
  Status Process(Chunk& chunk) override {
    const std::string& name = chunk.object->name;
    std::mt19937_64 random(std::hash<std::string>()(name) + 7 * chunk.component + salt_);
    const std::uint64_t kind = random() % 12;
    const std::size_t whole = chunk.bytes().size();
    std::size_t size = whole;
    if (kind == 0) size = 0;
    if (kind == 1 && !chunk.first) size = 0;
    if (kind == 2 && chunk.first) size = 0;
    if (kind == 3) size = whole / 8 * 4;
    if (kind == 4) size = whole / 3;
    if (kind == 5) size = 2 * whole;
    if (kind == 6 && chunk.last) size = whole + 4;
    if (kind < 8) {
      Buffer out = chunk.pool->Take(size);
      for (std::size_t i = 0; i < size; ++i) {
        out.bytes()[i] = i < whole ? chunk.bytes()[i] : std::byte{1};
        if (kind == 7) out.bytes()[i] ^= std::byte{1};
      }
      chunk.Replace(std::move(out));
    }
    Bytes& held = kept_[{name, chunk.component}];
    if (chunk.first) held.clear();
    held.insert(held.end(), chunk.bytes().begin(), chunk.bytes().end());
    return OkStatus();
  }

 private:
  const std::uint64_t salt_;
  Kept& kept_;
};

// What a component should hold: these bytes, or what a stage kept of those that it is written with.
struct Meant {
  Bytes bytes;
  std::pair<std::string, std::uint32_t> written = {};
};

struct Expected {
  std::string name;
  std::map<std::string, Meant> components;  // by role
};

Bytes Numbers(const std::vector<std::uint64_t>& numbers, std::size_t width) {
  Bytes out;
  for (const std::uint64_t number : numbers) {
    for (std::size_t i = 0; i < width; ++i) out.push_back(static_cast<std::byte>(number >> 8 * i));
  }
  return out;
}

// One program, the same for a seed whatever the threads, and `more` times the memory.
class Program {
 public:
  Program(std::uint64_t seed, unsigned threads, unsigned more = 1) : random_(seed) {
    options_.threads = threads;
    constexpr SpecVersion kSpecs[] = {SpecVersion::k1_2, SpecVersion::k1_2, SpecVersion::k2_0,
                                      SpecVersion::k2_0, SpecVersion::k1_1, SpecVersion::k0_1};
    options_.spec = kSpecs[Below(Chance(3) ? 6 : 4)];
    tame_ = Chance(2);
    careful_ = Chance(2);
    options_.memory_bytes = more * (Chance(2) ? 64 << 20 : (1 << 16) + Below(1 << 20));
    options_.zstd.frame_bytes = 1024 + (Chance(3) ? Below(3000000) : Below(70000));
    options_.zstd.huffman = Chance(4);
    options_.min_gain = static_cast<double>(Below(3)) * 0.02;
    options_.storage = AnyStorage();
    mixes_ = Chance(3);
    if (mixes_) {
      options_.stages = {std::make_shared<MixStage>(static_cast<StageOrder>(Below(3)))};
    }
    if (!tame_ && Chance(3)) {
      options_.stages.push_back(std::make_shared<WildStage>(random_(), kept_));
      wild_ = true;
    }
    if (Chance(2)) options_.progress = [](const Progress&) {};
  }

  Status Run(Bytes& file) {
    auto writer = Writer::Create(MemorySink(file), options_);
    if (!writer.ok()) return writer.status();
    Status status = OkStatus();
    const auto steps = 1 + Below(6);
    for (std::uint64_t step = 0; step < steps && status.ok(); ++step) {
      switch (Below(6)) {
        case 0:
        case 1:
          status = AddSource(**writer);
          break;
        case 2:
          status = Stream(**writer);
          break;
        case 3:
          status = Feed(**writer, AnyPeculiar());
          break;
        case 4:
          status = AddWhole(**writer, AnyPeculiar());
          break;
        default:
          status = AddMemory(**writer);
      }
      if (status.ok() && Chance(4)) status = (*writer)->Flush();
    }
    return status.ok() ? (*writer)->Finish() : status;
  }

  // What the file should hold, once it is written.
  std::vector<Expected> expected() const {
    std::vector<Expected> all = expected_;
    for (Expected& each : all) {
      for (auto& [role, meant] : each.components) {
        if (!wild_) continue;
        auto held = kept_.find(meant.written);  // or what Writer::Add found to be the same bytes
        if (held == kept_.end()) held = kept_.find({meant.written.first, 0});
        if (held != kept_.end()) meant.bytes = held->second;
      }
    }
    return all;
  }

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

  // Bytes that are written as component `component` of tensor `name`.
  Meant Wanted(std::span<const std::byte> bytes, const std::string& name,
               std::uint32_t component = 0) const {
    const bool mixed = mixes_ && !IsPeculiar(name);
    return {mixed ? Mixed(bytes) : Bytes(bytes.begin(), bytes.end()), {name, component}};
  }

  // ---- objects whose bytes have rules ----

  struct Peculiar {
    Object object;
    std::vector<Bytes> components;
  };

  // Whether to make a mistake.
  bool Wrong(std::uint64_t in) { return !careful_ && Chance(in); }

  Peculiar AnyCoo() {
    Peculiar made{.object = {.name = NewName("p"), .format = "sparse_coo"}, .components = {}};
    Shape& shape = made.object.shape;
    for (std::uint64_t rank = 1 + Below(3); shape.size() < rank;) shape.push_back(1 + Below(9));
    const std::uint64_t places = *ElementCount(shape);
    std::vector<std::uint64_t> cells(Below(std::min<std::uint64_t>(places, 20) + 1));
    for (std::uint64_t& cell : cells) cell = Below(places);
    if (!Wrong(4)) {  // each once, in order
      std::sort(cells.begin(), cells.end());
      cells.erase(std::unique(cells.begin(), cells.end()), cells.end());
      if (Chance(3)) std::reverse(cells.begin(), cells.end());
    }
    std::vector<std::uint64_t> coords;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      std::uint64_t below = 1;
      for (std::size_t e = d + 1; e < shape.size(); ++e) below *= shape[e];
      for (const std::uint64_t cell : cells) coords.push_back(cell / below % shape[d]);
    }
    if (!coords.empty() && Wrong(12)) coords[Below(coords.size())] = 9 + Below(3);
    AddValues(made, cells.size());
    AddIndices(made, "coords", coords, IndexType());
    if (Chance(2)) Reverse(made);
    return made;
  }

  Peculiar AnyCsr() {
    Peculiar made{.object = {.name = NewName("p"), .format = "sparse_csr"}, .components = {}};
    const std::uint64_t rows = Below(6), columns = 1 + Below(9);
    std::vector<std::uint64_t> pointers = {0}, indices;
    for (std::uint64_t row = 0; row < rows; ++row) {
      std::vector<std::uint64_t> of_row;
      for (std::uint64_t c = 0; c < columns; ++c) {
        if (Chance(3)) of_row.push_back(c);
      }
      if (Wrong(10)) std::reverse(of_row.begin(), of_row.end());
      indices.insert(indices.end(), of_row.begin(), of_row.end());
      pointers.push_back(indices.size());
    }
    if (!indices.empty() && Wrong(12)) indices[Below(indices.size())] += Below(3);
    if (Wrong(12)) pointers[Below(pointers.size())] += 1;
    made.object.shape = {Wrong(15) ? rows + 1 : rows, columns};
    const DType dtype = IndexType();
    AddValues(made, indices.size());
    AddIndices(made, "indices", indices, dtype);
    AddIndices(made, "indptr", pointers, dtype);
    if (Chance(2)) Reverse(made);
    return made;
  }

  Peculiar AnyBool() {
    Peculiar made{.object = {.name = NewName("p"), .shape = {Below(3000)}}, .components = {}};
    Bytes bytes(made.object.shape[0]);
    for (std::byte& each : bytes) each = static_cast<std::byte>(Below(2));
    if (!bytes.empty() && Wrong(5)) bytes[Below(bytes.size())] = std::byte{2};
    made.object.components = {{"data", {DType::kBool}, bytes.size()}};
    made.components = {std::move(bytes)};
    return made;
  }

  Peculiar AnyPacked() {
    const std::uint64_t count = Below(9), bytes = count / 2 + count % 2;
    Peculiar made{.object = {.name = NewName("p"), .shape = {bytes}}, .components = {Bytes(bytes)}};
    for (std::byte& each : made.components[0]) each = static_cast<std::byte>(random_());
    if (bytes > 0 && !Wrong(2)) made.components[0].back() &= std::byte{0xf};
    made.object.components = {{"data", {DType::kU8, "f4_e2m1"}, bytes}};
    const std::uint64_t said = count + (Wrong(6) ? 1 : 0);
    if (!Chance(4)) {
      made.object.attributes = {{"logical_shape", Value(Value::Array{Value(said)})}};
    }
    return made;
  }

  Peculiar AnyPeculiar() {
    switch (Below(6)) {
      case 0:
        return AnyBool();
      case 1:
        return AnyPacked();
      case 2:
      case 3:
        return AnyCsr();
      default:
        return AnyCoo();
    }
  }

  DType IndexType() {
    return options_.spec == SpecVersion::k2_0 && Chance(2) ? DType::kU32 : DType::kU64;
  }
  void AddValues(Peculiar& made, std::uint64_t count) {
    const bool packed = Chance(6);
    const ElementType element =
        packed ? ElementType{DType::kU8, "f4_e2m1"} : ElementType{DType::kF32};
    Bytes bytes(packed ? count / 2 + count % 2 : 4 * count);
    Fill(bytes);
    if (packed && !bytes.empty() && !Wrong(3)) bytes.back() &= std::byte{0xf};
    made.object.components.push_back({"values", element, bytes.size()});
    made.components.push_back(std::move(bytes));
  }
  static void AddIndices(Peculiar& made, std::string_view role,
                         const std::vector<std::uint64_t>& numbers, DType dtype) {
    made.components.push_back(Numbers(numbers, ByteWidth(dtype)));
    made.object.components.push_back({role, {dtype}, made.components.back().size()});
  }
  static void Reverse(Peculiar& made) {
    std::reverse(made.object.components.begin(), made.object.components.end());
    std::reverse(made.components.begin(), made.components.end());
  }

  // Piece by piece, of sizes that are known or not, with a dimension and attributes that
  // come in the end.
  Status Feed(Writer& writer, Peculiar made) {
    std::vector<Storage> storage;
    for (Component& component : made.object.components) {
      if (Chance(2)) component.bytes = kUnknownSize;
      storage.push_back(AnyStorage());
    }
    std::optional<std::uint64_t> leading;
    if (!made.object.shape.empty() && made.object.format != "sparse_coo" && Chance(3)) {
      leading = made.object.shape[0] + (Wrong(4) ? 1 : 0);
      made.object.shape[0] = Below(9);
      for (Component& component : made.object.components) component.bytes = kUnknownSize;
    }
    Value::Map later;
    if (Chance(2)) std::swap(later, made.object.attributes);
    auto stream = writer.Begin(made.object, storage);
    if (!stream.ok()) return stream.status();
    Expected expected = {.name = made.object.name, .components = {}};
    Status status;
    for (std::uint32_t c = 0; c < made.components.size() && status.ok(); ++c) {
      if (c > 0) status = (*stream)->NextComponent();
      const Bytes& bytes = made.components[c];
      const std::uint64_t half = bytes.empty() ? 0 : Below(bytes.size());
      if (status.ok()) status = (*stream)->Append(Part(bytes, 0, half));
      if (status.ok()) status = (*stream)->Append(Part(bytes, half, bytes.size() - half));
      expected.components[made.object.components[c].role] = Wanted(bytes, made.object.name, c);
    }
    for (auto& [key, value] : later) {
      if (status.ok()) status = (*stream)->SetAttribute(key, value);
    }
    if (status.ok() && leading) status = (*stream)->SetLeadingDimension(*leading);
    if (!status.ok()) return status;
    expected_.push_back(std::move(expected));
    return (*stream)->Finish();
  }

  Status AddWhole(Writer& writer, Peculiar made) {
    auto& kept = *peculiar_.emplace_back(std::make_unique<std::vector<Bytes>>(made.components));
    Expected expected = {.name = made.object.name, .components = {}};
    std::vector<std::span<const std::byte>> spans(kept.begin(), kept.end());
    std::vector<Storage> storage;
    for (std::uint32_t c = 0; c < kept.size(); ++c) {
      expected.components[made.object.components[c].role] = Wanted(kept[c], made.object.name, c);
      storage.push_back(AnyStorage());
    }
    expected_.push_back(std::move(expected));
    return writer.Add(made.object, std::move(spans), std::move(storage));
  }

  // ---- plans that are edited ----

  ComponentId AnyOf(const Plan& plan) {
    const auto object = static_cast<std::uint32_t>(Below(plan.objects.size()));
    return {object, static_cast<std::uint32_t>(Below(plan.objects[object].components.size()))};
  }
  void Edit(Plan& plan) {
    for (std::uint64_t edits = 1 + Below(3); edits > 0 && !plan.objects.empty(); --edits) {
      const ComponentId id = AnyOf(plan), other = AnyOf(plan);
      PlannedObject& object = plan.objects[id.object];
      auto changed = std::make_shared<Object>(*object.object);
      switch (Below(7)) {
        case 0:
        case 1:
          object.components[id.component].shared_with = other;
          break;
        case 2:
          object.components[id.component].shared_with.reset();
          break;
        case 3:
          object.components[id.component].storage = AnyStorage();
          break;
        case 4:
          object.components[id.component].transform.reset();
          break;
        case 5:
          if (!changed->shape.empty()) changed->shape[0] += Below(2);
          object.object = changed;
          break;
        default:
          changed->components[id.component].element = {DType::kF64};
          object.object = changed;
      }
    }
  }

  std::string NewName(const char* first = "t") { return first + std::to_string(names_++); }

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
    std::vector<std::pair<std::uint64_t, Bytes>> own;  // bytes that are no floats, and their places
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t components = Chance(5) ? 1 + Below(4) : 1;
      if (Chance(8)) {
        Peculiar made = AnyPeculiar();
        std::vector<Served> all;
        for (const Bytes& bytes : made.components) {
          Served served = AnyService(mode);
          served.offset = end;
          served.count = bytes.size();
          own.emplace_back(end, bytes);
          end += (served.count + 63) / 64 * 64;
          all.push_back(served);
          if (!careful_) before.push_back(served);
        }
        if (!before.empty() && Wrong(6)) all.back() = Alike(all.back(), before);
        source.Push(std::move(made.object), std::move(all));
        continue;
      }
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
    for (const auto& [at, some] : own) {
      std::ranges::copy(some, bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
    source.SetBytes(std::move(bytes));
    return AddPlanOf(source, writer);
  }

  // One of `before` that has the size of `served`, if there is one.
  static Served Alike(const Served& served, const std::vector<Served>& before) {
    for (const Served& each : before) {
      if (each.count == served.count && (each.extent || each.view)) return each;
    }
    return served;
  }

  Status AddPlanOf(RandomSource& source, Writer& writer) {
    PlanOptions options = {
        .spec = options_.spec, .storage = AnyStorage(), .on_overflow = OnOverflow::kInf};
    const std::uint64_t converts = Below(3), salt = random_();
    options.convert = [=](const Object& object) -> std::optional<ElementType> {
      const auto odd = [](const Component& c) {
        return !c.element.type.empty() || c.element.dtype == DType::kBool;
      };
      if (std::ranges::any_of(object.components, odd)) return std::nullopt;
      const std::uint64_t pick = (std::hash<std::string>()(object.name) ^ salt) % 3;
      if (converts == 0 || (converts == 2 && pick == 0)) return std::nullopt;
      return ElementType{converts == 1 || pick == 1 ? DType::kF64 : DType::kI32};
    };
    auto plan = MakePlan(source, options);
    if (!plan.ok()) return plan.status();
    Plan& kept = *plans_.emplace_back(std::make_unique<Plan>(*std::move(plan)));
    if (!tame_ && Chance(3)) Edit(kept);
    if (options_.spec == SpecVersion::k2_0 && Chance(6)) {
      const Status status = MakeCanonical(source, kept);
      if (!status.ok()) return status;
    }
    const auto meant = [&](ComponentId id) {
      const PlannedComponent& component = kept.objects[id.object].components[id.component];
      const auto in = source.BytesOf(component.source);
      Bytes bytes(in.begin(), in.end());
      if (const auto& transform = component.transform) {
        bytes.resize(in.size() / transform->input_unit() * transform->output_unit());
        NumericCounts counts;
        transform->Apply(in, bytes, counts);
      }
      return Wanted(bytes, kept.objects[id.object].object->name, id.component);
    };
    for (std::uint32_t i = 0; i < kept.objects.size(); ++i) {
      const PlannedObject& object = kept.objects[i];
      Expected expected = {.name = object.object->name, .components = {}};
      for (std::uint32_t c = 0; c < object.components.size(); ++c) {
        const ComponentId id = object.components[c].shared_with.value_or(ComponentId{i, c});
        expected.components[object.object->components[c].role] = meant(id);
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
      expected.components["c" + std::to_string(c)] =
          Wanted(all[c], object.name, static_cast<std::uint32_t>(c));
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
      expected.components = {{"a", Wanted(whole, name)},
                             {"b", Wanted(second, name, 1)},
                             {"c", Wanted(whole, name, 2)}};
    } else {
      status = writer.Add(name, {bytes.size() / 4}, {DType::kF32}, bytes);
      expected.components = {{"data", Wanted(bytes, name)}};
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
  bool careful_ = false;  // bytes keep their rules
  bool tame_ = false;     // no stage changes sizes, no plan is edited
  bool wild_ = false;     // kept_ has what was written
  Kept kept_;
  int names_ = 0;
  std::vector<std::unique_ptr<RandomSource>> sources_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::vector<std::unique_ptr<Bytes>> memory_;
  std::vector<std::unique_ptr<std::vector<Bytes>>> peculiar_;
  std::vector<Expected> expected_;
};

void CheckFile(const Bytes& file, const std::vector<Expected>& expected) {
  auto opened = Must(Reader::Open(MemoryBytes(file, "file")));
  const Reader& reader = *opened;
  ASSERT_EQ(reader.manifest().objects.size(), expected.size());
  for (const Expected& each : expected) {
    const auto index = reader.Find(each.name);
    ASSERT_TRUE(index) << each.name;
    const StoredObject& object = reader.manifest().objects[*index];
    ASSERT_EQ(object.components.size(), each.components.size());
    for (std::uint32_t c = 0; c < object.components.size(); ++c) {
      const Bytes& want = each.components.at(object.components[c].role).bytes;
      const auto size = Must(reader.DecodedBytes({*index, c}));
      ASSERT_EQ(size, want.size()) << each.name;
      Bytes got(want.size());
      ASSERT_OK(reader.Read({*index, c}, 0, got));
      ASSERT_TRUE(got == want) << each.name << '/' << object.components[c].role;
    }
  }
  const auto report = Must(Verify(reader, {.threads = 2}));
  ASSERT_TRUE(report.problems.empty()) << report.problems[0].message;
  ASSERT_TRUE(report.unchecked.empty()) << report.unchecked[0].message;
  ASSERT_TRUE(report.undecodable.empty()) << report.undecodable[0].message;
}

// ZT_SEEDS asks for more than a run of all tests has time for, ZT_SEED for another first one.
std::uint64_t Asked(const char* name, std::uint64_t otherwise) {
  const char* const asked = std::getenv(name);
  return asked == nullptr ? otherwise : std::strtoull(asked, nullptr, 10);
}

TEST(RandomPrograms, GiveTheSameBytesForAnyThreadsAndMemoryAndWhatWasMeant) {
  const std::uint64_t seeds = Asked("ZT_SEEDS", 300), begin = Asked("ZT_SEED", 0);
  std::uint64_t written = 0;
  for (std::uint64_t seed = begin; seed < begin + seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Bytes first;
    Program program(seed, 1);
    const Status status = program.Run(first);
    ASSERT_EQ(status.ok(), !first.empty()) << Why(status);
    ASSERT_NE(status.code(), StatusCode::kInternal) << Why(status);
    if (status.ok()) {
      ++written;
      CheckFile(first, program.expected());
    }
    if (HasFatalFailure()) return;
    // Every eighth, by several threads, and by other memory.
    for (const auto& [threads, more] : {std::pair(2U, 0U), std::pair(3U, 1U), std::pair(3U, 16U)}) {
      if (seed % 8 != 0) break;
      Bytes file;
      const Status again = Program(seed, threads, more).Run(file);
      ASSERT_EQ(again.ok(), status.ok()) << Why(again) << " / " << Why(status);
      ASSERT_TRUE(file == first) << threads << " threads, " << more;
    }
  }
  // Most programs are valid, and many are not.
  EXPECT_GT(written, seeds / 4);
  EXPECT_LT(written, seeds - seeds / 10);
}

}  // namespace
}  // namespace zt
