// zt.writer:object — one object whose bytes come in pieces.
export module zt.writer:object;

import zt.std;
import :plan;
import zt.core;

namespace zt::writer::internal {
class Engine;
}

export namespace zt {

class Writer;

// A contiguous range of a type that has a dtype: a vector, an array, a span.
template <class R>
concept Numbers = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                  Element<std::ranges::range_value_t<R>>;

// Feeds the components of one object, in declared order. Made by Writer::Begin. Not thread-safe. If
// it is destroyed before Finish, the writer fails: an incomplete object is never published. It may
// outlive its Writer; every call is then kFailedPrecondition.
class ObjectWriter {
 public:
  ~ObjectWriter();
  ObjectWriter(const ObjectWriter&) = delete;
  ObjectWriter& operator=(const ObjectWriter&) = delete;

  // Appends to the current component. The bytes are copied.
  Status Append(std::span<const std::byte> bytes);
  // Appends numbers of the component's dtype; kInvalidArgument for others.
  template <Numbers R>
  Status Append(const R& values) {
    const std::span numbers(std::ranges::data(values), std::ranges::size(values));
    return AppendAs(*kDTypeOf<std::ranges::range_value_t<R>>, std::as_bytes(numbers));
  }
  // Ends the current component and begins the next one.
  Status NextComponent();
  // Sets the first dimension, if it is known only at the end of the stream; replaces the one given
  // to Begin. kFailedPrecondition for a shape without dimensions, and for sparse_coo, whose
  // coordinates are validated against the shape as they pass.
  Status SetLeadingDimension(std::uint64_t size);
  // Sets an attribute of the object; the last call wins.
  Status SetAttribute(std::string_view key, Value value);
  // Ends the last component. Its sizes must match the shape.
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
