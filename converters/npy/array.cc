// zt.convert.npy:array — arrays in C order, swapped where they are big-endian; Fortran order as a view of strides.
module;

#include "core/status_macros.h"

module zt.convert.npy;

import zt.std;
import :array;
import :header;
import zt.convert.strided;
import zt.core;
import zt.source;
import zt.transform;

namespace zt::npy::internal {

StatusOr<std::unique_ptr<ArrayReader>> ArrayReader::Make(std::shared_ptr<ByteSource> bytes,
                                                         const Header& header,
                                                         const ArrayType& type,
                                                         std::uint64_t memory_limit,
                                                         std::shared_ptr<StridedBands> bands) {
  std::unique_ptr<ArrayReader> reader(new ArrayReader);
  const auto size = DenseBytes(header.shape, type.element);
  if (!size || !CheckedAdd(*size, header.size)) {
    return InvalidData("shape " + ToString(header.shape) + " overflows 64 bits");
  }
  reader->bytes_ = std::move(bytes);
  reader->type_ = type;
  reader->data_ = header.size;
  reader->size_ = *size;
  reader->memory_limit_ = memory_limit;
  for (const std::uint64_t dim : header.shape) {
    if (dim != 1) reader->shape_.push_back(dim);
  }
  reader->fortran_ = header.fortran_order && reader->shape_.size() > 1 && *size > 0;
  if (*size == 0 || reader->direct()) return reader;
  if (!reader->sequential()) {
    reader->MakeView(*reader->bytes_, reader->data_, std::move(bands));
  } else if (reader->fortran_ && *size > memory_limit / 2) {
    return Unsupported("it is in Fortran order, and its " + std::to_string(*size) +
                       " bytes cannot be read twice here (a pipe or a deflated entry): they would "
                       "have to be held, which takes more than half the memory limit of " +
                       std::to_string(memory_limit) +
                       "; raise the limit, or give an uncompressed file");
  }
  return reader;
}

void ArrayReader::MakeView(ByteSource& bytes, std::uint64_t data,
                           std::shared_ptr<StridedBands> bands) {
  Shape strides(shape_.size());
  std::uint64_t stride = 1;
  for (std::size_t i = 0; i < shape_.size(); ++i) {
    const std::size_t k = fortran_ ? i : shape_.size() - 1 - i;
    strides[k] = stride;
    stride *= shape_[k];
  }
  view_ = std::make_unique<StridedView>(bytes, data, CollapseAxes(shape_, strides),
                                        StridedView::Elements{type_.width, type_.swap},
                                        std::move(bands));
}

Status ArrayReader::Read(std::uint64_t offset, std::span<std::byte> out) {
  if (offset > size_ || out.size() > size_ - offset) {
    return InvalidArgument("bytes " + std::to_string(offset) + " to " +
                           std::to_string(offset + out.size()) + " of an array of " +
                           std::to_string(size_));
  }
  if (out.empty()) return OkStatus();
  if (sequential() && fortran_) return ReadHeld(offset, out);
  if (view_ != nullptr) return view_->Read(offset, out);
  if (type_.swap > 1) return ReadSwapped(offset, out);
  return bytes_->ReadAt(data_ + offset, out);
}

Status ArrayReader::ReadHeld(std::uint64_t offset, std::span<std::byte> out) {
  if (view_ == nullptr) {
    held_ = pool_.Take(size_);
    ZT_RETURN_IF_ERROR(bytes_->ReadAt(data_, held_.bytes()));
    held_bytes_ = MemoryBytes(held_.bytes(), bytes_->name());
    MakeView(*held_bytes_, 0, std::make_shared<StridedBands>(memory_limit_ / 8));
  }
  ZT_RETURN_IF_ERROR(view_->Read(offset, out));
  if (offset + out.size() == size_) {
    view_.reset();
    held_bytes_.reset();
    held_ = Buffer();
  }
  return OkStatus();
}

// Of a sequential array in C order: elements that `out` covers whole are swapped in place; one that it cuts goes through
// a buffer.
Status ArrayReader::ReadSwapped(std::uint64_t offset, std::span<std::byte> out) {
  const std::uint64_t width = type_.swap;
  std::array<std::byte, 8> buffer;
  const std::span<std::byte> element = std::span(buffer).first(width);
  const auto copy_part = [&](std::uint64_t from) -> Status {
    ZT_RETURN_IF_ERROR(ReadElement(offset / width, element));
    const std::size_t take = std::min<std::size_t>(width - from, out.size());
    std::copy_n(element.begin() + static_cast<std::ptrdiff_t>(from), take, out.begin());
    out = out.subspan(take);
    offset += take;
    return OkStatus();
  };
  if (offset % width != 0) ZT_RETURN_IF_ERROR(copy_part(offset % width));
  if (const std::size_t whole = out.size() / width * width; whole > 0) {
    ZT_RETURN_IF_ERROR(bytes_->ReadAt(data_ + offset, out.first(whole)));
    SwapBytes(out.first(whole), width);
    out = out.subspan(whole);
    offset += whole;
  }
  return out.empty() ? OkStatus() : copy_part(0);
}

Status ArrayReader::ReadElement(std::uint64_t index, std::span<std::byte> out) {
  const std::uint64_t width = type_.swap;
  // The element is kept for the next Read: a sequential source cannot go back to it.
  const std::span<std::byte> kept = std::span(split_element_).first(width);
  if (split_index_ != index) {
    ZT_RETURN_IF_ERROR(bytes_->ReadAt(data_ + index * width, kept));
    SwapBytes(kept, width);
    split_index_ = index;
  }
  std::copy(kept.begin(), kept.end(), out.begin());
  return OkStatus();
}

}  // namespace zt::npy::internal
