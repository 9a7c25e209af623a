// zt.core:names — tells URLs from paths; case and blanks of words.
export module zt.core:names;

import zt.std;

export namespace zt {

// True for "scheme://...": a network address, not a path in the file system.
bool IsUrl(std::string_view path);

// `text` with the letters of ASCII in lower case.
std::string Lower(std::string_view text);

// `text` without these characters at either end.
std::string_view Trimmed(std::string_view text, std::string_view blanks = " \t\n\v\f\r");

}  // namespace zt
