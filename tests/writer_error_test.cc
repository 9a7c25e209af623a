// zt.writer: what is refused, and that every failure gives one error and no output.
#include "testing.h"

import zt;

namespace zt {
namespace {

ElementType U8() { return {DType::kU8}; }

// Forwards to memory until call number `fail_at`, which fails; counts what happens.
class FaultySink final : public Sink {
 public:
  struct Counts {
    std::atomic<int> calls = 0;  // Reserve, Append, WriteAt and Finish
    std::atomic<int> finished = 0, aborted = 0, calls_after_abort = 0;
  };
  FaultySink(int fail_at, bool place, std::shared_ptr<Counts> counts)
      : fail_at_(fail_at), place_(place), counts_(std::move(counts)) {}
  ~FaultySink() override { Abort(); }
  const std::string& name() const override { return name_; }
  bool can_place() const override { return place_; }
  Status Append(Pieces) override { return Call(); }
  Status WriteAt(std::uint64_t, Pieces) override { return Call(); }
  Status Reserve(std::uint64_t) override { return Call(); }
  Status Finish(std::uint64_t) override {
    const Status status = Call();
    if (status.ok()) ++counts_->finished;
    return status;
  }
  void Abort() override {
    if (!aborted_) ++counts_->aborted;
    aborted_ = true;
  }

 private:
  Status Call() {
    if (aborted_) ++counts_->calls_after_abort;
    const int call = ++calls_;
    counts_->calls = call;
    return call == fail_at_ ? IoError("no space") : OkStatus();
  }
  const int fail_at_;
  const bool place_;
  std::atomic<int> calls_ = 0;
  std::atomic<bool> aborted_ = false;
  std::shared_ptr<Counts> counts_;
  std::string name_ = "disk";
};

// Everything a caller may do, going on after errors as a careless one would; the error of Finish.
Status UseEverything(Writer& writer) {
  static const Bytes data(3 << 20);
  MemorySource source;
  EXPECT_OK(source.Add(*DenseObject("planned", {data.size()}, U8()), {data}));
  const auto plan = MakePlan(source, {});
  (void)writer.AddSource(source, *plan);
  (void)writer.Add("small", {10}, U8(), std::span(data).first(10));
  (void)writer.AddAlias("tied", "small");
  auto object =
      writer.Begin({.name = "streamed", .shape = {1 << 20}, .components = {{"data", U8()}}});
  if (object.ok()) {
    for (int i = 0; i < 16; ++i) (void)(*object)->Append(std::span(data).first(1 << 16));
    (void)(*object)->Finish();
  }
  (void)writer.Flush();
  return writer.Finish();
}

// One call that must fail with `code` and `message`, after which there is no output and
// every call says so.
void Refuses(StatusCode code, const std::string& message,
             const std::function<Status(Writer&)>& call, WriterOptions options = {}) {
  Bytes file;
  auto writer = Must(Writer::Create(MemorySink(file), std::move(options)));
  static const Bytes kData(64);
  ASSERT_OK(writer->Add("held", {8}, U8(), std::span(kData).first(8)));
  EXPECT_THAT(call(*writer), Fails(code, message)) << message;
  EXPECT_EQ(Why(writer->Finish()), message);
  EXPECT_TRUE(file.empty()) << message;
}

TEST(Refused, NamesTwice) {
  const Bytes data(8);
  const StatusCode code = StatusCode::kInvalidArgument;
  Refuses(code, "tensor 'held': the name was added before",
          [&](Writer& w) { return w.Add("held", {8}, U8(), data); });
  Refuses(code, "tensor 'held': the name was added before", [&](Writer& w) {
    return w.Begin({.name = "held", .shape = {8}, .components = {{"data", U8()}}}).status();
  });
  Refuses(code, "tensor 'held': the name was added before",
          [&](Writer& w) { return w.AddAlias("held", "held"); });
  const auto alias_then = [](const std::function<Status(Writer&)>& call) {
    return [call](Writer& w) {
      const Status status = w.AddAlias("alias", "held");
      return status.ok() ? call(w) : status;
    };
  };
  Refuses(code, "tensor 'alias': the name was added before",
          alias_then([](Writer& w) { return w.AddAlias("alias", "held"); }));
  Refuses(code, "tensor 'alias': the name was added before",
          alias_then([&](Writer& w) { return w.Add("alias", {8}, U8(), data); }));
  Refuses(code, "tensor 'alias': there is no tensor 'nobody'",
          [](Writer& w) { return w.AddAlias("alias", "nobody"); });
  Refuses(code, "tensor '\xff': the name is not valid UTF-8",
          [](Writer& w) { return w.AddAlias("\xff", "held"); });
  // An alias is a name like any other.
  WriterOptions of_2_0 = {.spec = SpecVersion::k2_0};
  for (const auto& [name, why] : std::initializer_list<std::pair<std::string, std::string>>{
           {"", "the name '' is empty"},
           {std::string(1025, 'a'),
            "the name '" + std::string(64, 'a') + "' has more than 1024 bytes"},
           {std::string("a\0", 2), "the name 'a\\x00' holds U+0000"}}) {
    Refuses(
        code, TensorContext(name) + ": " + why + " (zTensor 2.0 §3.5)",
        [&](Writer& w) { return w.AddAlias(name, "held"); }, of_2_0);
    Refuses(
        code, TensorContext(name) + ": " + why + " (zTensor 2.0 §3.5)",
        [&](Writer& w) { return w.Add(name, {8}, U8(), data); }, of_2_0);
  }
}

TEST(Refused, SizesThatDoNotFit) {
  const Bytes data(8);
  const StatusCode code = StatusCode::kInvalidArgument;
  Refuses(code, "tensor 't': component 'data' declares 9 bytes, 8 given",
          [&](Writer& w) { return w.Add("t", {9}, U8(), data); });
  Refuses(code, "tensor 't': 1 components declared, 2 given", [&](Writer& w) {
    return w.Add({.name = "t", .shape = {8}, .components = {{"data", U8()}}}, {data, data});
  });
  Refuses(code, "tensor 't': data has 8 bytes, shape [3] of u16 needs 6", [&](Writer& w) {
    return w.Add({.name = "t", .shape = {3}, .components = {{"data", {DType::kU16}}}}, {data});
  });
  Refuses(code, "tensor 't': component 'x' has 7 bytes, not a whole number of u16 elements",
          [&](Writer& w) {
            return w.Add({.name = "t", .format = "own/1", .components = {{"x", {DType::kU16}}}},
                         {std::span(data).first(7)});
          });
  Refuses(code, "tensor 't': storage is given for 2 of 1 components", [&](Writer& w) {
    return w.Add({.name = "t", .shape = {8}, .components = {{"data", U8()}}}, {data}, {{}, {}});
  });
}

TEST(Refused, WhatTheVersionCannotSay) {
  const Bytes data(8);
  Object group = {.name = "q", .format = "quantized_group", .shape = {8}};
  group.attributes = {{"bits", 8}, {"group_size", 8}};
  group.components = {{"packed_weight", U8()}, {"scales", U8()}};
  Refuses(StatusCode::kInvalidArgument,
          "tensor 'q': version 1.1.0 requires a component 'zeros' in quantized_group",
          [&](Writer& w) { return w.Add(group, {data, data}); }, {.spec = SpecVersion::k1_1});
  Refuses(StatusCode::kInvalidArgument,
          "tensor 'q': version 1.1.0 requires a component 'zeros' in quantized_group",
          [&](Writer& w) { return w.Begin(group).status(); }, {.spec = SpecVersion::k1_1});
  Refuses(StatusCode::kInvalidArgument, "tensor 'q': version 0.1.0 has no format 'quantized_group'",
          [&](Writer& w) { return w.Begin(group).status(); }, {.spec = SpecVersion::k0_1});
}

TEST(Refused, PlansOfAnotherVersion) {
  const Bytes data(8);
  MemorySource source;
  ASSERT_OK(source.Add(*DenseObject("t", {8}, U8()), {data}));
  const auto plan = MakePlan(source, {});
  ASSERT_OK(plan);
  Refuses(StatusCode::kInvalidArgument, "the plan is for version 1.2.0, the writer writes 1.1.0",
          [&](Writer& w) { return w.AddSource(source, *plan); }, {.spec = SpecVersion::k1_1});
}

TEST(Plans, ErrorsNameTheTensorAndItsFile) {
  const Bytes data(8);
  MemorySource source;
  ASSERT_OK(source.Add(*DenseObject("a", {8}, U8()), {data}));
  ASSERT_OK(source.Add(*DenseObject("b", {1}, {DType::kF64}), {data}));
  source.SetFile("model.bin");
  EXPECT_EQ(Why(MakePlan(source, {.rename = [](const std::string&) { return "c"; }})),
            "model.bin: tensor 'b': it and tensor 'a' would both be named 'c'");
}

TEST(Refused, StreamsOfTheWrongSize) {
  const Bytes data(8);
  const auto stream = [&](InlinedVector<Component, 1> components,
                          std::function<Status(ObjectWriter&)> feed) {
    return [=](Writer& w) {
      auto object = w.Begin({.name = "t",
                             .format = components.size() == 1 ? "dense" : "own/1",
                             .shape = {9},
                             .components = components});
      return object.ok() ? feed(**object) : object.status();
    };
  };
  Refuses(StatusCode::kInvalidArgument,
          "tensor 't': component 'data' declares 9 bytes, 8 were appended",
          stream({{"data", U8(), 9}}, [&](ObjectWriter& o) {
            const Status status = o.Append(data);
            return status.ok() ? o.Finish() : status;
          }));
  Refuses(StatusCode::kInvalidArgument,
          "tensor 't': component 'data' declares 9 bytes, 16 were appended",
          stream({{"data", U8(), 9}}, [&](ObjectWriter& o) {
            const Status status = o.Append(data);
            return status.ok() ? o.Append(data) : status;
          }));
  Refuses(StatusCode::kInvalidArgument, "tensor 't': data has 8 bytes, shape [9] of u8 needs 9",
          stream({{"data", U8()}}, [&](ObjectWriter& o) {
            const Status status = o.Append(data);
            return status.ok() ? o.Finish() : status;
          }));
  Refuses(StatusCode::kFailedPrecondition, "tensor 't': component 'b' was never begun",
          stream({{"a", U8()}, {"b", U8()}}, [](ObjectWriter& o) { return o.Finish(); }));
  Refuses(StatusCode::kFailedPrecondition, "tensor 't': there is no further component",
          stream({{"data", U8()}}, [](ObjectWriter& o) { return o.NextComponent(); }));
  Refuses(StatusCode::kInvalidArgument,
          "tensor 't': component 'b' has 1 bytes, not a whole number of f32 elements",
          stream({{"a", U8()}, {"b", {DType::kF32}}}, [&](ObjectWriter& o) {
            Status status = o.NextComponent();
            if (status.ok()) status = o.Append(std::span(data).first(1));
            return status.ok() ? o.Finish() : status;
          }));
}

// A stage of the caller's may change how many bytes a component has, but not from
// what was declared.
TEST(Refused, StagesThatChangeADeclaredSize) {
  class Cut final : public Stage {
   public:
    Status Process(Chunk& chunk) override {
      chunk.Replace(chunk.pool->Take(chunk.bytes().size() / 2));
      return OkStatus();
    }
  };
  const Bytes data(9);
  auto counts = std::make_shared<FaultySink::Counts>();
  auto writer = Must(Writer::Create(std::make_unique<FaultySink>(0, false, counts),
                                    {.stages = {std::make_shared<Cut>()}}));
  (void)writer->Add("t", {9}, U8(), data);
  EXPECT_EQ(Why(writer->Finish()), "tensor 't': component 'data' has 4 bytes, not the declared 9");
  EXPECT_EQ(counts->finished, 0);
}

// An encoding that no codec has, or raw, for what is to be compressed: by every way in.
TEST(Refused, CompressionWithoutACodec) {
  const Bytes data(100);
  struct Case {
    Storage storage;
    std::string says;
  };
  const std::string after = "; choose zstd or byte planes";
  for (const Compression compression : {Compression::kIfGain, Compression::kAlways}) {
    const Case cases[] = {
        {{compression, {}, Encoding::kRaw},
         "tensor 't': it is to be compressed, and its encoding is raw" + after},
        {{compression, {}, static_cast<Encoding>(77)},
         "tensor 't': it is to be compressed, and its encoding is 77, which no codec has" + after}};
    for (const auto& [storage, says] : cases) {
      MemorySource source;
      ASSERT_OK(source.Add(*DenseObject("t", {100}, U8()), {data}));
      EXPECT_THAT(MakePlan(source, {.storage = storage}),
                  Fails(StatusCode::kInvalidArgument, says));
      const auto refused = [&](const auto& use) {
        Bytes file;
        const auto writer = *Writer::Create(MemorySink(file), {.storage = storage});
        EXPECT_THAT(use(*writer), Fails(StatusCode::kInvalidArgument, says));
        EXPECT_EQ(Why(writer->Finish()), says);
      };
      refused([&](Writer& writer) { return writer.Add("t", {100}, U8(), data); });
      refused(
          [&](Writer& writer) { return writer.Begin(*DenseObject("t", {100}, U8())).status(); });
      refused([&, storage = storage](Writer& writer) {  // a plan that was changed by hand
        Plan plan = *MakePlan(source, {});
        plan.objects[0].components[0].storage = storage;
        return writer.AddSource(source, plan);
      });
    }
  }
}

TEST(Order, AnObjectThatIsDroppedFailsTheWriter) {
  Refuses(StatusCode::kFailedPrecondition, "tensor 't': the object was dropped before Finish",
          [](Writer& w) {
            {
              const auto object =
                  w.Begin({.name = "t", .shape = {9}, .components = {{"data", U8()}}});
            }
            return w.Flush();
          });
}

TEST(Order, NothingElseWhileAnObjectIsOpen) {
  Bytes file;
  const Bytes data(8);
  auto writer = Writer::Create(MemorySink(file));
  auto object = Must((*writer)->Begin({.name = "t", .shape = {8}, .components = {{"data", U8()}}}));
  EXPECT_EQ((*writer)->Add("u", {8}, U8(), data).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ((*writer)->Finish().code(), StatusCode::kFailedPrecondition);
  // That was the caller's mistake, and no harm is done.
  ASSERT_OK(object->Append(data));
  ASSERT_OK(object->Finish());
  EXPECT_EQ(object->Finish().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(object->Append(data).code(), StatusCode::kFailedPrecondition);
  ASSERT_OK((*writer)->Finish());
  EXPECT_EQ((*writer)->Finish().code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(file.empty());
}

TEST(Order, AWriterThatIsDroppedLeavesNothing) {
  Bytes file;
  const Bytes data(8);
  {
    auto writer = Writer::Create(MemorySink(file));
    ASSERT_OK((*writer)->Add("t", {8}, U8(), data));
    ASSERT_OK((*writer)->Flush());
    EXPECT_FALSE(file.empty());
  }
  EXPECT_TRUE(file.empty());
}

TEST(Options, ASinkAndStagesThatAreNotThere) {
  EXPECT_THAT(Writer::Create(nullptr),
              Fails(StatusCode::kInvalidArgument, "a writer needs a sink"));
  EXPECT_THAT(Writer::Create(DiscardSink(), {.stages = {nullptr}}),
              Fails(StatusCode::kInvalidArgument, "one of the writer's stages is null"));
}

TEST(Order, AnObjectThatOutlivesItsWriterSaysSo) {
  const Bytes data(8);
  for (const bool begun : {false, true}) {
    Bytes file;
    auto writer = Writer::Create(MemorySink(file), {.threads = 2});
    auto object = (*writer)->Begin({.name = "t", .shape = {16}, .components = {{"data", U8()}}});
    ASSERT_OK(object);
    if (begun) {
      ASSERT_OK((*object)->Append(data));
    }
    writer->reset();
    const std::string gone = "the writer of the object is gone";
    EXPECT_EQ(Why((*object)->Append(data)), gone);
    EXPECT_EQ(Why((*object)->NextComponent()), gone);
    EXPECT_EQ(Why((*object)->Finish()), gone);
    object->reset();
    EXPECT_TRUE(file.empty());
  }
}

TEST(Order, AFinishedObjectMayOutliveItsWriter) {
  const Bytes data(8);
  Bytes file;
  auto writer = Writer::Create(MemorySink(file));
  auto object = (*writer)->Begin({.name = "t", .shape = {8}, .components = {{"data", U8()}}});
  ASSERT_OK((*object)->Append(data));
  ASSERT_OK((*object)->Finish());
  ASSERT_OK((*writer)->Finish());
  writer->reset();
  EXPECT_EQ(Why((*object)->Append(data)), "the object is finished");
  EXPECT_EQ(Why((*object)->Finish()), "the object is finished");
}

// With one thread the batch has failed by then; with several it is still under way.
TEST(Order, AnEarlierErrorCountsBeforeTheCallers) {
  class Slow final : public Stage {
    Status Process(Chunk&) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return InvalidData("the earlier");
    }
  };
  const Bytes data(1 << 20);
  for (const unsigned threads : {1U, 3U}) {
    Bytes file;
    auto writer = Writer::Create(MemorySink(file),
                                 {.threads = threads, .stages = {std::make_shared<Slow>()}});
    (void)(*writer)->Add("t", {data.size()}, U8(), data);
    EXPECT_EQ(Why((*writer)->AddAlias("u", "nobody")), "tensor 't': the earlier");
    EXPECT_EQ(Why((*writer)->Finish()), "tensor 't': the earlier");
  }
}

// A source of one tensor that may misbehave.
class OddSource final : public TensorSource {
 public:
  explicit OddSource(std::uint64_t bytes, bool two = false) {
    file_ = "odd.bin";
    objects_.push_back({.name = "t", .format = "own/1", .components = {{"x", U8(), bytes}}});
    if (two) objects_[0].components.push_back({"y", U8(), bytes});
  }
  std::string_view format() const override { return "odd"; }
  Status Read(ComponentId, std::uint64_t, std::span<std::byte>) override {
    if (throws) throw std::runtime_error("thrown");
    return OkStatus();
  }
  Status Finish() override {
    ++finished;
    return trailing ? InvalidData("odd.bin: trailing bytes") : OkStatus();
  }
  bool throws = false, trailing = false;
  int finished = 0;
};

TEST(Sources, AreFinishedByTheWriter) {
  for (const bool trailing : {false, true}) {
    for (const bool flush : {false, true}) {
      OddSource source(100);
      source.trailing = trailing;
      const auto plan = Must(MakePlan(source, {}));
      Bytes file;
      auto writer = Writer::Create(MemorySink(file));
      ASSERT_OK((*writer)->AddSource(source, plan));
      EXPECT_EQ(source.finished, 0);
      if (flush) (void)(*writer)->Flush();
      const Status status = (*writer)->Finish();
      EXPECT_EQ(source.finished, 1);
      EXPECT_EQ(Why(status), trailing ? "odd.bin: trailing bytes" : "");
      EXPECT_EQ(file.empty(), trailing);
    }
  }
}

TEST(Sources, WhatTheyThrowWhileEqualContentsAreSoughtNamesTensorAndFile) {
  OddSource source(100, true);
  source.throws = true;
  auto plan = Must(MakePlan(source, {.spec = SpecVersion::k2_0}));
  EXPECT_THAT(MakeCanonical(source, plan),
              Fails(StatusCode::kInternal, "odd.bin: tensor 't': thrown"));
}

TEST(Sources, OfUnknownSizeAreRefusedAtOnce) {
  OddSource source(kUnknownSize);
  const auto plan = Must(MakePlan(source, {}));
  Refuses(StatusCode::kInvalidArgument,
          "odd.bin: tensor 't': the source does not know the size of component 'x'; Writer::Begin "
          "takes such bytes",
          [&](Writer& w) { return w.AddSource(source, plan); });
}

TEST(Sources, PlansOfAnotherSourceAreRefused) {
  OddSource source(100);
  auto plan = MakePlan(source, {});
  ASSERT_OK(plan);
  plan->objects[0].components[0].source = {1, 0};
  Refuses(StatusCode::kInvalidArgument,
          "tensor 't': the plan names a component that the source does not have",
          [&](Writer& w) { return w.AddSource(source, *plan); });
  plan->objects[0].components.clear();
  Refuses(StatusCode::kInvalidArgument, "tensor 't': the plan has 0 components, the declaration 1",
          [&](Writer& w) { return w.AddSource(source, *plan); });
  plan->objects[0].object = std::make_shared<Object>(Object{.name = "t"});
  Refuses(StatusCode::kInvalidArgument, "tensor 't': the declaration has no component",
          [&](Writer& w) { return w.AddSource(source, *plan); });
}

// Two large sources: what the first one wrote is not asked for again, nor is the space asked
// while it is written.
TEST(Sources, ASecondOneAsksForBothTogether) {
  class Asked final : public Sink {
   public:
    explicit Asked(std::vector<std::uint64_t>& asked) : asked_(asked) {}
    const std::string& name() const override { return name_; }
    Status Append(Pieces) override { return OkStatus(); }
    Status Reserve(std::uint64_t bytes) override { return asked_.push_back(bytes), OkStatus(); }
    Status Finish(std::uint64_t) override { return OkStatus(); }
    void Abort() override {}

   private:
    std::vector<std::uint64_t>& asked_;
    std::string name_ = "asked";
  };
  const Bytes data(1 << 20);
  MemorySource first, second;
  ASSERT_OK(first.Add(*DenseObject("a", {data.size()}, U8()), {data}));
  ASSERT_OK(second.Add(*DenseObject("b", {data.size()}, U8()), {data}));
  const auto plan_a = MakePlan(first, {}), plan_b = MakePlan(second, {});
  for (const unsigned threads : {1U, 3U}) {
    std::vector<std::uint64_t> asked;
    auto writer = Writer::Create(std::make_unique<Asked>(asked), {.threads = threads});
    ASSERT_OK((*writer)->AddSource(first, *plan_a));
    ASSERT_OK((*writer)->AddSource(second, *plan_b));
    ASSERT_OK((*writer)->Finish());
    EXPECT_EQ(asked, (std::vector<std::uint64_t>{8 + (1 << 20), 8 + (2 << 20)}));
  }
}

// Tiny chunks that wait behind a slow one: what they cost counts, not their four bytes.
TEST(Memory, ManyTinyChunksStayWithinTheWindow) {
  class Count final : public Stage {
   public:
    Status Process(Chunk&) override { return ++passed, OkStatus(); }
    std::atomic<int> passed = 0;
  };
  class SlowSink final : public Sink {
   public:
    SlowSink(const Count& count, int& waiting) : count_(count), waiting_(waiting) {}
    const std::string& name() const override { return name_; }
    Status Append(Pieces) override {
      if (++calls_ == 2) {  // the first one is the header
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        waiting_ = count_.passed;
      }
      return OkStatus();
    }
    Status Finish(std::uint64_t) override { return OkStatus(); }
    void Abort() override {}

   private:
    const Count& count_;
    int& waiting_;
    int calls_ = 0;
    std::string name_ = "slow";
  };
  constexpr int kTensors = 50000;
  const Bytes data(4 * kTensors);
  MemorySource source;
  for (int i = 0; i < kTensors; ++i) {
    const auto at = static_cast<std::size_t>(4 * i);
    ASSERT_OK(source.Add(*DenseObject("t" + std::to_string(i), {4}, U8()),
                         {std::span(data).subspan(at, 4)}));
  }
  const auto plan = Must(MakePlan(source, {}));
  const auto count = std::make_shared<Count>();
  int waiting = 0;
  auto writer = Writer::Create(std::make_unique<SlowSink>(*count, waiting),
                               {.threads = 2, .memory_bytes = 4 << 20, .stages = {count}});
  ASSERT_OK((*writer)->AddSource(source, plan));
  ASSERT_OK((*writer)->Finish());
  EXPECT_EQ(count->passed, kTensors);
  EXPECT_GT(waiting, 0);
  // A page each is what a stage may take for it; half of the memory is the window.
  EXPECT_LT(waiting, (2 << 20) / 4096 + 200);
}

// Numbers that say how many of their kind there are.
struct Counted {
  explicit Counted(int& count) : values(1, 1.0F), alive(&count) { ++*alive; }
  Counted(Counted&& other) noexcept : values(std::move(other.values)), alive(other.alive) {
    ++*alive;
  }
  ~Counted() { --*alive; }
  const float* begin() const { return values.data(); }
  const float* end() const { return values.data() + values.size(); }
  std::vector<float> values;
  int* alive;
};

// What Add is given is not kept until Flush: a million small tensors would take as
// much as their plans.
TEST(Memory, WhatWasAddedGoesWhenItIsWritten) {
  Bytes file;
  int alive = 0;
  {
    const auto writer = *Writer::Create(MemorySink(file), {.threads = 1});
    int most = 0;
    for (int i = 0; i < 10000; ++i) {
      ASSERT_OK(writer->Add("t" + std::to_string(i), {1}, Counted(alive)));
      most = std::max(most, alive);
    }
    EXPECT_LE(most, 256);  // of some batches
    ASSERT_OK(writer->Flush());
    EXPECT_EQ(alive, 0);
    ASSERT_OK(writer->Finish());
    EXPECT_EQ(writer->manifest()->objects.size(), 10000u);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Cancel, FromAnotherThread) {
  for (const unsigned threads : {1U, 4U}) {
    Bytes file;
    std::atomic<int> batches = 0;
    auto writer = Writer::Create(
        MemorySink(file), {.threads = threads, .progress = [&](const Progress&) { ++batches; }});
    std::thread other([&] {
      while (batches < 3) std::this_thread::yield();
      (*writer)->Cancel(Cancelled("enough"));
    });
    auto object =
        (*writer)->Begin({.name = "endless", .shape = {1}, .components = {{"data", U8()}}});
    ASSERT_OK(object);
    const Bytes data(1 << 20);
    Status status;
    while (status.ok()) status = (*object)->Append(data);
    other.join();
    EXPECT_THAT(status, Fails(StatusCode::kCancelled, "enough"));
    EXPECT_EQ(Why((*object)->Finish()), "enough");
    EXPECT_EQ(Why((*writer)->Finish()), "enough");
    EXPECT_TRUE(file.empty());
  }
}

// Fails at a chunk chosen beforehand; 0 is never.
class FaultyStage final : public Stage {
 public:
  explicit FaultyStage(int fail_at) : fail_at_(fail_at) {}
  Status Process(Chunk&) override {
    return ++calls_ == fail_at_ ? IoError("stage broken") : OkStatus();
  }

 private:
  const int fail_at_;
  std::atomic<int> calls_ = 0;
};

// Cancels at random moments while sinks and stages fail at random calls: one error, one abort,
// nothing after it.
TEST(Cancel, AtRandomMomentsWhileSinksAndStagesFail) {
  std::mt19937 random(7);
  int done = 0, cancelled = 0, of_sink = 0, of_stage = 0;
  for (const unsigned threads : {1U, 2U, 3U, 8U}) {
    for (int round = 0; round < 60; ++round) {
      auto counts = std::make_shared<FaultySink::Counts>();
      WriterOptions options = {.threads = threads, .memory_bytes = 1 << 20};
      if (round % 5 == 4) options.storage = {.compression = Compression::kAlways};
      // Of every four rounds two fail at a call that is reached where nobody cancels.
      const int fail_sink = round % 4 == 1 ? 1 + static_cast<int>(random() % 5) : 0;
      const int fail_stage = round % 4 == 2 ? 1 + static_cast<int>(random() % 8) : 0;
      options.stages = {std::make_shared<FaultyStage>(fail_stage)};
      {
        auto writer = Writer::Create(
            std::make_unique<FaultySink>(fail_sink, random() % 2 == 0, counts), std::move(options));
        if (!writer.ok()) {  // the header was the call to fail
          ASSERT_EQ(fail_sink, 1);
          ++of_sink;
          continue;
        }
        // A third is never cancelled, some before they begin, the others on the way.
        const auto moment = std::chrono::microseconds(random() % 4000);
        std::thread canceller([&writer, round, moment] {
          if (round % 3 == 0) return;
          std::this_thread::sleep_for(moment);
          (*writer)->Cancel(Cancelled("enough"));
        });
        if (round % 12 == 1) canceller.join();
        const Status status = UseEverything(**writer);
        if (canceller.joinable()) canceller.join();
        const std::string message(Why(status));
        if (status.ok()) {
          ++done;
        } else if (message == "enough") {
          ASSERT_NE(round % 3, 0);
          ++cancelled;
        } else if (fail_sink != 0) {
          ASSERT_THAT(message, ::testing::MatchesRegex("disk: (tensor '[a-z]+': )?no space"));
          ++of_sink;
        } else {
          ASSERT_NE(fail_stage, 0) << message;
          ASSERT_THAT(message, ::testing::MatchesRegex("tensor '[a-z]+': stage broken"));
          ++of_stage;
        }
        ASSERT_EQ(counts->finished, status.ok() ? 1 : 0);
        if (!status.ok()) {
          ASSERT_EQ(Why((*writer)->Flush()), message);
          ASSERT_EQ(Why((*writer)->Finish()), message);
        }
      }
      ASSERT_EQ(counts->aborted, 1);  // by the writer or, once finished, by the sink's destructor
      ASSERT_EQ(counts->calls_after_abort, 0);
    }
  }
  // A third of the rounds is not cancelled, and every twelfth was before it began.
  EXPECT_GE(done, 20);
  EXPECT_GE(cancelled, 20);
  EXPECT_GE(of_sink, 20);
  EXPECT_GE(of_stage, 20);
}

TEST(Writer, RefusesBytesThatReadersWould) {
  Bytes bools(600'000, std::byte{1});
  bools[500'000] = std::byte{3};
  const auto write = [](const Object& object, const std::vector<Bytes>& components) {
    Bytes file;
    auto writer = *Writer::Create(MemorySink(file), {.threads = 2});
    const std::vector<std::span<const std::byte>> bytes(components.begin(), components.end());
    Status status = writer->Add(object, bytes);
    if (status.ok()) status = writer->Finish();
    EXPECT_EQ(status.ok(), !file.empty());
    return Why(status);
  };
  EXPECT_EQ(write(*DenseObject("b", {bools.size()}, {DType::kBool}), {bools}),
            "tensor 'b': element 500000 of bool is 3, neither 0 nor 1");
  EXPECT_EQ(write(*DenseObject("b", {400'000}, {DType::kBool}), {Bytes(400'000)}), "");
  const auto words = [](const std::vector<std::uint64_t>& values) {
    Bytes out;
    for (const std::uint64_t value : values) {
      for (int i = 0; i < 8; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
    }
    return out;
  };
  const Object csr{
      "m",
      "sparse_csr",
      {2, 5},
      {},
      {{"values", U8(), 3}, {"indices", {DType::kU64}, 24}, {"indptr", {DType::kU64}, 24}}};
  EXPECT_EQ(write(csr, {Bytes(3), words({0, 4, 1}), words({0, 2, 3})}), "");
  EXPECT_EQ(write(csr, {Bytes(3), words({0, 5, 1}), words({0, 2, 3})}),
            "tensor 'm': component 'indices': index 1 is 5, beyond the dimension of 5");
  EXPECT_EQ(write(csr, {Bytes(3), words({0, 4, 1}), words({0, 2, 4})}),
            "tensor 'm': component 'indptr': the last row pointer is 4, there are 3 indices");
}

TEST(Progress, NeverGoesBack) {
  for (const unsigned threads : {1U, 4U}) {
    Bytes file;
    Progress last;
    auto writer =
        Writer::Create(MemorySink(file), {.threads = threads, .progress = [&](const Progress& now) {
                                            EXPECT_GE(now.bytes, last.bytes);
                                            EXPECT_GE(now.tensors, last.tensors);
                                            EXPECT_GE(now.stored_bytes, last.stored_bytes);
                                            last = now;
                                          }});
    const Bytes data(5 << 20);
    for (int i = 0; i < 5; ++i) {
      ASSERT_OK((*writer)->Add(std::to_string(i), {data.size()}, U8(), data));
    }
    ASSERT_OK((*writer)->Finish());
    EXPECT_EQ(last.bytes, 25U << 20);
    EXPECT_EQ(last.bytes_total, 25U << 20);
    EXPECT_EQ(last.tensors, 5U);
    EXPECT_EQ(last.tensors_total, 5U);
    EXPECT_EQ(last.stored_bytes, 25U << 20);
  }
}

}  // namespace
}  // namespace zt
