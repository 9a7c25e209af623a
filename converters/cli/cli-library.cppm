// zt.cli:library — the part of the program that libztstream uses: inputs, types and attributes.
export module zt.cli:library;

import zt.std;
import zt;

export namespace zt::cli {

// The names of the formats that are read, as `format` below takes them.
std::vector<std::string> InputFormats();
// Opens an input of any format: a file, a folder, or several of them as one source. If `format` is
// empty, it is detected. Errors name the file.
StatusOr<std::unique_ptr<TensorSource>> OpenAny(const std::vector<std::string>& paths,
                                                const InputOptions& options,
                                                const std::string& format = "");
// The same for bytes. Errors name them.
StatusOr<std::unique_ptr<TensorSource>> OpenAny(std::shared_ptr<ByteSource> bytes,
                                                const InputOptions& options,
                                                const std::string& format = "");

// Finds an element type, also by the names of torch and numpy: float16, half, bfloat16. If `lower`
// is not null, it is set to the normalized name.
std::optional<ElementType> FindTypeName(std::string_view text, std::string* lower = nullptr);

// The types that the program writes, by their usual names, and the same for a sentence.
inline constexpr std::string_view kTypeNames =
    "f64 f32 f16 bf16 f8_e4m3fn f8_e5m2 f8_e4m3fnuz f8_e5m2fnuz i64 i32 i16 i8 u64 u32 u16 u8 "
    "bool complex64 complex128";
std::string TypeNames();

// Appends attributes as a JSON object. Byte strings are {"$bytes": "hexadecimal"}.
void AppendAttributes(const Value::Map& attributes, std::string& out);

}  // namespace zt::cli
