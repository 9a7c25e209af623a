// zt.cli:numbers — the numbers of a command line: decimal, and the whole word.
export module zt.cli:numbers;

import zt.std;
import :args;

export namespace zt::cli {

// Each is nullopt where `text` is anything but such a number: no sign but "-", no blanks, no octal or hexadecimal digits.

// "12".
std::optional<std::uint64_t> ParseNumber(std::string_view text);
// "2.5", "-3".
std::optional<double> ParseDecimal(std::string_view text);
// The bytes that "1000", "64MiB", "64M" (the same), "64MB" (powers of 1000) or "1.5G" say.
std::optional<std::uint64_t> ParseSize(std::string_view text);
// What --zstd takes: "3", "-5", "huffman" or "planes".
std::optional<ZstdChoice> ParseZstd(std::string_view text);

}  // namespace zt::cli
