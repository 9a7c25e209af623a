// zt.fuzz.accept — what the library writes of an input, the library takes back, with the
// rules of verify.
export module zt.fuzz.accept;

import zt.std;
import zt;

export namespace zt {

// Opens the same input anew: each way of writing it reads it once.
using OpenAgain = std::function<StatusOr<std::unique_ptr<TensorSource>>()>;

// Converts the input to a .zt file in memory, raw and compressed, and lays it out as safetensors,
// npz and GGUF. What is written without an error must open again; of a .zt file, Verify must find
// nothing. Aborts otherwise. Does nothing where the input declares more than `limit` bytes: hostile
// sizes cost time, not findings.
void CheckAccepted(const OpenAgain& open, std::uint64_t limit);

}  // namespace zt
