// zt.core:names — which names are URLs.
export module zt.core:names;

import zt.std;

export namespace zt {

// True for "scheme://...", a name that stands for something on a network and not for a path of the file system.
bool IsUrl(std::string_view path);

}  // namespace zt
