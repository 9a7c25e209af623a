// The library under a user's fingers: numbers for bytes, names for ids, streams, sinks, and
// what errors say.
#include "little_endian.h"
#include "testing.h"

import zt;

// A number of a user's own, with the bits of bf16.
struct Half {
  std::uint16_t bits;
};
template <>
inline constexpr std::optional<zt::DType> zt::kDTypeOf<Half> = zt::DType::kBF16;

namespace zt {
namespace {

ElementType F32() { return {DType::kF32}; }

std::unique_ptr<Writer> To(Bytes& file, WriterOptions options = {}) {
  return *Writer::Create(MemorySink(file), std::move(options));
}

std::unique_ptr<Reader> From(const Bytes& file) {
  return *Reader::Open(MemoryBytes(file, "memory"));
}

// ---- numbers ------------------------------------------------------------------------------------

TEST(Numbers, EveryTypeOfCHasItsDType) {
  static_assert(kDTypeOf<double> == DType::kF64 && kDTypeOf<float> == DType::kF32);
  static_assert(kDTypeOf<long> == DType::kI64 && kDTypeOf<long long> == DType::kI64);
  static_assert(kDTypeOf<unsigned long> == DType::kU64 &&
                kDTypeOf<unsigned long long> == DType::kU64);
  static_assert(kDTypeOf<std::int8_t> == DType::kI8 && kDTypeOf<std::uint16_t> == DType::kU16);
  static_assert(kDTypeOf<bool> == DType::kBool && kDTypeOf<Half> == DType::kBF16);
  static_assert(!Element<char> && !Element<std::byte> && !Element<std::string>);
}

TEST(Numbers, AreWrittenAndReadByName) {
  Bytes file;
  const auto writer = To(file);
  const std::vector<float> weights = {1, 2.5, -3};
  const std::array<std::int64_t, 2> counts = {-1, 7};
  ASSERT_OK(writer->Add("weights", {3}, weights));
  ASSERT_OK(writer->Add("counts", {1, 2}, counts));
  ASSERT_OK(writer->Add("halves", {2}, std::vector<Half>{{0x3f80}, {0xbf80}}));
  ASSERT_OK(writer->Add("flags", {2}, std::array<bool, 2>{true, false}));
  ASSERT_OK(writer->Finish());
  const auto reader = From(file);
  EXPECT_EQ(*reader->Read<float>("weights"), weights);
  EXPECT_THAT(*reader->Read<long long>("counts"), ::testing::ElementsAre(-1, 7));
  EXPECT_EQ(reader->Read<Half>("halves")->at(1).bits, 0xbf80);
  EXPECT_THAT(*reader->Read<std::uint8_t>("flags"), ::testing::ElementsAre(1, 0));
  EXPECT_EQ(Name(reader->component(*reader->Locate("halves")).element), "bf16");
}

TEST(Numbers, OfAnotherTypeOrNumberAreRefused) {
  Bytes file;
  const std::vector<float> three = {1, 2, 3};
  EXPECT_EQ(Why(To(file)->Add("t", {4}, three)),
            "tensor 't': component 'data' declares 16 bytes, 12 given");
  const auto writer = To(file);
  ASSERT_OK(writer->Add("t", {3}, three));
  ASSERT_OK(writer->Finish());
  const auto reader = From(file);
  EXPECT_THAT(reader->Read<double>("t"),
              Fails(StatusCode::kInvalidArgument, "tensor 't': it is f32, not f64"));
  EXPECT_EQ(Why(reader->Map<std::int32_t>("t")), "tensor 't': it is f32, not i32");
  EXPECT_EQ(Why(reader->Read<float>("u")), "tensor 'u': there is no tensor of this name");
  std::array<double, 1> wrong;
  EXPECT_THAT(reader->ReadRange("t", 0, std::span<double>(wrong)),
              Fails(StatusCode::kInvalidArgument, "tensor 't': it is f32, not f64"));
}

TEST(Numbers, RangesAreReadByName) {
  Bytes file;
  const auto writer = To(file);
  const std::vector<std::int32_t> numbers = {10, 11, 12, 13, 14};
  ASSERT_OK(writer->Add("t", {5}, numbers));
  ASSERT_OK(writer->Finish());
  const auto reader = From(file);
  for (std::uint64_t first = 0; first <= 5; ++first) {
    for (std::size_t count = 0; first + count <= 5; ++count) {
      std::vector<std::int32_t> out(count);
      ASSERT_OK(reader->ReadRange("t", first, std::span(out)));
      const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(first);
      EXPECT_EQ(out, std::vector<std::int32_t>(begin, begin + static_cast<std::ptrdiff_t>(count)));
    }
  }
  std::array<std::int32_t, 2> out;
  for (const std::uint64_t first : {std::uint64_t{4}, std::uint64_t{6}, ~std::uint64_t{0}}) {
    EXPECT_THAT(
        reader->ReadRange("t", first, std::span<std::int32_t>(out)),
        Fails(StatusCode::kInvalidArgument, "tensor 't': the range lies beyond the component"));
  }
}

TEST(Numbers, RolesTellComponentsApart) {
  Bytes file;
  const auto writer = To(file);
  const auto values = Little(std::vector<float>{7, 9});
  const std::vector<std::uint64_t> rows = {0, 1, 2}, stored = Little(rows);
  const auto columns = Little(std::vector<std::uint64_t>{1, 2});
  const auto bytes = [](const auto& v) { return std::as_bytes(std::span(v)); };
  Object graph = {.name = "g", .format = "sparse_csr", .shape = {2, 3}};
  graph.components = {{"values", F32()}, {"indices", {DType::kU64}}, {"indptr", {DType::kU64}}};
  ASSERT_OK(writer->Add(graph, {bytes(values), bytes(columns), bytes(stored)}));
  ASSERT_OK(writer->Finish());
  const auto reader = From(file);
  EXPECT_EQ(*reader->Read<std::uint64_t>("g", "indptr"), rows);
  EXPECT_THAT(reader->Locate("g"),
              Fails(StatusCode::kInvalidArgument,
                    ::testing::StartsWith("tensor 'g': it has several components; name one of '")));
  EXPECT_THAT(Why(reader->Locate("g", "scales")),
              ::testing::StartsWith("tensor 'g': it has no component 'scales', only '"));
}

TEST(Numbers, AreMappedWhereTheyLie) {
  const TempFolder folder;
  auto writer = *Writer::Create(*CreateFileSink(folder / "f.zt", {.sync = false}));
  const std::vector<double> raw = {1, 2, 3};
  ASSERT_OK(writer->Add("raw", {3}, raw));
  ASSERT_OK(writer->Add({.name = "zstd", .shape = {3}, .components = {{"data", {DType::kF64}}}},
                        {std::as_bytes(std::span(raw))}, {{Compression::kAlways}}));
  ASSERT_OK(writer->Finish());
  const auto reader = *Reader::Open(folder / "f.zt");
  const auto mapped = reader->Map<double>("raw");
  if constexpr (std::endian::native == std::endian::big) {
    EXPECT_THAT(mapped,
                Fails(StatusCode::kFailedPrecondition,
                      ::testing::HasSubstr("its values are little-endian, this machine is not")));
    return;
  }
  ASSERT_OK(mapped);
  EXPECT_TRUE(std::equal(mapped->begin(), mapped->end(), raw.begin(), raw.end()));
  EXPECT_EQ(mapped->data(), reader->Map<double>("raw")->data());
  EXPECT_THAT(reader->Map<double>("zstd"),
              Fails(StatusCode::kFailedPrecondition,
                    (folder / "f.zt") +
                        ": tensor 'zstd': only raw little-endian components can be mapped"));
}

// A size that the frames contradict is found before there is memory for it.
TEST(Numbers, OfASizeThatIsALieAreRefused) {
  Bytes file;
  const auto writer = To(file, {.storage = {Compression::kAlways}});
  ASSERT_OK(writer->Add("t", {4}, std::vector<float>(4)));
  ASSERT_OK(writer->Finish());
  Manifest manifest = *writer->manifest();
  manifest.objects[0].shape = {100'000};
  manifest.objects[0].components[0].decoded_bytes = 400'000;
  const std::uint64_t end = From(file)->data_end();
  Bytes lie(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(end));
  const Bytes encoded = *EncodeManifest(manifest, SpecVersion::k1_2);
  const Bytes footer = EncodeFooter(end, encoded, SpecVersion::k1_2);
  lie.insert(lie.end(), encoded.begin(), encoded.end());
  lie.insert(lie.end(), footer.begin(), footer.end());
  EXPECT_THAT(From(lie)->Read<float>("t"),
              Fails(StatusCode::kDataLoss, ::testing::StartsWith("tensor 't': ")));
}

TEST(Values, TakeEveryIntegerAndNoPointer) {
  static_assert(!std::is_constructible_v<Value, const int*>);
  EXPECT_EQ(Value(1LL), Value(1U));
  EXPECT_EQ(Value(static_cast<short>(-1)), Value(std::int64_t{-1}));
  EXPECT_EQ(*Value(18446744073709551615ULL).AsUint(), 18446744073709551615ULL);
  EXPECT_EQ(Value(1.5F), Value(1.5));
  EXPECT_EQ(Value(true).kind(), Value::Kind::kBool);
}

TEST(Values, GiveNumbersOfAnyKind) {
  EXPECT_EQ(Value(3).Number<int>(), 3);
  EXPECT_EQ(Value(3.0).Number<int>(), 3);
  EXPECT_EQ(Value(-3).Number<double>(), -3.0);
  EXPECT_EQ(Value(3).Number<float>(), 3.0F);
  EXPECT_EQ(Value(255).Number<std::uint8_t>(), 255);
  EXPECT_EQ(Value(256).Number<std::uint8_t>(), std::nullopt);
  EXPECT_EQ(Value(-1).Number<std::uint64_t>(), std::nullopt);
  EXPECT_EQ(Value(-1).Number<std::int8_t>(), -1);
  EXPECT_EQ(Value(~std::uint64_t{0}).Number<std::int64_t>(), std::nullopt);
  EXPECT_EQ(Value(3.5).Number<int>(), std::nullopt);
  EXPECT_EQ(Value(9223372036854775808.0).Number<std::int64_t>(), std::nullopt);
  EXPECT_EQ(Value(-9223372036854775808.0).Number<std::int64_t>(),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(Value(std::numeric_limits<double>::quiet_NaN()).Number<int>(), std::nullopt);
  EXPECT_EQ(Value("3").Number<int>(), std::nullopt);
  EXPECT_EQ(Value(true).Number<int>(), std::nullopt);
}

// ---- memory -------------------------------------------------------------------------------------

TEST(OwningAdd, KeepsWhatIsMovedIn) {
  Bytes file;
  const auto writer = To(file, {.threads = 2});
  for (int i = 0; i < 20; ++i) {
    const std::string name = "t" + std::to_string(i);
    if (i % 2 == 0) {
      ASSERT_OK(writer->Add(name, {1000}, std::vector<int>(1000, i)));
    } else {
      ASSERT_OK(writer->Add(name, {1000}, {DType::kU8}, Bytes(1000, std::byte(i))));
    }
  }
  ASSERT_OK(writer->Finish());
  const auto reader = From(file);
  EXPECT_EQ(*reader->Read<int>("t6"), std::vector<int>(1000, 6));
  EXPECT_EQ(*reader->Read<std::uint8_t>("t7"), std::vector<std::uint8_t>(1000, 7));
}

TEST(OwningAdd, LetsGoOfItBeforeMemoryRunsOut) {
  Bytes file;
  const auto writer = To(file, {.threads = 2, .memory_bytes = 1 << 20});
  ASSERT_OK(writer->Add("a", {1 << 20}, {DType::kU8}, Bytes(1 << 20)));
  ASSERT_OK(writer->Add("b", {1}, {DType::kU8}, Bytes(1)));
  EXPECT_GT(file.size(), std::size_t{1} << 20);  // written already, though nobody called Flush
  ASSERT_OK(writer->Finish());
}

// Serves a file from memory, and knows who asked.
class WatchedBytes final : public ByteSource {
 public:
  explicit WatchedBytes(Bytes bytes) : bytes_(std::move(bytes)) {}
  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override { return bytes_.size(); }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    {
      std::unique_lock lock(mutex_);
      threads_.insert(std::this_thread::get_id());
      arrived_.notify_all();
      arrived_.wait_for(lock, std::chrono::seconds(20),
                        [&] { return threads_.size() >= expected; });
    }
    if (throws) throw std::runtime_error("the cable is out");
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return OkStatus();
  }
  std::size_t TakeThreads() {
    const std::lock_guard lock(mutex_);
    return std::exchange(threads_, {}).size();
  }
  bool throws = false;
  std::size_t expected = 0;  // threads: nobody reads before so many came

 private:
  const Bytes bytes_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::set<std::thread::id> threads_;
  std::string name_ = "watched";
};

TEST(ReadAll, IsTheSameForAnyNumberOfThreads) {
  std::vector<std::uint32_t> numbers(5 << 20);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint32_t>(i / 3);
  Bytes file;
  const auto writer = To(file);
  const auto bytes = std::as_bytes(std::span(numbers));
  for (const Compression compression : {Compression::kNone, Compression::kAlways}) {
    ASSERT_OK(writer->Add({.name = compression == Compression::kNone ? "raw" : "zstd",
                           .shape = {numbers.size()},
                           .components = {{"data", {DType::kU32}}}},
                          {bytes}, {{compression}}));
  }
  ASSERT_OK(writer->Finish());
  const auto watched = std::make_shared<WatchedBytes>(file);
  const auto reader = *Reader::Open(watched);
  for (const char* name : {"raw", "zstd"}) {
    for (const unsigned threads : {1U, 4U}) {
      std::vector<std::uint32_t> read(numbers.size());
      (void)watched->TakeThreads();
      watched->expected = threads == 1 ? 0 : 2;
      ASSERT_OK(
          reader->ReadAll(*reader->Locate(name), std::as_writable_bytes(std::span(read)), threads));
      EXPECT_TRUE(read == numbers) << name << threads;
      const std::size_t used = watched->TakeThreads();
      EXPECT_GE(used, threads == 1 ? 1U : 2U) << name;
      EXPECT_LE(used, threads) << name;
      watched->expected = 0;
    }
  }
  Bytes small(8);
  EXPECT_EQ(Why(reader->ReadAll(*reader->Locate("raw"), small)),
            "tensor 'raw': it has 20971520 bytes, there is room for 8");
  EXPECT_EQ(Why(reader->ReadAll({9, 0}, small)), "there is no component 0 of object 9");
}

// ---- streams ------------------------------------------------------------------------------------

TEST(Stream, SaysItsLengthAndAttributesLast) {
  Bytes file;
  const auto writer = To(file, {.storage = {Compression::kIfGain}});
  auto object = *writer->Begin({.name = "rows",
                                .shape = {0, 3},
                                .attributes = {{"a", 1}, {"b", 2}},
                                .components = {{"data", F32()}}});
  for (int i = 0; i < 50'000; ++i) {
    ASSERT_OK(object->Append(std::array<float, 3>{1.0F * static_cast<float>(i), 0, 1}));
  }
  ASSERT_OK(object->SetLeadingDimension(1));
  ASSERT_OK(object->SetLeadingDimension(50'000));
  ASSERT_OK(object->SetAttribute("b", "changed"));
  ASSERT_OK(object->SetAttribute("steps", 50'000));
  ASSERT_OK(object->Finish());
  ASSERT_OK(writer->Add("after", {1}, std::vector<float>{1}));
  ASSERT_OK(writer->Finish());
  const auto reader = From(file);
  const StoredObject& rows = reader->manifest().objects[*reader->Find("rows")];
  EXPECT_EQ(rows.shape, (Shape{50'000, 3}));
  EXPECT_EQ(rows.attributes, (Value::Map{{"a", 1}, {"b", "changed"}, {"steps", 50'000}}));
  const auto values = reader->Read<float>("rows");
  ASSERT_EQ(values->size(), 150'000U);
  EXPECT_EQ((*values)[149'997], 49'999.0F);
  EXPECT_TRUE(Verify(*reader)->problems.empty());
  // What follows is as it was declared.
  EXPECT_EQ(reader->manifest().objects[*reader->Find("after")].shape, Shape{1});
}

TEST(Stream, OfSeveralComponentsSaysItsLengthToo) {
  Bytes file;
  const auto writer = To(file);
  Object csr = {.name = "m", .format = "sparse_csr", .shape = {0, 4}};
  csr.components = {{"values", F32()}, {"indices", {DType::kU64}}, {"indptr", {DType::kU64}}};
  auto object = *writer->Begin(csr);
  ASSERT_OK(object->Append(std::vector<float>{5, 6}));
  ASSERT_OK(object->NextComponent());
  ASSERT_OK(object->Append(std::vector<std::uint64_t>{3, 0}));
  ASSERT_OK(object->NextComponent());
  ASSERT_OK(object->Append(std::vector<std::uint64_t>{0, 1, 1, 2}));
  ASSERT_OK(object->SetLeadingDimension(3));
  ASSERT_OK(object->Finish());
  ASSERT_OK(writer->Finish());
  const auto reader = From(file);
  EXPECT_EQ(reader->manifest().objects[0].shape, (Shape{3, 4}));
  EXPECT_TRUE(Verify(*reader)->problems.empty());
}

// One call on an object under way that must fail the writer.
Status Refused(Object object, const std::function<Status(ObjectWriter&)>& call,
               SpecVersion spec = SpecVersion::k1_2) {
  Bytes file;
  const auto writer = To(file, {.spec = spec});
  auto begun = writer->Begin(std::move(object));
  if (!begun.ok()) return begun.status();
  Status status = call(**begun);
  if (status.ok()) status = (*begun)->Finish();
  EXPECT_EQ(Why(writer->Finish()), Why(status));
  EXPECT_TRUE(file.empty());
  return status;
}

TEST(Stream, RefusesWhatItsBytesContradict) {
  const Object rows = {.name = "r", .shape = {0, 2}, .components = {{"data", F32()}}};
  const auto three = [](ObjectWriter& o) { return o.Append(std::array<float, 6>{}); };
  Status status = Refused(rows, [&](ObjectWriter& o) {
    const Status appended = three(o);
    return appended.ok() ? o.SetLeadingDimension(4) : appended;
  });
  EXPECT_THAT(status, Fails(StatusCode::kInvalidArgument,
                            "tensor 'r': data has 24 bytes, shape [4, 2] of f32 needs 32"));
  EXPECT_EQ(Why(Refused(rows,
                        [&](ObjectWriter& o) {
                          const Status set = o.SetAttribute("columns", 2);
                          return set.ok() ? three(o) : set;
                        })),
            "tensor 'r': 24 bytes were appended, and its first dimension is still 0; set the "
            "leading dimension before the end");
  status = Refused(rows, [](ObjectWriter& o) { return o.Append(std::array<double, 2>{}); });
  EXPECT_THAT(status,
              Fails(StatusCode::kInvalidArgument,
                    "tensor 'r': component 'data' has dtype f32, the appended values have f64"));
  status = Refused({.name = "s", .components = {{"data", F32()}}},
                   [](ObjectWriter& o) { return o.SetLeadingDimension(4); });
  EXPECT_THAT(status, Fails(StatusCode::kFailedPrecondition,
                            "tensor 's': it is a scalar, which has no leading dimension"));
  Object coo = {.name = "c", .format = "sparse_coo", .shape = {2, 2}};
  coo.components = {{"values", F32()}, {"coords", {DType::kU64}}};
  EXPECT_EQ(Why(Refused(coo, [](ObjectWriter& o) { return o.SetLeadingDimension(4); })),
            "tensor 'c': the shape of sparse_coo is fixed when it is begun");
  // Attributes are checked as those given to Begin.
  EXPECT_EQ(Why(Refused(
                {.name = "o", .shape = {0}, .components = {{"data", F32()}}},
                [](ObjectWriter& o) { return o.SetAttribute("offset", 1); }, SpecVersion::k0_1)),
            "tensor 'o': attribute 'offset' has the name of a field of version 0.1.0");
}

TEST(Stream, CannotBeChangedAfterFinish) {
  Bytes file;
  const auto writer = To(file);
  auto object = *writer->Begin({.name = "r", .shape = {0}, .components = {{"data", F32()}}});
  ASSERT_OK(object->Finish());
  EXPECT_EQ(object->SetLeadingDimension(1).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(object->SetAttribute("a", 1).code(), StatusCode::kFailedPrecondition);
}

// ---- sinks --------------------------------------------------------------------------------------

TEST(TeeSink, WritesTheSameToAll) {
  const TempFolder folder;
  Bytes memory;
  std::string digest;
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(*CreateFileSink(folder / "a.zt", {.sync = false}));
  sinks.push_back(HashingSink(MemorySink(memory), DigestKind::kSha256, digest));
  auto writer = *Writer::Create(TeeSink(std::move(sinks)), {.threads = 3});
  ASSERT_OK(writer->Add("t", {1 << 20}, std::vector<float>(1 << 20, 1.5F)));
  ASSERT_OK(writer->Finish());
  const auto file = *OpenFile(folder / "a.zt");
  Bytes read(*file->size());
  ASSERT_OK(file->ReadAt(0, read));
  EXPECT_TRUE(read == memory);
  const auto hasher = MakeHasher(DigestKind::kSha256);
  hasher->Update(memory);
  EXPECT_EQ(digest, hasher->Finish());
}

// Fails or succeeds at the end.
class EndingSink final : public Sink {
 public:
  EndingSink(std::string name, Status end, std::vector<std::string>& log)
      : name_(std::move(name)), end_(std::move(end)), log_(log) {}
  const std::string& name() const override { return name_; }
  bool can_place() const override { return true; }
  Status Append(Pieces) override { return OkStatus(); }
  Status WriteAt(std::uint64_t, Pieces) override { return OkStatus(); }
  Status Finish(std::uint64_t) override {
    log_.push_back(name_ + (end_.ok() ? " finished" : " failed"));
    return end_;
  }
  void Abort() override { log_.push_back(name_ + " aborted"); }

 private:
  std::string name_;
  Status end_;
  std::vector<std::string>& log_;
};

TEST(TeeSink, AbortsWhatFollowsAFailure) {
  std::vector<std::string> log;
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::make_unique<EndingSink>("a", OkStatus(), log));
  sinks.push_back(std::make_unique<EndingSink>("b", IoError("no space"), log));
  sinks.push_back(std::make_unique<EndingSink>("c", OkStatus(), log));
  auto tee = TeeSink(std::move(sinks));
  EXPECT_TRUE(tee->can_place());
  EXPECT_EQ(tee->name(), "a and b and c");
  {
    auto writer = *Writer::Create(std::move(tee));
    EXPECT_EQ(Why(writer->Finish()), "b: no space");
  }
  ASSERT_GE(log.size(), 4U);
  EXPECT_EQ(log[0], "a finished");
  EXPECT_EQ(log[1], "b failed");
  EXPECT_THAT(log, ::testing::Contains("b aborted"));
  EXPECT_THAT(log, ::testing::Contains("c aborted"));
  EXPECT_THAT(log, ::testing::Not(::testing::Contains("a aborted")));
}

TEST(Sinks, OfNothingAreRefused) {
  std::vector<std::unique_ptr<Sink>> sinks(1);
  std::string digest;
  Bytes file;
  EXPECT_EQ(TeeSink(std::move(sinks)), nullptr);
  EXPECT_EQ(HashingSink(nullptr, DigestKind::kXxh3, digest), nullptr);
  EXPECT_EQ(HashingSink(MemorySink(file), DigestKind::kNone, digest), nullptr);
}

// ---- errors -------------------------------------------------------------------------------------

TEST(Errors, PrintWithoutAnotherInclude) {
  std::ostringstream out, fine;
  out << InvalidData("it is short") << '\n';
  fine << OkStatus();
  // Newer releases of Abseil print where a status was made below it.
  EXPECT_TRUE(out.str().starts_with("DATA_LOSS: it is short\n")) << out.str();
  EXPECT_EQ(fine.str(), "OK");
  EXPECT_TRUE(::testing::PrintToString(IoError("gone")).starts_with("UNAVAILABLE: gone"));
}

TEST(Errors, NameTheFileThatCannotBeOpened) {
  const TempFolder folder;
  const std::string none = folder / "none.zt", deep = folder / "no/such/f.zt";
  EXPECT_EQ(Why(Reader::Open(none)), none + ": cannot open: No such file or directory");
  EXPECT_EQ(Why(CreateFileSink(deep, {})),
            deep + ": there is no folder " + (folder / "no/such") + "; make the folder first");
  EXPECT_EQ(Why(CreateFileSink(folder.path(), {})),
            folder.path() + ": the output is a folder; name a file");
  auto sink = *CreateFileSink(none, {.sync = false});
  ASSERT_OK(sink->Finish(0));
  EXPECT_THAT(Why(Reader::Open(none)), ::testing::StartsWith(none + ": neither ZTEN1000"));
}

TEST(Errors, OfAReaderOfAPathNameFileAndTensor) {
  const TempFolder folder;
  const std::string path = folder / "f.zt";
  auto writer = *Writer::Create(*CreateFileSink(path, {.sync = false}));
  ASSERT_OK(writer->Add("t", {2}, std::vector<float>(2)));
  ASSERT_OK(writer->Finish());
  const auto reader = *Reader::Open(path);
  EXPECT_EQ(reader->path(), path);
  Bytes out(9);
  EXPECT_EQ(Why(reader->Read({0, 0}, 0, out)),
            path + ": tensor 't': the range lies beyond the component");
  EXPECT_EQ(Why(reader->ReadAll({0, 0}, out)),
            path + ": tensor 't': it has 8 bytes, there is room for 9");
  EXPECT_EQ(Why(reader->DecodedBytes({1, 0})), path + ": there is no component 0 of object 1");
  EXPECT_EQ(Why(reader->Read<double>("t")), path + ": tensor 't': it is f32, not f64");
  EXPECT_EQ(Why(reader->Locate("u")), path + ": tensor 'u': there is no tensor of this name");
}

TEST(Errors, OfTheCallersBytesAreTheCallers) {
  const std::array<std::uint8_t, 2> flags = {1, 2};
  const auto bytes = std::as_bytes(std::span(flags));
  const std::string says = "tensor 't': element 1 of bool is 2, neither 0 nor 1";
  Bytes file;
  auto writer = To(file);
  (void)writer->Add("t", {2}, {DType::kBool}, bytes);
  Status status = writer->Finish();
  EXPECT_THAT(status, Fails(StatusCode::kInvalidArgument, says));
  writer = To(file);
  {
    auto object =
        *writer->Begin({.name = "t", .shape = {2}, .components = {{"data", {DType::kBool}}}});
    ASSERT_OK(object->Append(bytes));
    (void)object->Finish();
  }
  status = writer->Finish();
  EXPECT_THAT(status, Fails(StatusCode::kInvalidArgument, says));
  // Of a source it is the input that is damaged.
  MemorySource source;
  ASSERT_OK(source.Add(*DenseObject("t", {2}, {DType::kBool}), {bytes}));
  const auto plan = *MakePlan(source, {});
  writer = To(file);
  (void)writer->AddSource(source, plan);
  EXPECT_EQ(writer->Finish().code(), StatusCode::kDataLoss);
}

TEST(Errors, OfNamesThatCollideAreTheCallers) {
  MemorySource source;
  const Bytes data(8);
  ASSERT_OK(source.Add(*DenseObject("a", {8}, {DType::kU8}), {data}));
  ASSERT_OK(source.Add(*DenseObject("b", {8}, {DType::kU8}), {data}));
  EXPECT_EQ(MakePlan(source, {.rename = [](const std::string&) { return "c"; }}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Errors, OptionsOutOfRange) {
  const auto refused = [](WriterOptions options) {
    Bytes file;
    const Status status = Validate(options);
    EXPECT_EQ(Writer::Create(MemorySink(file), std::move(options)).status(), status);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return Why(status);
  };
  EXPECT_EQ(refused({.min_gain = 1.5}), "min_gain is 1.500000, not a number up to 1");
  EXPECT_EQ(refused({.storage = {.encoding = Encoding::kPlanes}}),
            "storage has an encoding and no compression, which is kIfGain or kAlways");
  EXPECT_THAT(refused({.min_gain = std::numeric_limits<double>::quiet_NaN()}),
              ::testing::HasSubstr("not a number up to 1"));
  EXPECT_NE(refused({.spec = SpecVersion::k1_0}), "");
  EXPECT_NE(refused({.zstd = {.frame_bytes = 1}}), "");
  EXPECT_EQ(refused({.threads = 1025}), "threads is 1025, more than 1024");
  EXPECT_OK(Validate(WriterOptions()));
  Bytes file;
  ASSERT_OK(To(file)->Finish());
  EXPECT_EQ(Verify(*From(file), {.threads = 1025}).status().code(), StatusCode::kInvalidArgument);
}

TEST(Errors, FormatsOfOnesOwnHaveAVersion) {
  const Bytes data(8);
  for (const char* name : {"mine", "mine/", "/1", "mine/one"}) {
    const Object object = {.name = "t", .format = name, .components = {{"x", {DType::kU8}}}};
    Bytes file;
    const Status status = To(file)->Add(object, {data});
    EXPECT_THAT(status, Fails(StatusCode::kInvalidArgument,
                              ::testing::HasSubstr("such as 'example.growing/1'")))
        << name;
    EXPECT_EQ(Why(To(file)->Begin(object)), Why(status));
  }
  Bytes file;
  const Object object = {.name = "t", .format = "a/b/1.2", .components = {{"x", {DType::kU8}}}};
  EXPECT_OK(To(file)->Add(object, {data}));
}

TEST(Errors, QuantizedGroupsSayTheirGeometry) {
  const Bytes data(8);
  Object group = {.name = "q", .format = "quantized_group", .shape = {8}};
  group.components = {{"packed_weight", {DType::kU8}}, {"scales", {DType::kU8}}};
  const auto refusal = [&](Value::Map attributes) {
    group.attributes = std::move(attributes);
    Bytes file;
    return Why(To(file)->Add(group, {data, data}));
  };
  const auto needs = [](const std::string& key) {
    return "tensor 'q': quantized_group needs an attribute '" + key + "', a whole number from 1 up";
  };
  EXPECT_EQ(refusal({}), needs("bits"));
  EXPECT_EQ(refusal({{"bits", 0}}), needs("bits"));
  EXPECT_EQ(refusal({{"bits", 4}}), needs("group_size"));
  EXPECT_EQ(refusal({{"bits", 4}, {"group_size", "all"}}), needs("group_size"));
  EXPECT_EQ(refusal({{"bits", 4}, {"group_size", 128}}), "");
  // A stream may say them last.
  group.attributes = {};
  const auto feed = [&](ObjectWriter& object) {
    Status status = object.Append(data);
    if (status.ok()) status = object.NextComponent();
    return status.ok() ? object.Append(data) : status;
  };
  EXPECT_EQ(Why(Refused(group, feed)), needs("bits"));
  Bytes file;
  const auto writer = To(file);
  auto object = *writer->Begin(group);
  ASSERT_OK(feed(*object));
  ASSERT_OK(object->SetAttribute("bits", 4));
  ASSERT_OK(object->SetAttribute("group_size", 8));
  EXPECT_OK(object->Finish());
}

TEST(Defaults, UseAllThreadsAsTheProgramDoes) {
  EXPECT_EQ(WriterOptions().threads, 0U);
  EXPECT_EQ(VerifyOptions().threads, 0U);
}

// ---- what users throw ---------------------------------------------------------------------------

// Two small tensors, which travel in one batch; what is asked of the second one throws, in the
// call of that name.
class ThrowingSource final : public TensorSource {
 public:
  explicit ThrowingSource(std::string where) : where_(std::move(where)) {
    for (const char* name : {"first", "second"}) objects_.push_back(*DenseObject(name, {8}, F32()));
    SetFile("odd.bin");
  }
  std::string_view format() const override { return "odd"; }
  Status Read(ComponentId id, std::uint64_t, std::span<std::byte>) override {
    MayThrow("Read", id);
    return OkStatus();
  }
  bool sequential(ComponentId id) const override {
    MayThrow("sequential", id);
    return false;
  }
  std::uint64_t preferred_read(ComponentId id) const override {
    MayThrow("preferred_read", id);
    return 0;
  }
  std::optional<Extent> extent(ComponentId id) const override {
    MayThrow("extent", id);
    return std::nullopt;
  }
  std::optional<Identity> identity(ComponentId id) const override {
    MayThrow("identity", id);
    return std::nullopt;
  }
  std::optional<std::span<const std::byte>> View(ComponentId id) const override {
    MayThrow("View", id);
    return std::nullopt;
  }
  Status CheckReadable(std::uint32_t object) const override {
    MayThrow("CheckReadable", {object, 0});
    return OkStatus();
  }

 private:
  void MayThrow(std::string_view call, ComponentId id) const {
    if (call == where_ && id.object == 1) throw std::runtime_error(where_ + " is out of order");
  }
  std::string where_;
};

Status Convert(TensorSource& source, const PlanOptions& plan_options = {},
               WriterOptions options = {}) {
  const auto plan = MakePlan(source, plan_options);
  if (!plan.ok()) return plan.status();
  Bytes file;
  const auto writer = To(file, std::move(options));
  const Status status = writer->AddSource(source, *plan);
  const Status end = writer->Finish();
  EXPECT_EQ(Why(end), Why(status.ok() ? end : status));
  EXPECT_TRUE(end.ok() || file.empty());
  return end;
}

TEST(Thrown, ByASourceNamesTensorAndFile) {
  for (const std::string call :
       {"Read", "sequential", "preferred_read", "extent", "identity", "View", "CheckReadable"}) {
    for (const unsigned threads : {1U, 3U}) {
      ThrowingSource source(call);
      EXPECT_THAT(
          Convert(source, {}, {.threads = threads}),
          Fails(StatusCode::kInternal, "odd.bin: tensor 'second': " + call + " is out of order"))
          << call;
    }
  }
  ThrowingSource good("");
  EXPECT_OK(Convert(good));
}

TEST(Thrown, ByAPlansFunctionNamesTensorAndFile) {
  const auto odd = [](std::string_view name) {
    if (name == "second") throw std::runtime_error("I forgot");
  };
  const std::string says = "odd.bin: tensor 'second': I forgot";
  ThrowingSource source("");
  EXPECT_EQ(Why(Convert(source, {.keep = [&](const Object& o) { return odd(o.name), true; }})),
            says);
  EXPECT_EQ(Why(Convert(source, {.rename =
                                     [&](const std::string& name) {
                                       odd(name);
                                       return name;
                                     }})),
            says);
  EXPECT_EQ(Why(Convert(source, {.convert = [&](const Object& o) -> std::optional<ElementType> {
                          odd(o.name);
                          return std::nullopt;
                        }})),
            says);
}

class ThrowingTransform final : public Transform {
 public:
  std::size_t input_unit() const override { return 4; }
  std::size_t output_unit() const override { return 4; }
  void Apply(std::span<const std::byte>, std::span<std::byte>, NumericCounts&) const override {
    throw std::runtime_error("no transform today");
  }
};

TEST(Thrown, ByATransformNamesItsTensor) {
  ThrowingSource source("");
  Plan plan = *MakePlan(source, {});
  plan.objects[1].components[0].transform = std::make_shared<ThrowingTransform>();
  Bytes file;
  const auto writer = To(file);
  (void)writer->AddSource(source, plan);
  EXPECT_EQ(Why(writer->Finish()), "odd.bin: tensor 'second': no transform today");
}

class ThrowingStage final : public Stage {
 public:
  Status Process(Chunk& chunk) override {
    if (chunk.object->name == "second") throw 7;
    return OkStatus();
  }
};

TEST(Thrown, ByAStageOrACallbackIsAnError) {
  ThrowingSource source("");
  EXPECT_EQ(Why(Convert(source, {}, {.stages = {std::make_shared<ThrowingStage>()}})),
            "odd.bin: tensor 'second': the exception is not a std::exception");
  const Status status = Convert(
      source, {}, {.progress = [](const Progress&) { throw std::runtime_error("no bar"); }});
  EXPECT_THAT(status, Fails(StatusCode::kInternal, ::testing::EndsWith("no bar")));
}

class ThrowingSink final : public Sink {
 public:
  const std::string& name() const override { return name_; }
  bool can_place() const override { throw std::runtime_error("ask somebody else"); }
  Status Append(Pieces) override { return OkStatus(); }
  Status Finish(std::uint64_t) override { return OkStatus(); }
  void Abort() override {}

 private:
  std::string name_ = "odd";
};

TEST(Thrown, ByASinkIsAnErrorOfCreate) {
  EXPECT_THAT(Writer::Create(std::make_unique<ThrowingSink>()),
              Fails(StatusCode::kInternal, "odd: ask somebody else"));
}

TEST(Thrown, ByBytesIsAnErrorOfTheReader) {
  Bytes file;
  const auto writer = To(file);
  ASSERT_OK(writer->Add("t", {2}, std::vector<float>(2)));
  ASSERT_OK(writer->Finish());
  const auto watched = std::make_shared<WatchedBytes>(file);
  const auto reader = *Reader::Open(watched);
  watched->throws = true;
  EXPECT_EQ(Why(reader->Read<float>("t")), "tensor 't': the cable is out");
  EXPECT_EQ(Why(Verify(*reader)), "the cable is out");
  EXPECT_EQ(Why(Reader::Open(watched)), "the cable is out");
}

}  // namespace
}  // namespace zt
