// zt.writer:object — one object whose bytes come piece by piece.
module;

#include <cstddef>
#include <memory>
#include <span>

export module zt.writer:object;

import zt.core;

export namespace zt {

class Writer;

// Feeds the components of one object, in the order of their declaration. Made by Writer::Begin; must not outlive its
// Writer. Not thread-safe. Dropped before Finish, it fails the writer: half an object is never published.
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
  class Feed;
  struct State;
  explicit ObjectWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace zt
