// zt.convert.npy:sparse — bodies.
module;

#include "core/status_macros.h"

module zt.convert.npy;

import zt.std;
import :array;
import :sparse;
import zt.core;
import zt.source;
import zt.transform;

namespace zt::npy::internal {
namespace {

class StoredValuesReader final : public ComponentReader {
 public:
  explicit StoredValuesReader(std::unique_ptr<ArrayReader> array) : array_(std::move(array)) {}
  Status Read(std::uint64_t offset, std::span<std::byte> out) override {
    return array_->Read(offset, out);
  }
  bool sequential() const override { return array_->sequential(); }

 private:
  std::unique_ptr<ArrayReader> array_;
};

class WidenedIndicesReader final : public ComponentReader {
 public:
  WidenedIndicesReader(std::vector<IndexArray> arrays, std::vector<std::uint64_t> first,
                       std::uint64_t count)
      : arrays_(std::move(arrays)), first_(std::move(first)), count_(count) {}

  Status Read(std::uint64_t offset, std::span<std::byte> out) override {
    std::vector<std::uint64_t> indices;
    while (!out.empty()) {
      const std::uint64_t element = offset / 8, skip = offset % 8;
      const std::uint64_t which = element / count_, at = element % count_;
      const std::uint64_t wanted = (skip + out.size() + 7) / 8;
      indices.resize(std::min({wanted, count_ - at, std::uint64_t{kScan}}));
      ZT_RETURN_IF_ERROR(arrays_[which].Get(first_[which] + at, indices));
      LittleEndian(std::as_writable_bytes(std::span(indices)), 8);
      const std::size_t take = std::min<std::size_t>(indices.size() * 8 - skip, out.size());
      std::memcpy(out.data(), reinterpret_cast<const std::byte*>(indices.data()) + skip, take);
      out = out.subspan(take);
      offset += take;
    }
    return OkStatus();
  }
  bool sequential() const override {
    return std::any_of(arrays_.begin(), arrays_.end(),
                       [](const IndexArray& array) { return array.sequential(); });
  }

 private:
  std::vector<IndexArray> arrays_;
  std::vector<std::uint64_t> first_;  // element of each array the component begins with
  std::uint64_t count_;
};

class PointersReader final : public ComponentReader {
 public:
  explicit PointersReader(PointerArray rows) : rows_(std::move(rows)) {}
  Status Read(std::uint64_t offset, std::span<std::byte> out) override {
    std::memcpy(out.data(), reinterpret_cast<const std::byte*>(rows_->data()) + offset, out.size());
    return OkStatus();
  }
  bool sequential() const override { return false; }

 private:
  PointerArray rows_;  // little-endian
};

class SortedBandsReader final : public ComponentReader {
 public:
  explicit SortedBandsReader(SortedBandsOf of)
      : columns_(of.columns),
        pointers_(std::move(of.pointers)),
        rows_(std::move(of.rows)),
        indices_(std::move(of.indices)),
        data_(std::move(of.data)),
        width_(of.width),
        max_entries_(
            std::max<std::uint64_t>(of.memory_limit / (of.columns ? of.width : kSortBytes), 1)) {}

  Status Read(std::uint64_t offset, std::span<std::byte> out) override {
    const std::lock_guard lock(mutex_);
    while (!out.empty()) {
      const std::uint64_t entry = offset / width_;
      if (entry < begin_ || entry >= end_) ZT_RETURN_IF_ERROR(Load(entry));
      const std::uint64_t at = offset - begin_ * width_;
      const std::size_t take = std::min<std::size_t>(band_.size() - at, out.size());
      std::memcpy(out.data(), band_.data() + at, take);
      out = out.subspan(take);
      offset += take;
    }
    return OkStatus();
  }
  bool sequential() const override {
    return indices_.sequential() || (data_ != nullptr && data_->sequential());
  }

 private:
  // Bytes that sorting holds for each entry: its column, its order, and its value as read and as served.
  static constexpr std::uint64_t kSortBytes = 8 + 8 + 16 + 16;

  Status Load(std::uint64_t entry) {
    const std::vector<std::uint64_t>& rows = *rows_;
    const auto after = std::upper_bound(rows.begin(), rows.end(), entry);
    const auto first = static_cast<std::size_t>(after - rows.begin()) - 1;
    std::size_t last = first + 1;
    while (last + 1 < rows.size() && rows[last + 1] - rows[first] <= max_entries_) ++last;
    if (rows[last] - rows[first] > max_entries_) {
      return Unsupported("row " + std::to_string(first) + " has " +
                         std::to_string(rows[last] - rows[first]) +
                         " entries, too many to sort within the memory limit; raise it");
    }
    begin_ = end_ = 0;  // nothing valid, should this fail
    band_.resize((rows[last] - rows[first]) * width_);
    ZT_RETURN_IF_ERROR(columns_ ? Gather(first, last) : Sort(first, last));
    if (data_ == nullptr) LittleEndian(band_, width_);  // they are the indices
    begin_ = rows[first];
    end_ = rows[last];
    return OkStatus();
  }

  // Rows [first, last) of a csr file.
  Status Sort(std::size_t first, std::size_t last) {
    const std::vector<std::uint64_t>& rows = *rows_;
    const std::uint64_t begin = rows[first], count = rows[last] - begin;
    std::vector<std::uint64_t> columns(count), order(count);
    for (std::uint64_t at = 0; at < count; at += kScan) {
      const auto step = std::min<std::uint64_t>(kScan, count - at);
      ZT_RETURN_IF_ERROR(indices_.Get(begin + at, std::span(columns).subspan(at, step)));
    }
    std::iota(order.begin(), order.end(), std::uint64_t{0});
    for (std::size_t r = first; r < last; ++r) {
      std::sort(order.begin() + static_cast<std::ptrdiff_t>(rows[r] - begin),
                order.begin() + static_cast<std::ptrdiff_t>(rows[r + 1] - begin),
                [&](std::uint64_t a, std::uint64_t b) {
                  return std::pair(columns[a], a) < std::pair(columns[b], b);
                });
    }
    std::vector<std::byte> values;
    if (data_ != nullptr) {
      values.resize(count * width_);
      ZT_RETURN_IF_ERROR(data_->Read(begin * width_, values));
    }
    const std::byte* const from =
        data_ != nullptr ? values.data() : reinterpret_cast<const std::byte*>(columns.data());
    for (std::uint64_t i = 0; i < count; ++i) {
      std::memcpy(band_.data() + i * width_, from + order[i] * width_, width_);
    }
    return OkStatus();
  }

  // Rows [first, last) of a csc file: columns come in ascending order, so each row fills from its beginning.
  Status Gather(std::size_t first, std::size_t last) {
    const std::vector<std::uint64_t>& rows = *rows_;
    std::vector<std::uint64_t> next(rows.begin() + static_cast<std::ptrdiff_t>(first),
                                    rows.begin() + static_cast<std::ptrdiff_t>(last));
    std::vector<std::uint64_t> row(kScan);
    std::vector<std::byte> values;
    std::uint64_t column = 0;
    for (std::uint64_t at = 0; at < rows.back(); at += kScan) {
      row.resize(std::min<std::uint64_t>(kScan, rows.back() - at));
      ZT_RETURN_IF_ERROR(indices_.Get(at, row));
      if (data_ != nullptr) {
        values.resize(row.size() * width_);
        ZT_RETURN_IF_ERROR(data_->Read(at * width_, values));
      }
      for (std::size_t i = 0; i < row.size(); ++i) {
        while ((*pointers_)[column + 1] <= at + i) ++column;
        if (row[i] < first || row[i] >= last) continue;
        const std::uint64_t place = next[row[i] - first]++ - rows[first];
        const std::byte* const from =
            data_ != nullptr ? values.data() + i * width_ : reinterpret_cast<std::byte*>(&column);
        std::memcpy(band_.data() + place * width_, from, width_);
      }
    }
    return OkStatus();
  }

  const bool columns_;
  PointerArray pointers_, rows_;
  IndexArray indices_;
  std::unique_ptr<ArrayReader> data_;
  const std::size_t width_;
  const std::uint64_t max_entries_;
  std::mutex mutex_;
  std::vector<std::byte> band_;
  std::uint64_t begin_ = 0, end_ = 0;  // entries in band_
};

}  // namespace

Status IndexArray::Get(std::uint64_t first, std::span<std::uint64_t> out) {
  const std::size_t width = ByteWidth(dtype_);
  std::vector<std::byte> raw(out.size() * width);
  ZT_RETURN_IF_ERROR(array_->Read(first * width, raw));
  ZT_RETURN_IF_ERROR(WidenToU64(raw, dtype_, out));
  for (const std::uint64_t index : out) {
    if (index >= bound_) {
      return InvalidData("index " + std::to_string(index) + " is not below the dimension, " +
                         std::to_string(bound_));
    }
  }
  return OkStatus();
}

std::unique_ptr<ComponentReader> StoredValues(std::unique_ptr<ArrayReader> array) {
  return std::make_unique<StoredValuesReader>(std::move(array));
}

std::unique_ptr<ComponentReader> WidenedIndices(std::vector<IndexArray> arrays,
                                                std::vector<std::uint64_t> first,
                                                std::uint64_t count) {
  return std::make_unique<WidenedIndicesReader>(std::move(arrays), std::move(first), count);
}

std::unique_ptr<ComponentReader> Pointers(PointerArray rows) {
  if constexpr (std::endian::native == std::endian::big) {
    auto little = std::make_shared<std::vector<std::uint64_t>>(*rows);
    LittleEndian(std::as_writable_bytes(std::span(*little)), 8);
    rows = std::move(little);
  }
  return std::make_unique<PointersReader>(std::move(rows));
}

std::unique_ptr<ComponentReader> SortedBands(SortedBandsOf of) {
  return std::make_unique<SortedBandsReader>(std::move(of));
}

}  // namespace zt::npy::internal
