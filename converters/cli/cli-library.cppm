// zt.cli:library — what libztstream asks of the program: inputs, types and attributes are the same there as here.
export module zt.cli:library;

import zt.std;
import zt;

export namespace zt::cli {

// The formats that are read, by the names that `format` below takes.
std::vector<std::string> InputFormats();
// Any input of any format: a file, a folder, or several of them as one source. `format` is empty where the content tells it.
// Errors name the file.
StatusOr<std::unique_ptr<TensorSource>> OpenAny(const std::vector<std::string>& paths,
                                                const InputOptions& options,
                                                const std::string& format = "");
// The same of bytes, which errors name.
StatusOr<std::unique_ptr<TensorSource>> OpenAny(std::shared_ptr<ByteSource> bytes,
                                                const InputOptions& options,
                                                const std::string& format = "");

// An element type, also by the names that torch and numpy have for it: float16, half, bfloat16. `lower`, if not null, is set
// to the name that was looked for.
std::optional<ElementType> FindTypeName(std::string_view text, std::string* lower = nullptr);

// Appends attributes as a JSON object. Byte strings are {"$bytes": "hexadecimal"}.
void AppendAttributes(const Value::Map& attributes, std::string& out);

}  // namespace zt::cli
