// zt.writer:object — one object whose bytes come piece by piece.
export module zt.writer:object;

import zt.std;
import :plan;
import zt.core;

namespace zt::writer::internal {
class Engine;
}

export namespace zt {

class Writer;

// Numbers one after the other in memory: a vector, an array, a span of a type that has a dtype.
template <class R>
concept Numbers = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                  Element<std::ranges::range_value_t<R>>;

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
  // The same as numbers of the component's dtype; kInvalidArgument for others.
  template <Numbers R>
  Status Append(const R& values) {
    const std::span numbers(std::ranges::data(values), std::ranges::size(values));
    return AppendAs(*kDTypeOf<std::ranges::range_value_t<R>>, std::as_bytes(numbers));
  }
  // Ends the current component and begins the next one.
  Status NextComponent();
  // The first dimension, where only the end of the stream tells it: what Begin was given there does not count then.
  // kFailedPrecondition where the shape has no dimension, and for sparse_coo, whose coordinates are checked against the
  // shape as they pass.
  Status SetLeadingDimension(std::uint64_t size);
  // An attribute of the object; the last one set wins.
  Status SetAttribute(std::string_view key, Value value);
  // Ends the last component. The sizes must agree with the shape.
  Status Finish();

 private:
  friend class Writer;
  Status AppendAs(DType dtype, std::span<const std::byte> bytes);
  struct State;
  explicit ObjectWriter(std::unique_ptr<State> state);
  static std::unique_ptr<ObjectWriter> Make(writer::internal::Engine& engine,
                                            std::vector<writer::internal::ResolvedStorage> storage,
                                            Object object);
  std::unique_ptr<State> state_;
};

}  // namespace zt
