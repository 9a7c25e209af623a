// zt.writer:chain — the stage that refuses sparse tensors which name a cell twice, for versions that forbid it.
module;

#include "core/status_macros.h"
#include "writer/cells.h"

module zt.writer;

import zt.std;
import :chain;
import zt.core;
import zt.pipeline;
import zt.source;

namespace zt::writer::internal {
namespace {

// Of objects whose indices share a blob with others, or come in unknown numbers, it sees too little, and passes them.
class CellsStage final : public StageOf<Batch> {
 public:
  explicit CellsStage(std::uint64_t memory_bytes) : memory_bytes_(memory_bytes) {}
  StageOrder order() const override { return StageOrder::kInOrder; }

  Status Process(Batch& batch) override {
    for (const Piece& piece : batch.pieces) {
      const std::string& format = piece.object->format;
      if (format != "sparse_csr" && format != "sparse_coo") continue;
      const Status status =
          Caught([&] { return format == "sparse_csr" ? LookAtRows(piece) : LookAtCells(piece); });
      if (!status.ok()) return piece.Named(status);
    }
    return OkStatus();
  }

 private:
  static const Component& ComponentOf(const Piece& piece) {
    return piece.object->components[piece.component];
  }

  Status LookAtRows(const Piece& piece) {
    const std::string& role = ComponentOf(piece).role;
    if (role != "indices" && role != "indptr") return OkStatus();
    if (object_ != piece.object) {
      Forget();
      object_ = piece.object;
      rows_.emplace(piece.object->shape.empty() ? 0 : piece.object->shape[0], memory_bytes_);
    }
    const std::size_t width = ByteWidth(ComponentOf(piece).element.dtype);
    if (role == "indices") {
      rows_->AddIndices(piece.bytes(), width);
    } else {
      rows_->AddPointers(piece.bytes(), width);
    }
    if (rows_->too_many()) {
      return TooLarge("finding whether the indices of each row ascend");
    }
    if (!piece.last || ++passed_ < 2) return OkStatus();
    const auto bad = rows_->bad();
    Forget();
    if (!bad) return OkStatus();
    return Unsupported("index " + std::to_string(*bad) +
                       " is not above the one before it in its row, which version 2.0 asks for");
  }

  Status LookAtCells(const Piece& piece) {
    const Component& component = ComponentOf(piece);
    const std::size_t width = ByteWidth(component.element.dtype);
    const std::size_t rank = piece.object->shape.size();
    if (component.role != "coords" || component.bytes == kUnknownSize || rank == 0) {
      return OkStatus();
    }
    const std::uint64_t elements = component.bytes / width / rank;
    if (piece.first) cells_.emplace(piece.object->shape, elements, memory_bytes_);
    cells_->Add(piece.bytes(), width);
    const Cells::Answer answer = piece.last ? cells_->Finish() : cells_->so_far();
    if (piece.last) Forget();
    if (answer == Cells::Answer::kDiffer) return OkStatus();
    if (answer == Cells::Answer::kUnknown) {
      return TooLarge("its " + std::to_string(elements) +
                      " elements are not in C order; finding whether two name the same cell");
    }
    return Unsupported("two elements name the same cell, which version 2.0 does not allow");
  }

  Status TooLarge(const std::string& finding) const {
    return Unsupported(finding + ", which version 2.0 asks for, takes more than " +
                       std::to_string(memory_bytes_) + " bytes of memory; allow more");
  }

  void Forget() {
    object_ = nullptr;
    rows_.reset();
    cells_.reset();
    passed_ = 0;
  }

  const std::uint64_t memory_bytes_;
  const Object* object_ = nullptr;  // of rows_
  std::optional<Rows> rows_;
  std::optional<Cells> cells_;
  int passed_ = 0;  // of the two components of rows_
};

}  // namespace

std::shared_ptr<StageOf<Batch>> MakeCellsStage(std::uint64_t memory_bytes) {
  return std::make_shared<CellsStage>(memory_bytes);
}

}  // namespace zt::writer::internal
