// Memory that runs out at every allocation in turn: an error, no exception, nothing published.
#include <new>

#include "testing.h"

import zt;

// Counts down to the allocation of this thread that fails; below zero none does.
thread_local long g_left = -1;
thread_local bool g_once = false;  // it alone fails

void* operator new(std::size_t size) {
  if (g_left == 0) {
    if (g_once) g_left = -1;
    throw std::bad_alloc();
  }
  if (g_left > 0) --g_left;
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace zt {
namespace {

// Counts what becomes of the output, and needs no memory for it.
class CountingSink final : public Sink {
 public:
  explicit CountingSink(int& finished) : finished_(finished) {}
  const std::string& name() const override { return name_; }
  Status Append(Pieces) override { return OkStatus(); }
  Status Finish(std::uint64_t) override { return ++finished_, OkStatus(); }
  void Abort() override {}

 private:
  int& finished_;
  const std::string name_ = "counted";
};

// Of every kind that takes memory.
Value::Map Tree() {
  const Value text = "a text that is longer than a short string";
  return {{"a key that is longer than a short string", Value::Array{text, 1, Value::Bytes(100)}},
          {"map", Value::Map{{"deeper", Value::Array{text, text, Value::Map{{"k", text}}}}}}};
}

struct Outcome {
  Status status;
  int finished = 0;
};

// Uses a writer in every way; memory runs out `after` so many allocations and stays out.
Outcome UseWriter(long after) {
  static const Bytes data(600 << 10);
  MemorySource source;
  Object attributed = *DenseObject("planned", {data.size()}, {DType::kU8});
  attributed.attributes = Tree();
  (void)source.Add(std::move(attributed), {data});
  source.SetAttributes(Tree());
  const Plan plan = *MakePlan(source, {});
  Outcome outcome;
  auto writer = *Writer::Create(std::make_unique<CountingSink>(outcome.finished));
  Object streamed = {
      .name = "streamed", .shape = {data.size()}, .components = {{"data", {DType::kU8}}}};
  Object added = {.name = "added", .shape = {100}, .components = {{"data", {DType::kU8}}}};
  std::vector<std::span<const std::byte>> bytes = {std::span(data).first(100)};
  std::string alias = "a name that is longer than a short string";

  g_left = after;
  Status status = writer->AddSource(source, plan);
  if (status.ok()) status = writer->Add(std::move(added), std::move(bytes));
  if (status.ok()) status = writer->AddAlias(std::move(alias), "added");
  if (status.ok()) {
    auto object = writer->Begin(std::move(streamed));
    status = object.status();
    if (status.ok()) status = (*object)->Append(data);
    if (status.ok()) status = (*object)->Finish();
  }
  if (status.ok()) status = writer->Finish();
  g_left = -1;
  outcome.status = status;
  return outcome;
}

TEST(OutOfMemory, ACopyOfATreeTakesNone) {
  const Value tree(Tree());
  g_left = 0;
  const Value copy(tree);
  Value assigned;
  assigned = tree;
  g_left = -1;
  EXPECT_EQ(copy, Value(Tree()));
  EXPECT_EQ(assigned, Value(Tree()));
}

TEST(OutOfMemory, ACopyOfATextFailsWhole) {
  const Value text = "a text that is longer than a short string";
  Value kept(Value::Array{"what was there", 2});
  const Value before(kept);
  for (long after = 0; after < 2; ++after) {
    bool failed = false;
    try {
      g_left = after;
      const Value copy(text);
      kept = text;
      g_left = -1;
    } catch (const std::bad_alloc&) {
      g_left = -1;
      failed = true;
    }
    EXPECT_TRUE(failed) << after;
    EXPECT_EQ(kept, before);
  }
  kept = text;
  EXPECT_EQ(kept, text);
}

TEST(OutOfMemory, AtEveryAllocationOfTheCallersThread) {
  long failures = 0;
  for (long after = 0;; ++after) {
    ASSERT_LT(after, 20000);
    const Outcome outcome = UseWriter(after);
    if (outcome.status.ok()) {
      EXPECT_EQ(outcome.finished, 1);
      break;
    }
    ++failures;
    ASSERT_EQ(outcome.finished, 0) << after;
    ASSERT_EQ(Why(outcome.status), "out of memory") << after;
  }
  EXPECT_GT(failures, 50);
}

TEST(OutOfMemory, AtEveryAllocationOfCreate) {
  long failures = 0;
  for (long after = 0;; ++after) {
    ASSERT_LT(after, 20000);
    int finished = 0;
    std::unique_ptr<Sink> sink = std::make_unique<CountingSink>(finished);
    g_left = after;
    auto writer = Writer::Create(std::move(sink), {.threads = 4});
    g_left = -1;
    if (writer.ok()) {
      EXPECT_OK((*writer)->Finish());
      EXPECT_EQ(finished, 1);
      break;
    }
    ++failures;
    ASSERT_EQ(Why(writer), "out of memory") << after;
    ASSERT_EQ(writer.status().code(), StatusCode::kUnavailable) << after;
  }
  EXPECT_GT(failures, 50);
}

// Memory that runs out for one allocation alone: fewer workers are no error.
TEST(OutOfMemory, AtOneAllocationOfCreate) {
  for (long after = 0; after < 200; ++after) {
    int finished = 0;
    std::unique_ptr<Sink> sink = std::make_unique<CountingSink>(finished);
    g_once = true;
    g_left = after;
    const auto writer = Writer::Create(std::move(sink), {.threads = 4});
    g_left = -1;
    g_once = false;
    if (!writer.ok()) {
      ASSERT_EQ(Why(writer), "out of memory") << after;
      continue;
    }
    EXPECT_OK((*writer)->Finish());
    EXPECT_EQ(finished, 1);
  }
}

}  // namespace
}  // namespace zt
