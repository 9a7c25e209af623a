// zt.convert.npy — .npy files: headers, types, byte order, Fortran order, pipes, folders.
#include <unistd.h>

#include "npy_files.h"
#include "pipe.h"

import zt.convert.npy;
import zt.core;
import zt.source;

namespace zt {
namespace {

StatusOr<std::unique_ptr<TensorSource>> OpenText(std::string_view file, InputOptions options = {}) {
  return OpenNpy(MemoryBytes(BytesOf(file), "f.npy"), "x", options);
}

// The whole component in pieces of `piece` bytes.
StatusOr<std::string> ReadAll(TensorSource& source, ComponentId id = {},
                              std::size_t piece = ~std::size_t{0}) {
  const std::uint64_t size = source.objects()[id.object].components[id.component].bytes;
  std::string out(size, '\xcc');
  for (std::uint64_t at = 0; at < size;) {
    const auto step = std::min<std::uint64_t>(piece, size - at);
    auto part = std::as_writable_bytes(std::span(out)).subspan(at, step);
    if (Status status = source.Read(id, at, part); !status.ok()) return status;
    at += step;
  }
  return out;
}

struct Failure {
  StatusCode code;
  std::string message;
};
Failure Fail(std::string_view file, InputOptions options = {}) {
  auto source = OpenText(file, options);
  if (source.ok()) return {StatusCode::kOk, ""};
  return {source.status().code(), Why(source)};
}
#define EXPECT_FAILS(file, expected_code, expected_message)      \
  do {                                                           \
    const Failure failure = Fail(file);                          \
    EXPECT_EQ(failure.code, StatusCode::expected_code);          \
    EXPECT_EQ(failure.message, "tensor 'x': " expected_message); \
  } while (false)

TEST(Npy, EveryNumericType) {
  const std::vector<std::pair<std::string, std::string>> types = {
      {"|b1", "bool"}, {"b1", "bool"}, {"|u1", "u8"},        {"<u1", "u8"},
      {"|i1", "i8"},   {"<u2", "u16"}, {"<i2", "i16"},       {"<u4", "u32"},
      {"<i4", "i32"},  {"<u8", "u64"}, {"<i8", "i64"},       {"<f2", "f16"},
      {"<f4", "f32"},  {"<f8", "f64"}, {"<c8", "complex64"}, {"<c16", "complex128"}};
  for (const auto& [descr, name] : types) {
    const auto element = ParseElementType(name);
    const std::uint64_t bytes = *DenseBytes(Shape{2}, *element);
    const std::string data = std::string("0123456789abcdefghijklmnopqrstuv").substr(0, bytes);
    const std::string file = Npy(descr, "(2,)", data);
    auto source = Must(OpenText(file));
    EXPECT_EQ(source->objects()[0].components[0].element, *element);
    EXPECT_EQ(*ReadAll(*source), data);
    const auto extent = source->extent({});
    ASSERT_TRUE(extent);
    EXPECT_EQ(extent->offset, file.size() - bytes);
    EXPECT_EQ(extent->length, bytes);
  }
}

// np.dtype takes them, and numpy never writes them.
TEST(Npy, OtherNamesOfTypes) {
  const std::vector<std::pair<std::string, std::string>> types = {
      {"?", "bool"},       {"bool", "bool"},
      {"b", "i8"},         {"B", "u8"},
      {"int8", "i8"},      {"h", "i16"},
      {"int16", "i16"},    {"H", "u16"},
      {"<i", "i32"},       {"uint32", "u32"},
      {"q", "i64"},        {"Q", "u64"},
      {"e", "f16"},        {"float16", "f16"},
      {"float32", "f32"},  {"f", "f32"},
      {"d", "f64"},        {"float", "f64"},
      {"F", "complex64"},  {"complex64", "complex64"},
      {"D", "complex128"}, {"complex128", "complex128"},
      {"=f4", "f32"},      {"f4", "f32"}};
  for (const auto& [descr, name] : types) {
    const auto element = ParseElementType(name);
    const std::string data =
        std::string("0123456789abcdefghijklmnopqrstuv").substr(0, *DenseBytes(Shape{2}, *element));
    const std::string file = Npy(descr, "(2,)", data);
    auto source = Must(OpenText(file));
    EXPECT_EQ(source->objects()[0].components[0].element, *element);
    EXPECT_EQ(*ReadAll(*source), data);
    if (ByteWidth(element->dtype) == 1 || descr[0] == '<') {
      EXPECT_THAT(source->warnings(), ElementsAre());
    } else {
      EXPECT_THAT(
          source->warnings(),
          ElementsAre("dtypes that do not say their byte order are read as little-endian: 'x' ('" +
                      descr + "')"));
    }
  }
  EXPECT_EQ(*ReadAll(*Must(OpenText(Npy(">h", "(1,)", "ab")))), "ba");
}

TEST(Npy, BigEndianIsSwappedByComponent) {
  const std::string complex = Npy(">c16", "(1,)", "01234567abcdefgh");
  auto source = OpenText(complex);
  ASSERT_OK(source);
  EXPECT_EQ(*ReadAll(**source), "76543210hgfedcba");
  EXPECT_FALSE((*source)->extent({}));
  const std::string half = Npy(">f2", "(3,)", "abcdef");
  source = OpenText(half);
  for (const std::size_t piece : {1u, 2u, 3u, 5u, 6u}) {
    EXPECT_EQ(*ReadAll(**source, {}, piece), "badcfe");
  }
}

TEST(Npy, TypesThatCannotBe) {
  for (const char* const descr : {"g", "longdouble", "<G"}) {
    EXPECT_THAT(Fail(Npy(descr, "(0,)", "")).message, HasSubstr("long double (dtype '"));
  }
  EXPECT_FAILS(Npy("U", "(1,)", ""), kUnimplemented, "string arrays (dtype 'U') are not supported");
  for (const std::string descr : {"l", "<L", "p", "P", "long", "int", "uint", "intp"}) {
    EXPECT_FAILS(
        Npy(descr, "(1,)", "12345678"), kUnimplemented,
        "dtype '" + descr + "' has another size on other systems; save it as int32 or int64");
  }
  EXPECT_FAILS(Npy("c", "(1,)", "a"), kUnimplemented,
               "string arrays (dtype 'c') are not supported");
  EXPECT_FAILS(Npy("|S3", "(1,)", "abc"), kUnimplemented,
               "string arrays (dtype '|S3') are not supported");
  EXPECT_FAILS(Npy("<m8[ns]", "(1,)", "12345678"), kUnimplemented,
               "date and time arrays (dtype '<m8[ns]') are not supported; view them as int64");
  EXPECT_FAILS(Npy("<c32", "(1,)", ""), kUnimplemented,
               "long double (dtype '<c32') differs from machine to machine; save it as float64");
  EXPECT_FAILS(Npy("<f3", "(1,)", "abc"), kUnimplemented, "dtype '<f3' is not supported");
  EXPECT_FAILS(Npy("<x4", "(1,)", "abcd"), kDataLoss,
               "the header's descr '<x4' is not a numpy type");
  EXPECT_FAILS(Npy("", "(1,)", "abcd"), kDataLoss, "the header's descr '' is not a numpy type");
  EXPECT_FAILS(Npy("<f4x", "(1,)", "abcd"), kDataLoss,
               "the header's descr '<f4x' is not a numpy type");
  EXPECT_FAILS(Npy("<f99999999999999999999999", "(1,)", "abcd"), kDataLoss,
               "the header's descr '<f99999999999999999999999' is not a numpy type");
  EXPECT_FAILS(
      NpyRaw("{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (1,)}", "12345678"),
      kUnimplemented, "structured arrays are not supported; save each field as an array");
}

TEST(Npy, VoidNeedsATypeOfItsWidth) {
  const std::string v2 = Npy("<V2", "(2,)", "abcd"), v1 = Npy("|V1", "(2,)", "ab"),
                    f1 = Npy("<f1", "(2,)", "ab");
  EXPECT_FAILS(
      v2, kUnimplemented,
      "dtype '<V2' does not state the element type (numpy saves bfloat16 and fp8 like this)");
  const InputOptions bf16{.void_type = ParseElementType("bf16")};
  const InputOptions fp8{.void_type = ParseElementType("f8_e5m2")};
  auto source = Must(OpenText(v2, bf16));
  EXPECT_EQ(source->objects()[0].components[0].element.dtype, DType::kBF16);
  EXPECT_EQ(*ReadAll(*source), "abcd");
  for (const std::string& file : {v1, f1}) {
    source = Must(OpenText(file, fp8));
    EXPECT_EQ(Name(source->objects()[0].components[0].element), "f8_e5m2");
    EXPECT_EQ(*ReadAll(*source), "ab");
  }
  EXPECT_EQ(Fail(v1, bf16).message,
            "tensor 'x': dtype '|V1': its elements have 1 byte, the type bf16 that was named for "
            "such arrays has not");
  EXPECT_EQ(Fail(v2, fp8).code, StatusCode::kUnimplemented);
  EXPECT_EQ(Fail(v1, {.void_type = ParseElementType("f4_e2m1")}).message,
            "tensor 'x': dtype '|V1' cannot be read as f4_e2m1");
  EXPECT_EQ(Fail(Npy(">V2", "(2,)", "abcd"), bf16).code, StatusCode::kUnimplemented);
}

TEST(Npy, HeadersAsPythonWouldReadThem) {
  const std::vector<std::string> same = {
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
      "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f4\"}",
      "  { u'descr' : u'<f4' ,\n'fortran_order':False,\t'shape':(2L, 3L,)}  \n",
      "{'shape': (2, +3), 'descr': ('<f4'), 'fortran_order': (False),}"};
  for (const std::string& header : same) {
    for (const int major : {1, 2, 3}) {
      const std::string file = NpyRaw(header, std::string(24, 'x'), major);
      auto source = Must(OpenText(file));
      EXPECT_THAT(source->objects()[0].shape, ElementsAre(2, 3)) << header;
    }
  }
  const std::string scalar = Npy("<f4", "()", "abcd");
  auto source = Must(OpenText(scalar));
  EXPECT_TRUE(source->objects()[0].shape.empty());
  EXPECT_EQ(*ReadAll(*source), "abcd");
  const std::string empty = Npy("<f4", "(0, 18446744073709551615, 3)", "", true);
  source = Must(OpenText(empty));
  EXPECT_EQ(source->objects()[0].components[0].bytes, 0u);
}

TEST(Npy, MalformedHeaders) {
  const auto fails = [](std::string_view header, std::string_view reason) {
    const std::string file = NpyRaw(header, std::string(64, 'x'));
    const Failure failure = Fail(file);
    EXPECT_EQ(failure.code, StatusCode::kDataLoss) << header;
    EXPECT_EQ(failure.message, "tensor 'x': " + std::string(reason)) << header;
  };
  const auto literal = [&](std::string_view header, std::string_view what, int at) {
    fails(header, "the header is not a Python literal: " + std::string(what) + " at character " +
                      std::to_string(at));
  };
  literal("", "the end", 0);
  literal("{'descr': '<f4'", "no ',' between items", 15);
  literal("{'descr' '<f4'}", "no ':' after a key", 9);
  literal("{'descr': '<f4", "an open string", 14);
  literal("{'descr': true}", "an unknown word", 10);
  literal("{} x", "text after the literal", 3);
  literal("{'a': 1.5}", "no integer", 7);
  literal("{'a': -}", "a sign without a number", 7);
  fails("{'a': 'x\\n'}", "unknown header key 'a'");
  literal(std::string(2000, '('), "nesting too deep", 33);
  literal("{'a': __import__('os')}", "an unknown word", 6);
  fails("[]", "the header is not a dictionary");
  fails("{1: 2}", "a header key is not a string");
  fails("{'descr': '<f4', 'fortran_order': False}", "the header lacks 'shape'");
  fails("{'descr': '<f4', 'shape': (1,)}", "the header lacks 'fortran_order'");
  fails("{'fortran_order': False, 'shape': (1,)}", "the header lacks 'descr'");
  fails("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
        "unknown header key 'x'");
  fails("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': (1,)}",
        "header key 'shape' is given twice");
  fails("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "the header's fortran_order is neither True nor False");
  fails("{'descr': 4, 'fortran_order': False, 'shape': (1,)}",
        "the header's descr is not a string");
  fails("{'descr': '<f4', 'fortran_order': False, 'shape': (3)}",
        "the header's shape is not a tuple");
  fails("{'descr': '<f4', 'fortran_order': False, 'shape': [3]}",
        "the header's shape is not a tuple");
  fails("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}", "a dimension is negative");
  fails("{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}",
        "the header's shape holds something other than integers");
  fails("{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616,)}",
        "the header holds a number beyond 64 bits");
  fails("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
        "shape [4294967296, 4294967296] overflows 64 bits");
  fails("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387903,)}",
        "shape [4611686018427387903] overflows 64 bits");
  fails(std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}\0", 56),
        "the header is not a Python literal: text after the literal at character 55");
}

TEST(Npy, VersionsAndLimits) {
  std::string file = Npy("<f4", "(1,)", "abcd");
  file[6] = 4;
  EXPECT_FAILS(file, kUnimplemented, "npy version 4.0 is not supported (1.0, 2.0 and 3.0 are)");
  file[6] = 1, file[7] = 1;
  EXPECT_FAILS(file, kUnimplemented, "npy version 1.1 is not supported (1.0, 2.0 and 3.0 are)");
  file[0] = 'x';
  EXPECT_FAILS(file, kDataLoss, "it is not an npy array: the magic is missing");
  const std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
  EXPECT_OK(OpenText(NpyRaw(dict + std::string(10000 - dict.size(), ' '), "abcd", 2)));
  EXPECT_FAILS(
      NpyRaw(dict + std::string(10001 - dict.size(), ' '), "abcd", 2), kUnimplemented,
      "the npy header has 10001 characters; as in numpy, at most 10000 are read: save each "
      "field as an array");
  // A header length that lies must not be believed before it is checked.
  EXPECT_FAILS(std::string("\x93NUMPY\x02\0\xff\xff\xff\xff", 12), kDataLoss,
               "its header ends at byte 4294967307, the file at byte 12; it is truncated");
  std::string ones = "(";
  for (int i = 0; i < 65; ++i) ones += "1, ";
  EXPECT_FAILS(Npy("<f4", ones + ")", "abcd"), kDataLoss, "rank 65 exceeds 64");
}

TEST(Npy, TruncatedAtEveryByte) {
  const std::string file = ReadFile(DataPath("npy/f2_big_fortran.npy"));
  for (std::size_t size = 0; size < file.size(); ++size) {
    const Failure failure = Fail(std::string_view(file).substr(0, size));
    EXPECT_EQ(failure.code, StatusCode::kDataLoss) << size;
    EXPECT_THAT(failure.message, HasSubstr("truncated")) << size;
  }
  EXPECT_EQ(Fail(file).code, StatusCode::kOk);
}

TEST(Npy, BytesAfterTheArrayAreAnError) {
  EXPECT_FAILS(Npy("<f4", "(1,)", "abcde"), kDataLoss,
               "bytes follow the array, which ends at byte 132; files of several arrays are not "
               "supported");
}

TEST(Npy, LooksLike) {
  EXPECT_TRUE(LooksLikeNpy(BytesOf("\x93NUMPY\x01")));
  EXPECT_FALSE(LooksLikeNpy(BytesOf("\x93NUMP")));
}

// ---- Fortran order ----

struct FortranCase {
  Shape shape;
  int width;
};

std::string ShapeText(const Shape& shape) {
  std::string text = "(";
  for (const std::uint64_t dim : shape) text += std::to_string(dim) + ", ";
  return text + ")";
}

// Column-major bytes whose element n (in C order) is n, and the same in C order.
struct Orders {
  std::string fortran, c;
};
Orders BothOrders(const Shape& shape, int width) {
  const std::uint64_t count = *ElementCount(shape);
  Orders orders{std::string(count * width, '\0'), ""};
  for (std::uint64_t n = 0; n < count; ++n) {
    std::uint64_t rest = n, at = 0, stride = count;
    for (std::size_t k = shape.size(); k-- > 0;) {
      stride /= shape[k];  // product of the dimensions before k
      at += rest % shape[k] * stride;
      rest /= shape[k];
    }
    std::string element = Le(n * 0x9e3779b97f4a7c15, std::min(width, 8));
    if (width == 16) element += Le(n, 8);
    orders.c += element;
    std::memcpy(orders.fortran.data() + at * width, element.data(), width);
  }
  return orders;
}

const char* DescrOfWidth(int width) {
  return width == 1 ? "|u1" : width == 2 ? "<i2" : width == 4 ? "<f4" : width == 8 ? "<i8" : "<c16";
}

TEST(NpyFortran, AnyShapeAnyLimitAnyRange) {
  const std::vector<FortranCase> cases = {
      {{2, 3}, 4},       {{3, 2}, 1},          {{1, 5}, 8},           {{5, 1}, 8},
      {{7, 11, 13}, 2},  {{3, 3, 40, 50}, 4},  {{2, 1, 3, 1, 4}, 16}, {{1000, 3}, 8},
      {{3, 1000}, 8},    {{2, 3, 4, 5, 6}, 1}, {{130, 70}, 4},        {{4, 1, 1, 2000}, 2},
      {{3000, 2, 2}, 4}, {{2, 3000, 2}, 4},    {{2, 2, 3000}, 4},     {{64, 64, 3}, 16}};
  std::mt19937_64 random(7);
  for (const auto& [shape, width] : cases) {
    const Orders orders = BothOrders(shape, width);
    const std::string file = Npy(DescrOfWidth(width), ShapeText(shape), orders.fortran, true);
    for (const std::uint64_t limit : {0, 1, 100, 1000, 5000, 30000, 1 << 20, 1 << 26}) {
      auto source = Must(OpenText(file, {.memory_limit = limit}));
      EXPECT_EQ(source->objects()[0].shape, shape);
      ASSERT_EQ(*ReadAll(*source), orders.c) << ToString(shape) << " limit " << limit;
      ASSERT_EQ(*ReadAll(*source, {}, 1 + random() % orders.c.size()), orders.c)
          << ToString(shape) << " limit " << limit;
      for (int i = 0; i < 20; ++i) {
        const std::size_t from = random() % (orders.c.size() + 1);
        std::string part(random() % (orders.c.size() - from + 1), '\0');
        ASSERT_OK(source->Read({}, from, std::as_writable_bytes(std::span(part))));
        ASSERT_EQ(part, orders.c.substr(from, part.size())) << ToString(shape) << " " << limit;
      }
    }
  }
}

TEST(NpyFortran, ThreadsReadWhatOneReads) {
  const Shape shape{300, 7, 90};
  const Orders orders = BothOrders(shape, 8);
  const std::string file = Npy("<i8", ShapeText(shape), orders.fortran, true);
  auto source = Must(OpenText(file, {.memory_limit = 100000}));
  EXPECT_FALSE(source->sequential({}));
  EXPECT_THAT(ReadByThreads(*source, orders.c.size(), 4099), ::testing::Pair(orders.c, 0));
}

// ---- pipes ----

TEST(NpyPipe, ReadsInOrder) {
  const std::string data(200000, 'q');
  for (const char* descr : {"<f4", ">f4"}) {
    Pipe pipe(Npy(descr, "(50000,)", data));
    auto bytes = *OpenDescriptor(pipe.descriptor(), "standard input");
    EXPECT_TRUE(LooksLikeNpy(*Peek(*bytes, 8)));
    auto source = Must(OpenNpy(bytes, "in"));
    EXPECT_TRUE(source->sequential({}));
    EXPECT_FALSE(source->seekable());
    // A pipe cannot go back to the element that a range ended within, to swap it.
    EXPECT_EQ(*ReadAll(*source, {}, descr[0] == '<' ? 4097 : 4096), data);
    EXPECT_OK(source->Finish());
  }
}

TEST(NpyPipe, TrailingAndMissingBytes) {
  {
    Pipe pipe(Npy("<f4", "(2,)", "12345678!"));
    auto source = Must(OpenNpy(*OpenDescriptor(pipe.descriptor(), "standard input"), "in"));
    EXPECT_EQ(*ReadAll(*source), "12345678");
    EXPECT_THAT(source->Finish(),
                Fails(StatusCode::kDataLoss, HasSubstr("standard input: bytes follow the array")));
  }
  Pipe pipe(Npy("<f4", "(2,)", "1234567"));
  auto source = Must(OpenNpy(*OpenDescriptor(pipe.descriptor(), "standard input"), "in"));
  EXPECT_THAT(ReadAll(*source), Fails(StatusCode::kDataLoss, HasSubstr("it ends at byte 135")));
}

TEST(NpyPipe, FortranOrderIsHeldOrRefused) {
  const Shape shape{50, 40};
  const Orders orders = BothOrders(shape, 4);
  const std::string file = Npy("<f4", ShapeText(shape), orders.fortran, true);
  {
    Pipe pipe(file);
    auto source = Must(OpenNpy(*OpenDescriptor(pipe.descriptor(), "standard input"), "in",
                               {.memory_limit = 16000}));
    EXPECT_EQ(*ReadAll(*source, {}, 333), orders.c);
    EXPECT_OK(source->Finish());
  }
  Pipe pipe(file);
  EXPECT_THAT(
      OpenNpy(*OpenDescriptor(pipe.descriptor(), "standard input"), "in", {.memory_limit = 15999}),
      Fails(StatusCode::kUnimplemented,
            "tensor 'in': it is in Fortran order, and its 8000 bytes cannot be read "
            "twice here (a pipe or a deflated entry): they would have to be held, and half the "
            "memory limit is 7999; give an uncompressed file"));
}

// ---- folders ----

class NpyFolder : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& content) {
    WriteFile(folder_ / name, content);
  }
  const TempFolder folder_;
};

TEST_F(NpyFolder, FilesByName) {
  Write("b.npy", Npy("<f4", "(1,)", "bbbb"));
  Write("a.weight.npy", Npy("<f4", "(1,)", "aaaa"));
  Write("README", "x");
  std::filesystem::create_directory(folder_ / "deeper.npy");
  auto source = Must(OpenNpyFolder(folder_.path()));
  ASSERT_EQ(source->objects().size(), 2u);
  EXPECT_EQ(source->objects()[0].name, "a.weight");
  EXPECT_EQ(source->objects()[1].name, "b");
  EXPECT_EQ(*ReadAll(*source, {0, 0}), "aaaa");
  EXPECT_EQ(*ReadAll(*source, {1, 0}), "bbbb");
  EXPECT_TRUE(source->warnings().empty());
}

TEST_F(NpyFolder, MoreFilesThanMayBeOpen) {
  for (int i = 0; i < 300; ++i) {
    Write("t" + std::to_string(1000 + i) + ".npy", Npy("<u2", "(1,)", Le(i, 2)));
  }
  auto source = Must(OpenNpyFolder(folder_.path()));
  ASSERT_EQ(source->objects().size(), 300u);
  const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                  std::filesystem::directory_iterator());
  EXPECT_LT(open, 100);
  for (std::uint32_t i = 0; i < 300; ++i) EXPECT_EQ(*ReadAll(*source, {i, 0}), Le(i, 2));
}

TEST_F(NpyFolder, ErrorsNameTheFile) {
  EXPECT_EQ(Why(OpenNpyFolder(folder_.path())), "there is no .npy file in it");
  Write("bad.npy", "nothing of the kind");
  EXPECT_EQ(Why(OpenNpyFolder(folder_.path())),
            "bad.npy: tensor 'bad': it is not an npy array: the magic is missing");
  EXPECT_EQ(OpenNpyFolder(folder_ / "none").status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace zt
