// zt.convert.strided — views that share a budget: exact bytes for any of it, with any number of
// threads, each byte fetched once; what fails, fails for all who wait.
#include "testing.h"

import zt.convert.strided;
import zt.core;
import zt.source;

namespace zt {
namespace {

// A storage whose bytes are random; it counts what is read, and fails from a byte on
// where it is told to.
class Storage final : public ByteSource {
 public:
  explicit Storage(std::uint64_t size) : bytes_(size) {
    std::mt19937_64 random(size);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
  }
  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override { return bytes_.size(); }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset + out.size() > fails_from) return IoError("no more");
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    read += out.size();
    ++reads;
    return OkStatus();
  }
  std::span<const std::byte> bytes() const { return bytes_; }

  std::atomic<std::uint64_t> read = 0;   // bytes
  std::atomic<std::uint64_t> reads = 0;  // calls
  std::atomic<std::uint64_t> fails_from = ~std::uint64_t{0};

 private:
  std::string name_ = "storage";
  std::vector<std::byte> bytes_;
};

// What a view of a storage has to serve, element by element.
std::vector<std::byte> Expected(const Storage& storage, const Shape& shape, const Shape& strides,
                                std::uint64_t width, std::uint64_t swap) {
  std::vector<std::byte> out;
  Shape at(shape.size(), 0);
  for (std::uint64_t n = 0; n < *ElementCount(shape); ++n) {
    std::uint64_t from = 0;
    for (std::size_t k = 0; k < shape.size(); ++k) from += at[k] * strides[k];
    const auto element = storage.bytes().subspan(from * width, width);
    out.insert(out.end(), element.begin(), element.end());
    for (std::uint64_t i = 0; i < width; i += swap) {
      std::reverse(out.end() - static_cast<std::ptrdiff_t>(i + swap),
                   out.end() - static_cast<std::ptrdiff_t>(i));
    }
    for (std::size_t k = shape.size(); k-- > 0 && ++at[k] == shape[k];) at[k] = 0;
  }
  return out;
}

struct Case {
  Shape shape, strides;
  std::uint64_t width = 4, swap = 1;
};

// Transposed, permuted, sliced, expanded and overlapping ones, of odd sizes.
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{331, 257}, {1, 331}},           {{257, 331}, {1, 257}, 2, 2},
      {{13, 97, 61}, {5917, 1, 97}, 2}, {{12, 90, 70}, {6300, 1, 90}},
      {{7, 11, 130}, {1, 7, 77}, 8, 4}, {{1000, 3}, {1, 1000}, 1},
      {{3, 1000}, {1, 3}, 16, 8},       {{200, 99}, {0, 3}, 4, 4},
      {{99, 200}, {7, 0}, 1},           {{101, 103}, {2, 3}, 2},
  };
  return cases;
}

struct Opened {
  Opened(const Case& from, const std::shared_ptr<StridedBands>& bands)
      : storage(Reach(from) * from.width),
        view(storage, 0, CollapseAxes(from.shape, from.strides), {from.width, from.swap}, bands),
        expected(Expected(storage, from.shape, from.strides, from.width, from.swap)) {}
  static std::uint64_t Reach(const Case& from) {
    std::uint64_t last = 0;
    for (std::size_t k = 0; k < from.shape.size(); ++k) {
      last += (from.shape[k] - 1) * from.strides[k];
    }
    return last + 1;
  }
  // Fetches a range; false where it is not what it should be.
  bool Fetch(std::uint64_t from, std::uint64_t size) {
    std::vector<std::byte> out(std::min<std::uint64_t>(size, expected.size() - from));
    return view.Read(from, out).ok() &&
           std::equal(out.begin(), out.end(), expected.begin() + static_cast<std::ptrdiff_t>(from));
  }
  Storage storage;
  StridedView view;
  std::vector<std::byte> expected;
};

TEST(Strided, ViewsThatShareBandsServeTheirBytesToAnyThreads) {
  for (const std::uint64_t limit : {0, 100, 3000, 20000, 100000, 1 << 20}) {
    const auto bands = std::make_shared<StridedBands>(limit);
    std::vector<std::unique_ptr<Opened>> views;
    for (const Case& each : Cases()) views.push_back(std::make_unique<Opened>(each, bands));
    std::atomic<int> wrong = 0;
    std::atomic<std::uint64_t> next = 0;
    std::vector<std::thread> threads;
    constexpr std::uint64_t kPiece = 9973;
    for (std::uint64_t t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(t);
        // The pieces of all views in turn, as a pipeline wants them, and ranges of any
        // of them between.
        for (std::uint64_t piece; (piece = next++) < views.size() * 100;) {
          Opened& view = *views[piece / 100];
          const std::uint64_t from = piece % 100 * kPiece;
          if (from < view.expected.size() && !view.Fetch(from, kPiece)) ++wrong;
          if (piece % 16 != 0) continue;
          Opened& other = *views[random() % views.size()];
          if (!other.Fetch(random() % other.expected.size(), random() % 50000)) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0) << "limit " << limit;
  }
}

TEST(Strided, EachByteIsFetchedOnceWhateverThePieces) {
  for (const std::uint64_t limit : {20000, 1 << 20}) {
    for (const bool whole : {false, true}) {
      const auto bands = std::make_shared<StridedBands>(limit);
      for (const std::size_t which : {0, 3}) {  // whose runs are not read with what lies between
        Opened view(Case{which == 0 ? Shape{2000, 37} : Shape{5, 2000, 30},
                         which == 0 ? Shape{1, 2000} : Shape{60000, 1, 2000}},
                    bands);
        std::uint64_t piece = 1009;
        if (whole) piece = view.view.preferred_read();
        ASSERT_GT(piece, 0u);
        for (std::uint64_t at = 0; at < view.expected.size(); at += piece) {
          ASSERT_TRUE(view.Fetch(at, piece)) << at;
        }
        EXPECT_EQ(view.storage.read, view.storage.bytes().size()) << limit << whole << which;
      }
    }
  }
}

TEST(Strided, ManyElementsFarApartAreReadAtOnceAndFewAreNot) {
  const auto bands = std::make_shared<StridedBands>(64 << 20);
  Opened many(Case{Shape(16, 2), Shape(16, 8192)}, bands);
  ASSERT_TRUE(many.Fetch(0, many.expected.size()));
  EXPECT_EQ(many.storage.reads, 1u);
  EXPECT_EQ(many.storage.read, many.storage.bytes().size());
  // Beyond a tile, as many dimensions as fit it.
  Case wide{Shape(16, 2), Shape(16, 8192)};
  wide.strides[3] = 1 << 20;
  Opened beyond(wide, bands);
  ASSERT_TRUE(beyond.Fetch(0, beyond.expected.size()));
  EXPECT_EQ(beyond.storage.reads, 2u);
  Opened few(Case{{2, 3}, {40000, 8192}}, bands);
  ASSERT_TRUE(few.Fetch(0, few.expected.size()));
  EXPECT_EQ(few.storage.reads, 6u);
  EXPECT_EQ(few.storage.read, few.expected.size());
}

TEST(Strided, WhatIsBestReadAtOnceIsABandWhereAllBeginAtMultiplesOfIt) {
  const auto bands = std::make_shared<StridedBands>(64000);  // a band is of 30000 bytes at most
  const auto preferred = [&](const Shape& shape, const Shape& strides) {
    Storage storage(0);
    return StridedView(storage, 0, CollapseAxes(shape, strides), {4, 1}, bands).preferred_read();
  };
  EXPECT_EQ(preferred({1000, 10}, {1, 1000}), 750 * 10 * 4u);
  EXPECT_EQ(preferred({70, 100}, {1, 70}), 70 * 100 * 4u);               // the whole view
  EXPECT_EQ(preferred({3, 1000, 10}, {10000, 1, 1000}), 500 * 10 * 4u);  // of 1000 rows, not 750
  EXPECT_EQ(preferred({3, 1009, 10}, {10090, 1, 1009}), 0u);             // a prime number of rows
  EXPECT_EQ(preferred({1000, 10}, {10, 1}), 0u);                         // side by side
}

TEST(Strided, AnErrorReachesAllWhoWaitAndIsForgotten) {
  const auto bands = std::make_shared<StridedBands>(100000);
  Opened view(Case{{300, 200}, {1, 300}}, bands);
  view.storage.fails_from = 200000;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::byte> out(1000);
      const Status status = view.view.Read(static_cast<std::uint64_t>(t) * 1000, out);
      if (std::string(status.message()) == "no more") ++failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 8);
  view.storage.fails_from = ~std::uint64_t{0};
  EXPECT_TRUE(view.Fetch(0, 1000));
}

}  // namespace
}  // namespace zt
