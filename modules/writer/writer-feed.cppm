// zt.writer:feed — what an ObjectWriter keeps, and what it asks of its Writer. Internal to the module.
module;

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

module zt.writer:feed;

import :chain;
import :object;
import :plan;
import zt.core;
import zt.pipeline;

namespace zt {

// The Writer, as an ObjectWriter sees it.
class ObjectWriter::Feed {
 public:
  virtual ~Feed() = default;
  // The first failure of the writer.
  virtual const Status& Failure() const = 0;
  // Fails the writer; returns the failure that counts.
  virtual Status Fail(const Status& status) = 0;
  virtual std::shared_ptr<writer::internal::ComponentState> NewState() = 0;
  // Memory for one full chunk of a component.
  virtual Buffer Room(const writer::internal::ComponentState& component) = 0;
  virtual Status Send(writer::internal::Piece piece) = 0;
  // The object is complete, or given up.
  virtual void Close() = 0;

  inline Status Check(const Status& status) { return status.ok() ? status : Fail(status); }
};

struct ObjectWriter::State {
  State(Feed& writer_feed, std::vector<Storage> storages, Object declared);

  Feed& feed;
  std::vector<Storage> storage;
  std::shared_ptr<const Object> object;
  Object actual;  // with the sizes as they came
  std::size_t at = 0;
  std::shared_ptr<writer::internal::ComponentState> component;
  Buffer buffer;  // bytes of the chunk under way
  std::size_t filled = 0;
  std::uint64_t appended = 0;  // of the component, buffer included
  bool finished = false;

  void BeginComponent();
  Status Send(bool last);
  Status WrongSize(std::uint64_t bytes) const;
  Status EndComponent();
};

}  // namespace zt
