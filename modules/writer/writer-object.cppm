// zt.writer:object — one object whose bytes come piece by piece.
module;

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

export module zt.writer:object;

import :plan;
import zt.core;

namespace zt::writer::internal {
class Engine;
}

export namespace zt {

class Writer;

// Feeds the components of one object, in the order of their declaration. Made by Writer::Begin. Not thread-safe.
// Dropped before Finish, it fails the writer: half an object is never published. It may outlive its Writer; every call
// is kFailedPrecondition then.
class ObjectWriter {
 public:
  ~ObjectWriter();
  ObjectWriter(const ObjectWriter&) = delete;
  ObjectWriter& operator=(const ObjectWriter&) = delete;

  // Appends to the current component. The bytes are copied.
  Status Append(std::span<const std::byte> bytes);
  // Ends the current component and begins the next one.
  Status NextComponent();
  // Ends the last component. The sizes must agree with the shape.
  Status Finish();

 private:
  friend class Writer;
  struct State;
  explicit ObjectWriter(std::unique_ptr<State> state);
  static std::unique_ptr<ObjectWriter> Make(writer::internal::Engine& engine,
                                            std::vector<Storage> storage, Object object);
  std::unique_ptr<State> state_;
};

}  // namespace zt
