// GGUF from hostile hands: one clear error each, no crash, no memory beyond what the
// file's size justifies.
#include <malloc.h>
#include <ctime>
#include <new>

#include "testing.h"

import zt.core;
import zt.source;
import zt.convert.gguf;
import zt.convert.layout;

namespace {

// Bytes allocated with new and not yet freed, and the most there were since the last reset.
std::atomic<std::int64_t> g_live = 0, g_peak = 0;

void* Count(void* p) {
  if (p == nullptr) std::abort();
  const std::int64_t live = g_live += static_cast<std::int64_t>(malloc_usable_size(p));
  if (live > g_peak) g_peak = live;
  return p;
}

}  // namespace

void* operator new(std::size_t size) { return Count(std::malloc(size)); }
void operator delete(void* p) noexcept {
  if (p != nullptr) g_live -= static_cast<std::int64_t>(malloc_usable_size(p));
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }

namespace zt {
namespace {

StatusOr<FileLayout> PlanAll(const TensorSource& source) {
  std::vector<std::uint32_t> all(source.objects().size());
  std::iota(all.begin(), all.end(), 0u);
  return PlanGguf(source, all);
}

// Opens, and reads every tensor whole.
Status OpenAndRead(std::span<const std::byte> bytes) {
  auto source = OpenGguf(MemoryBytes(bytes, "memory"));
  if (!source.ok()) return source.status();
  Bytes data(bytes.size());
  for (std::uint32_t i = 0; i < (*source)->objects().size(); ++i) {
    const Object& object = (*source)->objects()[i];
    if (auto status = ValidateObject(object); !status.ok()) return status;
    const std::uint64_t size = object.components[0].bytes;
    EXPECT_LE(size, data.size());
    if (auto status = (*source)->Read({i, 0}, 0, std::span(data).first(size)); !status.ok()) {
      return status;
    }
  }
  // What was read can be planned for writing, or is refused; neither crashes.
  (void)PlanAll(**source);
  return OkStatus();
}

// As OpenAndRead, with the memory it took bounded by the file's size.
Status OpenBounded(std::span<const std::byte> bytes) {
  const std::int64_t before = g_live;
  g_peak = before;
  const Status status = OpenAndRead(bytes);
  EXPECT_LE(g_peak - before, static_cast<std::int64_t>(100 * bytes.size() + (16 << 10)));
  return status;
}

const char* const kFiles[] = {"little.gguf",  "big.gguf",       "kinds.gguf",
                              "kquants.gguf", "kinds_big.gguf", "quants.gguf"};

TEST(GgufHostile, TruncationAnywhereIsAnError) {
  for (const char* name : kFiles) {
    SCOPED_TRACE(name);
    const Bytes file = ReadBytes(DataPath(std::string("gguf/") + name));
    ASSERT_OK(OpenBounded(file));
    auto header = ParseGgufHeader(file, file.size());
    ASSERT_TRUE(header.ok() && header->has_value());
    std::uint64_t end = 0;  // of the last tensor; the padding after it may be missing
    for (const GgufTensor& tensor : (*header)->tensors) {
      end = std::max(end, (*header)->data_offset + tensor.offset + tensor.bytes);
    }
    for (std::size_t size = 0; size < file.size(); ++size) {
      // In the data section of the larger file, not every byte.
      if (size > (*header)->data_offset + 64 && size + 64 < end && size % 61 != 0) continue;
      const Status status = OpenBounded(std::span(file).first(size));
      if (size < end) {
        ASSERT_EQ(status.code(), StatusCode::kDataLoss) << size << ": " << Why(status);
      } else {
        ASSERT_OK(status) << size << ": ";
      }
      // The header alone, its file longer: more is asked for, never made up.
      auto part = Must(ParseGgufHeader(std::span(file).first(size), file.size()));
      ASSERT_EQ(part.has_value(), size >= (*header)->header_bytes) << size;
    }
  }
}

TEST(GgufHostile, AnyByteOfTheHeaderMayBeWrong) {
  std::size_t opened = 0, refused = 0;
  for (const char* name : kFiles) {
    SCOPED_TRACE(name);
    Bytes file = ReadBytes(DataPath(std::string("gguf/") + name));
    auto header = ParseGgufHeader(file, file.size());
    ASSERT_TRUE(header.ok() && header->has_value());
    const std::size_t end = (*header)->header_bytes;
    for (std::size_t i = 0; i < end; ++i) {
      const std::byte held = file[i];
      for (const int change : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff}) {
        file[i] = held ^ static_cast<std::byte>(change);
        const Status status = OpenBounded(file);
        ++(status.ok() ? opened : refused);
        ASSERT_TRUE(status.ok() || status.code() == StatusCode::kDataLoss ||
                    status.code() == StatusCode::kUnimplemented)
            << i << ": " << Why(status);
      }
      file[i] = held;
    }
  }
  EXPECT_GT(opened, 1000u);
  EXPECT_GT(refused, 1000u);
}

// ---- headers by hand ----------------------------------------------------------------------------

class Builder {
 public:
  explicit Builder(std::uint64_t tensors, std::uint64_t pairs, std::uint32_t version = 3) {
    Raw("GGUF").U32(version);
    U64(tensors).U64(pairs);
  }
  Builder& Raw(std::string_view text) {
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    out_.insert(out_.end(), data, data + text.size());
    return *this;
  }
  Builder& U8(std::uint8_t v) { return Put(v); }
  Builder& U32(std::uint32_t v) { return Put(v); }
  Builder& U64(std::uint64_t v) { return Put(v); }
  Builder& Text(std::string_view text) { return U64(text.size()).Raw(text); }
  Builder& KeyU32(std::string_view key, std::uint32_t v) { return Text(key).U32(4).U32(v); }
  Builder& Tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type,
                  std::uint64_t offset) {
    Text(name).U32(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) U64(dim);
    return U32(type).U64(offset);
  }
  // Padded to 32, then `data` bytes.
  std::string Error(std::size_t data = 0) {
    Bytes file = out_;
    if (data > 0) file.resize((file.size() + 31) / 32 * 32 + data);
    const Status status = OpenBounded(file);
    return status.ok() ? "" : Why(status);
  }
  const Bytes& bytes() const { return out_; }

 private:
  template <typename T>
  Builder& Put(T v) {
    std::byte raw[sizeof(T)];
    v = Little(v);
    std::memcpy(raw, &v, sizeof(T));
    out_.insert(out_.end(), raw, raw + sizeof(T));
    return *this;
  }
  Bytes out_;
};

constexpr std::uint64_t kHuge = ~std::uint64_t{0};

TEST(GgufHostile, NoGguf) {
  EXPECT_EQ(Why(OpenAndRead({})),
            "the header is truncated: 8 bytes from 0 are needed, the file has 0");
  EXPECT_EQ(Builder(0, 0, 4).Error(), "GGUF version 4 is not known; 1, 2 and 3 are");
  EXPECT_EQ(Builder(0, 0, 0).Error(), "GGUF version 0 is not known; 1, 2 and 3 are");
  EXPECT_EQ(Builder(0, 0, 0x05000000).Error(), "GGUF version 5 is not known; 1, 2 and 3 are");
  EXPECT_EQ(Builder(0, 0).Error(), "");
  Bytes wrong = Builder(0, 0).bytes();
  wrong[3] = std::byte{'X'};
  EXPECT_EQ(Why(OpenAndRead(wrong)), "it does not begin with GGUF");
  EXPECT_FALSE(LooksLikeGguf(wrong));
  EXPECT_TRUE(LooksLikeGguf(Builder(0, 0).bytes()));
  EXPECT_FALSE(LooksLikeGguf(std::span(wrong).first(3)));
}

TEST(GgufHostile, CountsBeyondTheFile) {
  EXPECT_EQ(Builder(kHuge, 0).Error(),
            "18446744073709551615 tensors are declared, more than the file can hold");
  EXPECT_EQ(Builder(0, 1 << 30).Error(),
            "1073741824 key-value pairs are declared, more than the file can hold");
  EXPECT_EQ(Builder(0, 1).Text("k").U32(9).U32(8).U64(1 << 20).Error(),
            "key 'k': 1048576 array elements are declared, more than the file can hold");
  EXPECT_EQ(
      Builder(0, 1).Text("k").U32(9).U32(4).U64(kHuge / 2).Error(),
      "key 'k': 9223372036854775807 array elements are declared, more than the file can hold");
  EXPECT_THAT(Builder(0, 1).Text("k").U32(8).U64(kHuge).Error(),
              HasSubstr("key 'k': the header is truncated: 18446744073709551615 bytes from"));
}

TEST(GgufHostile, Keys) {
  EXPECT_EQ(Builder(0, 2).KeyU32("k", 1).KeyU32("k", 1).Error(), "key 'k': it occurs twice");
  EXPECT_EQ(Builder(0, 1).KeyU32("", 1).Error(), "key-value pair 0 has an empty key");
  EXPECT_EQ(Builder(0, 1).Text("k").U32(13).U64(0).Error(), "key 'k': value type 13 is not known");
  EXPECT_EQ(Builder(0, 1).Text("k").U32(9).U32(99).U64(0).Error(),
            "key 'k': value type 99 is not known");
  EXPECT_EQ(Builder(0, 1).Text("k").U32(7).U8(2).Error(), "key 'k': a bool is 2, not 0 or 1");
  Builder flags(0, 1);
  flags.Text("k").U32(9).U32(7).U64(65);
  for (int i = 0; i < 64; ++i) flags.U8(1);
  EXPECT_EQ(flags.U8(7).Error(), "key 'k': a bool is neither 0 nor 1");
  Builder nested(0, 1);
  nested.Text("k").U32(9);
  for (int i = 0; i < 9; ++i) nested.U32(9).U64(1);
  EXPECT_EQ(nested.U32(4).U64(0).Error(), "key 'k': arrays are nested more than 8 deep");
}

TEST(GgufHostile, MorePairsThanAnyModelHas) {
  Builder pairs(0, kGgufMaxPairs + 1);
  for (std::uint64_t i = 0; i <= kGgufMaxPairs; ++i) pairs.Text(std::to_string(i)).U32(0).U8(1);
  EXPECT_EQ(pairs.Error(), "it has 262145 key-value pairs, more than 262144");
}

TEST(GgufHostile, NestedArraysAndBytesSurviveTheWayBack) {
  Builder file(0, 3);
  file.Text("nested").U32(9).U32(9).U64(2);
  file.U32(8).U64(1).Text("\xff\xfe");
  file.U32(6).U64(2).U32(0x7fa12345).U32(0x3f800000);  // a signalling NaN with a payload
  file.Text("\xc0key").U32(6).U32(0xffc00001);
  file.Text("empty").U32(9).U32(9).U64(0);
  auto header = ParseGgufHeader(file.bytes(), file.bytes().size());
  ASSERT_TRUE(header.ok() && header->has_value()) << Why(header);
  EXPECT_EQ(*EncodeGgufHeader(**header), file.bytes());
}

TEST(GgufHostile, Alignment) {
  EXPECT_EQ(Builder(0, 1).KeyU32("general.alignment", 0).Error(),
            "key 'general.alignment': 0 is not a power of two up to 1048576");
  EXPECT_EQ(Builder(0, 1).KeyU32("general.alignment", 48).Error(),
            "key 'general.alignment': 48 is not a power of two up to 1048576");
  EXPECT_EQ(Builder(0, 1).KeyU32("general.alignment", 1u << 30).Error(),
            "key 'general.alignment': 1073741824 is not a power of two up to 1048576");
  EXPECT_EQ(Builder(0, 1).Text("general.alignment").U32(10).U64(32).Error(),
            "key 'general.alignment': it is not a u32");
  EXPECT_EQ(Builder(1, 0).Tensor("t", {4}, 0, 16).Error(64),
            "tensor 't': offset 16 is not a multiple of 32");
}

TEST(GgufHostile, Tensors) {
  EXPECT_EQ(Builder(1, 0).Tensor("", {4}, 0, 0).Error(64), "tensor 0 has an empty name");
  EXPECT_EQ(Builder(2, 0).Tensor("t", {4}, 0, 0).Tensor("t", {4}, 0, 32).Error(64),
            "tensor 't': it is declared twice");
  EXPECT_EQ(Builder(1, 0).Tensor("\xff", {4}, 0, 0).Error(64),
            "tensor '\xff': the name is not valid UTF-8");
  EXPECT_EQ(Builder(1, 0).Tensor("t", {1, 1, 1, 1, 1, 1, 1, 1, 1}, 0, 0).Error(64),
            "tensor 't': 9 dimensions, at most 8 are known");
  EXPECT_EQ(Builder(1, 0).Tensor("t", {48}, 2, 0).Error(64),
            "tensor 't': rows of 48 elements are not whole q4_0 blocks of 32");
  EXPECT_EQ(Builder(1, 0).Tensor("t", {}, 8, 0).Error(64),
            "tensor 't': rows of 1 elements are not whole q8_0 blocks of 32");
  EXPECT_EQ(Builder(1, 0).Tensor("t", {1ull << 40, 1ull << 40}, 0, 0).Error(64),
            "tensor 't': shape [1099511627776, 1099511627776] overflows 64 bits");
  EXPECT_EQ(Builder(1, 0).Tensor("t", {1ull << 62}, 0, 0).Error(64),
            "tensor 't': shape [4611686018427387904] overflows 64 bits");
  EXPECT_EQ(Builder(1, 0).Tensor("t", {4}, 4, 0).Error(64),
            "ggml type 4 (q4_2) was removed from GGUF; convert the file with the tool "
            "that wrote it");
  EXPECT_EQ(Builder(1, 0).Tensor("t", {4}, 43, 0).Error(64), "ggml type 43 is not known");
  EXPECT_EQ(Builder(2, 0).Tensor("a", {9}, 0, 0).Tensor("b", {4}, 0, 32).Error(64),
            "tensor 'b' overlaps tensor 'a'");
  EXPECT_EQ(Builder(1, 0).Tensor("t", {4}, 0, 64).Error(64),
            "tensor 't': 16 bytes at offset 64 of the data section lie beyond the end of the file "
            "(128 bytes)");
  EXPECT_THAT(
      Builder(1, 0).Tensor("t", {4}, 0, kHuge - 31).Error(64),
      HasSubstr("tensor 't': 16 bytes at offset 18446744073709551584 of the data section lie "
                "beyond the end of the file"));
  // Empty tensors may lie anywhere and share their place.
  EXPECT_EQ(Builder(3, 0)
                .Tensor("a", {0, 7}, 0, 0)
                .Tensor("b", {0}, 0, 0)
                .Tensor("c", {4}, 0, 0)
                .Error(32),
            "");
}

TEST(GgufHostile, TensorsOfUnknownTypesAreListedAndTheOthersRead) {
  Builder file(4, 0);
  file.Tensor("a", {4}, 0, 0).Tensor("new", {7, 3}, 99, 32).Tensor("b", {4}, 0, 96);
  file.Tensor("old", {4}, 4, 128);
  Bytes bytes = file.bytes();
  bytes.resize((bytes.size() + 31) / 32 * 32 + 150);
  auto source = Must(OpenGguf(MemoryBytes(bytes, "memory")));
  const auto& objects = source->objects();
  ASSERT_EQ(objects.size(), 4u);
  EXPECT_EQ(objects[1].name, "new");
  EXPECT_EQ(objects[1].format, "gguf.type_99/1");
  EXPECT_EQ(objects[1].shape, (Shape{3, 7}));
  EXPECT_EQ(objects[1].components[0].bytes, 64u);
  EXPECT_EQ(objects[3].format, "gguf.type_4/1");
  EXPECT_EQ(objects[3].components[0].bytes, 22u);
  for (std::uint32_t i = 0; i < 4; ++i) {
    Bytes out(objects[i].components[0].bytes);
    const StatusCode want = i % 2 == 0 ? StatusCode::kOk : StatusCode::kUnimplemented;
    EXPECT_EQ(source->CheckReadable(i).code(), want);
    EXPECT_EQ(source->Read({i, 0}, 0, out).code(), want);
  }
  EXPECT_EQ(Why(source->CheckReadable(1)), "ggml type 99 is not known");
  const std::vector<std::uint32_t> known = {0, 2};
  EXPECT_EQ(PlanGguf(*source, known)->pieces.size(), 2u);
}

TEST(GgufHostile, NestedArraysTakeNoMemoryThatTheyDoNotFill) {
  // Each level claims as many arrays as the rest of the file could hold.
  Builder file(0, 1);
  file.Text("k").U32(9);
  for (int i = 0; i < 8; ++i) file.U32(9).U64((1 << 20) / 12 - 100);
  Bytes bytes = file.bytes();
  bytes.resize(bytes.size() + (1 << 20));
  const std::int64_t before = g_live;
  g_peak = before;
  EXPECT_FALSE(OpenAndRead(bytes).ok());
  EXPECT_LT(g_peak - before, (1 << 20) + (64 << 10));  // the header as it was read, and little more
}

TEST(GgufHostile, ArraysWithinArraysAreFew) {
  for (const std::uint64_t count : {1 << 16, (1 << 16) + 1}) {
    Builder file(0, 1);
    file.Text("k").U32(9).U32(9).U64(count);
    for (std::uint64_t i = 0; i < count; ++i) file.U32(4).U64(0);
    Bytes bytes = file.bytes();
    bytes.resize((bytes.size() + 31) / 32 * 32);
    const auto source = OpenGguf(MemoryBytes(bytes, "memory"));
    EXPECT_EQ(source.ok(), count <= 1 << 16) << source.status();
    if (!source.ok()) {
      EXPECT_THAT(source,
                  Fails(StatusCode::kUnimplemented, HasSubstr("65536 arrays within arrays")));
    }
  }
}

TEST(GgufHostile, BlocksOfUncertainByteOrderAreRefused) {
  GgufHeader header;
  header.big_endian = true;
  header.tensors.push_back({"t", *FindGgmlType("q5_0"), {32}, 0, 22});
  Bytes file = *EncodeGgufHeader(header);
  file.resize(file.size() + 64);
  EXPECT_THAT(
      OpenAndRead(file),
      Fails(StatusCode::kUnimplemented,
            HasSubstr("the byte order of q5_0 blocks in a big-endian file is not certain")));
}

TEST(GgufHostile, CertainBlocksAreSwappedByField) {
  struct Case {
    const char* type;
    std::vector<std::size_t> halves;
  };
  for (const auto& [type, halves] : {Case{"q4_0", {0}}, Case{"q8_0", {0}}, Case{"q4_k", {0, 2}},
                                     Case{"q6_k", {208}}, Case{"mxfp4", {}}}) {
    SCOPED_TRACE(type);
    GgufHeader header;
    header.big_endian = true;
    const GgmlType ggml = *FindGgmlType(type);
    header.tensors.push_back({"t", ggml, {ggml.elems * 3ull}, 0, ggml.bytes * 3ull});
    Bytes file = *EncodeGgufHeader(header);
    file.resize((file.size() + 31) / 32 * 32);
    const std::size_t start = file.size();
    for (std::size_t i = 0; i < ggml.bytes * 3; ++i) file.push_back(static_cast<std::byte>(i));
    auto source = Must(OpenGguf(MemoryBytes(file, "memory")));
    Bytes want(file.begin() + static_cast<long>(start), file.end());
    for (std::size_t block = 0; block < 3; ++block) {
      for (const std::size_t at : halves) {
        std::swap(want[block * ggml.bytes + at], want[block * ggml.bytes + at + 1]);
      }
    }
    Bytes got(want.size());
    ASSERT_OK(source->Read({0, 0}, 0, got));
    EXPECT_EQ(got, want);
    // Ranges that cut blocks.
    for (std::size_t at = 0; at < want.size(); at += 5) {
      Bytes part(std::min<std::size_t>(ggml.bytes + 3, want.size() - at));
      ASSERT_OK(source->Read({0, 0}, at, part));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), want.begin() + static_cast<long>(at))) << at;
    }
  }
}

TEST(GgufHostile, LargeTokenizerOpensInMilliseconds) {
  constexpr int kTokens = 200'000;
  Builder file(0, 3);
  file.Text("tokenizer.ggml.tokens").U32(9).U32(8).U64(kTokens);
  for (int i = 0; i < kTokens; ++i) file.Text("token" + std::to_string(i));
  file.Text("tokenizer.ggml.scores").U32(9).U32(6).U64(kTokens);
  for (int i = 0; i < kTokens; ++i) file.U32(0x3f800000);
  file.Text("tokenizer.ggml.token_type").U32(9).U32(5).U64(kTokens);
  for (int i = 0; i < kTokens; ++i) file.U32(1);
  const std::clock_t start = std::clock();
  auto source = OpenGguf(MemoryBytes(file.bytes(), "memory"));
  const double took = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_OK(source);
  std::printf("%d tokens, %zu bytes: %.1f ms of CPU time\n", kTokens, file.bytes().size(), took);
  EXPECT_LT(took, 2000);  // far above what it takes, for sanitizers on a busy machine
  auto layout = Must(PlanAll(**source));
  EXPECT_EQ(layout.end, file.bytes());
}

}  // namespace
}  // namespace zt
