// zt.remote:url — URLs: parsing, encoding, and removing secrets. Internal.
module zt.remote:url;

import zt.std;
import :answers;
import zt.core;

namespace zt::remote::internal {

// The host without its port and brackets.
std::string_view HostName(const Url& url);
// The host as the field Host has it: without the port of the scheme.
std::string HostField(const Url& url);
// True if the text is an address of this machine: 127.0.0.0/8, ::1, 0.0.0.0; or, with `link`, one
// of its link, as those of metadata servers are.
bool IsLocal(std::string_view address, bool link = true);
// True for a host name or address of this machine.
bool IsLoopback(const Url& url);
// True if the host is an address, not a name.
bool IsAddress(const Url& url);

// Quotes `text` as one word of a shell command.
std::string ShellQuoted(std::string_view text);
// `text` without blanks around it.
std::string_view Trimmed(std::string_view text);
std::string Lower(std::string_view text);
std::string Hex(std::span<const std::byte> bytes);
// A number without sign; nullopt if `text` is anything else.
std::optional<std::uint64_t> NumberOf(std::string_view text);
// Without those at its end.
std::string WithoutSlashes(std::string text);
// A variable of the environment; empty if it is not set.
std::string Environment(const char* name);
// The first of these that is set and not empty.
std::string FirstSet(std::initializer_list<const char*> names);

}  // namespace zt::remote::internal
