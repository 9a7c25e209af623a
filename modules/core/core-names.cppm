// zt.core:names — tells URLs from paths.
export module zt.core:names;

import zt.std;

export namespace zt {

// True for "scheme://...": a network address, not a path in the file system.
bool IsUrl(std::string_view path);

}  // namespace zt
