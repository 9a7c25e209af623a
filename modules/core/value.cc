// zt.core:value — copies, compares and searches attribute values.
module zt.core;

import zt.std;

namespace zt {

// Not the copy of std::variant: up to libstdc++ 12 it assumes that a variant whose alternatives
// move without throwing always holds a value. An exception while it copies then destroys an
// alternative that was never constructed, and crashes. Copying first and then moving avoids that.
Value::Rep Value::Copy(const Rep& rep) {
  return std::visit(
      [](const auto& held) { return Rep(std::in_place_type<std::decay_t<decltype(held)>>, held); },
      rep);
}

Value::Value(const Value& other) : rep_(Copy(other.rep_)) {}

Value& Value::operator=(const Value& other) {
  rep_ = Copy(other.rep_);
  return *this;
}

template <class T>
const T* Value::Held() const {
  static const T kEmpty;
  const auto* held = std::get_if<Shared<T>>(&rep_);
  if (held == nullptr) return nullptr;
  return *held == nullptr ? &kEmpty : held->get();
}
template const Value::Bytes* Value::Held<Value::Bytes>() const;
template const Value::Array* Value::Held<Value::Array>() const;
template const Value::Map* Value::Held<Value::Map>() const;

Value::Map Value::TakeMap() && {
  const auto* held = std::get_if<Shared<Map>>(&rep_);
  if (held == nullptr || *held == nullptr) return {};
  if (held->use_count() > 1) return **held;
  return std::move(const_cast<Map&>(**held));  // Share made it without const
}

bool Value::operator==(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kBytes:
      return *AsBytes() == *other.AsBytes();
    case Kind::kArray:
      return *AsArray() == *other.AsArray();
    case Kind::kMap:
      return *AsMap() == *other.AsMap();
    default:
      return rep_ == other.rep_;
  }
}

const Value* FindMember(const Value::Map& map, std::string_view key) {
  for (const auto& [name, value] : map) {
    if (name == key) return &value;
  }
  return nullptr;
}

void SetMember(Value::Map& map, std::string_view key, Value value) {
  for (auto& [name, held] : map) {
    if (name == key) {
      held = std::move(value);
      return;
    }
  }
  map.emplace_back(std::string(key), std::move(value));
}

bool IsUtf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = p + text.size();
  while (p < end) {
    if (std::uint64_t eight; end - p >= 8) {  // fast path for ASCII
      std::memcpy(&eight, p, 8);
      if ((eight & 0x8080808080808080) == 0) {
        p += 8;
        continue;
      }
    }
    if (*p < 0x80) {
      ++p;
      continue;
    }
    int more;
    std::uint32_t code, least;
    if ((*p & 0xe0) == 0xc0) {
      more = 1, code = *p & 0x1f, least = 0x80;
    } else if ((*p & 0xf0) == 0xe0) {
      more = 2, code = *p & 0x0f, least = 0x800;
    } else if ((*p & 0xf8) == 0xf0) {
      more = 3, code = *p & 0x07, least = 0x10000;
    } else {
      return false;
    }
    if (end - p <= more) return false;
    for (int i = 1; i <= more; ++i) {
      if ((p[i] & 0xc0) != 0x80) return false;
      code = code << 6 | (p[i] & 0x3f);
    }
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
    p += more + 1;
  }
  return true;
}

std::string EscapeUnlessUtf8(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  if (IsUtf8(text)) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    std::size_t length = 1;
    while (length < 4 && length < text.size() && !IsUtf8(text.substr(0, length))) ++length;
    if (IsUtf8(text.substr(0, length))) {
      out += text.substr(0, length);
    } else if (text.size() > 2 && byte(0) == 0xed && byte(1) >= 0xa0 && byte(1) < 0xc0 &&
               (byte(2) & 0xc0) == 0x80) {
      length = 3;
      out += {'\\',
              'u',
              'd',
              kHex[byte(1) >> 2 & 15],
              kHex[(byte(1) & 3) << 2 | (byte(2) >> 4 & 3)],
              kHex[byte(2) & 15]};
    } else {
      length = 1;
      out += {'\\', 'x', kHex[byte(0) >> 4], kHex[byte(0) & 15]};
    }
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace zt
