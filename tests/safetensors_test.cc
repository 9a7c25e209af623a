// zt.convert.safetensors: headers that are longer than what is parsed at once.
#include <new>

#include "testing.h"

import zt.convert.safetensors;
import zt.core;
import zt.source;

namespace {
std::atomic<std::size_t> largest_allocation = 0;
}  // namespace

void* operator new(std::size_t size) {
  std::size_t largest = largest_allocation;
  while (size > largest && !largest_allocation.compare_exchange_weak(largest, size)) {
  }
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return operator new(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return operator new(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace zt {
namespace {

// A file of many tensors of one byte each, whose header is written by hand.
struct Case {
  std::vector<std::string> names;          // as they are
  std::vector<std::string> keys;           // as JSON has them
  std::string metadata;                    // an object, or nothing
  std::string comma = ",", colon = ":";    // between members
  std::string before = "{", behind = "}";  // around them

  void Add(std::string name, std::string key) {
    names.push_back(std::move(name));
    keys.push_back(std::move(key));
  }
  std::string Entry(std::size_t i) const {
    return '"' + keys[i] + '"' + colon + "{\"dtype\"" + colon + "\"U8\"" + comma + "\"shape\"" +
           colon + "[1]" + comma + "\"data_offsets\"" + colon + "[" + std::to_string(i) + comma +
           std::to_string(i + 1) + "]}";
  }
  std::string Header() const {
    std::string out = before;
    if (!metadata.empty()) out += "\"__metadata__\"" + colon + metadata + comma;
    for (std::size_t i = 0; i < names.size(); ++i) out += (i == 0 ? "" : comma) + Entry(i);
    return out + behind;
  }
};

std::vector<std::byte> FileOf(const std::string& header, std::size_t data) {
  std::vector<std::byte> out;
  for (int byte = 0; byte < 8; ++byte) {
    out.push_back(static_cast<std::byte>(header.size() >> 8 * byte));
  }
  for (const char c : header) out.push_back(static_cast<std::byte>(c));
  out.resize(out.size() + data);
  return out;
}

std::string Error(const std::string& header, std::size_t data) {
  const std::vector<std::byte> file = FileOf(header, data);
  std::string error;
  for (const std::size_t part : {std::size_t{1} << 16, std::size_t{1}, ~std::size_t{0}}) {
    const auto source = OpenSafetensorsInParts(MemoryBytes(file, "memory"), part);
    const std::string text(source.ok() ? "" : Why(source));
    EXPECT_TRUE(text == error || part == std::size_t{1} << 16) << text << " or " << error;
    error = text;
  }
  return error;
}

void ExpectAll(const Case& wanted, const Value::Map& attributes) {
  const std::vector<std::byte> file = FileOf(wanted.Header(), wanted.names.size());
  for (const std::size_t part : {std::size_t{1} << 16, std::size_t{1}, ~std::size_t{0}}) {
    const auto source = Must(OpenSafetensorsInParts(MemoryBytes(file, "memory"), part));
    EXPECT_EQ(source->attributes(), attributes);
    const auto& objects = source->objects();
    ASSERT_EQ(objects.size(), wanted.names.size());
    for (std::uint32_t i = 0; i < objects.size(); ++i) {
      ASSERT_EQ(objects[i].name, wanted.names[i]);
      ASSERT_EQ(objects[i].shape, Shape{1});
      ASSERT_EQ(source->extent({i, 0})->offset, file.size() - objects.size() + i);
    }
  }
}

// Several times what is parsed at once.
constexpr std::size_t kMany = 6000;

Case Plain(std::size_t shift = 0) {
  Case out;
  out.Add(std::string(shift + 1, 'x'), std::string(shift + 1, 'x'));
  for (std::size_t i = 1; i < kMany; ++i) {
    const std::string name = "model.layers." + std::to_string(i) + ".weight";
    out.Add(name, name);
  }
  return out;
}

TEST(LongHeader, EveryPlaceWhereAPartMayEnd) {
  for (std::size_t shift = 0; shift < 90; ++shift) {
    Case wanted = Plain(shift);
    if (shift % 2 == 1) wanted.comma = ", ", wanted.colon = ": ";
    if (shift % 3 == 1) wanted.comma = "\n ,\t\r\n ";
    ASSERT_NO_FATAL_FAILURE(ExpectAll(wanted, {})) << shift;
  }
}

// What looks like the end of an entry, and is none: in names, in metadata, behind a backslash.
TEST(LongHeader, TextThatLooksLikeAnEnd) {
  Case wanted;
  for (std::size_t i = 0; i < kMany; ++i) {
    const std::string number = std::to_string(i);
    wanted.Add(number + "},", number + "},");
    wanted.Add(number + "},\"x\":{", number + "},\\\"x\\\":{");
    wanted.Add(number + "\\", number + "\\\\");
  }
  ExpectAll(wanted, {});
  std::string text, json;
  for (std::size_t i = 0; i < kMany; ++i) {
    text += "{\"a\":{}},\"b},";
    json += "{\\\"a\\\":{}},\\\"b},";
  }
  wanted.metadata = "{\"config\":\"" + json + "\",\"},\":\"},\"}";
  ExpectAll(wanted, {{"config", text}, {"},", "},"}});
}

// The parser keeps four bytes for each of the text that it is given.
TEST(LongHeader, IsParsedInTheMemoryOfAPart) {
  const std::string header = Plain().Header();
  const std::vector<std::byte> file = FileOf(header, kMany);
  const auto largest = [&](std::size_t part) {
    largest_allocation = 0;
    EXPECT_OK(OpenSafetensorsInParts(MemoryBytes(file, "memory"), part));
    return largest_allocation.load();
  };
  const std::size_t objects = kMany * sizeof(Object);
  EXPECT_LT(largest(1 << 12), std::max(objects, header.size()) + 4096);
  EXPECT_GT(largest(header.size()), 4 * header.size());
}

TEST(LongHeader, SpaceAroundIt) {
  Case wanted = Plain();
  wanted.before = " \n{ ";
  ExpectAll(wanted, {});
  wanted.before = "{";
  wanted.behind = "} " + std::string(100000, ' ');
  ExpectAll(wanted, {});
}

TEST(LongHeader, SaysWhatIsWrongAsOfAShortOne) {
  for (const std::size_t at : {std::size_t{1}, kMany / 2, kMany - 1}) {
    Case wrong = Plain();
    wrong.keys[at] = wrong.keys[0];
    EXPECT_EQ(Error(wrong.Header(), kMany), "key 'x' occurs twice");
    wrong = Plain();
    wrong.keys[at] = "__metadata__";
    EXPECT_EQ(Error(wrong.Header(), kMany), "__metadata__ 'shape' is not a string");
  }
  Case twice = Plain();
  twice.metadata = "{}";
  EXPECT_EQ(Error(twice.before + "\"__metadata__\":{}," + twice.Header().substr(1), kMany),
            "key '__metadata__' occurs twice");
  const std::string header = twice.Header();
  EXPECT_EQ(Error(header.substr(0, header.size() - 1) + ",\"__metadata__\":{}}", kMany),
            "key '__metadata__' occurs twice");
  const std::string sound = Plain().Header();
  for (const std::size_t near : {sound.size() / 7, sound.size() / 2, sound.size() - 200}) {
    const std::size_t end = sound.find("},", near);
    const auto with = [&](const std::string& text, std::size_t instead_of) {
      std::string header = sound;
      return header.replace(end, instead_of, text);
    };
    EXPECT_THAT(Error(with("}},", 2), kMany), HasSubstr("not JSON"));
    EXPECT_THAT(Error(with("},,", 2), kMany), HasSubstr("not JSON"));
    EXPECT_THAT(Error(with(",", 2), kMany), HasSubstr("not JSON"));
    EXPECT_THAT(Error(with("}", 2), kMany), HasSubstr("not JSON"));
    EXPECT_THAT(Error(with("},{},", 2), kMany), HasSubstr("not JSON"));
    EXPECT_THAT(Error(with("]},", 2), kMany), HasSubstr("not JSON"));
    EXPECT_THAT(Error(with(",\"x\":1},", 2), kMany), HasSubstr("unknown field 'x'"));
    EXPECT_THAT(Error(with("},\"y\":{},", 2), kMany), HasSubstr("tensor 'y': dtype is missing"));
    EXPECT_THAT(Error(sound.substr(0, end + 1), kMany), HasSubstr("not JSON"));
    EXPECT_THAT(Error(sound.substr(0, end + 2), kMany), HasSubstr("not JSON"));
  }
  EXPECT_THAT(Error(sound + "x", kMany), HasSubstr("not JSON"));
  EXPECT_THAT(Error(sound.substr(0, sound.size() - 1) + ",}", kMany), HasSubstr("not JSON"));
}

}  // namespace
}  // namespace zt
