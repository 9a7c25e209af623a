// zt.remote — loads libcurl when the first URL is opened, so that other runs start without it.
#include "remote/curl.h"

#include <dlfcn.h>

namespace zt::remote::internal {
namespace {

// The oldest version with CURLOPT_PROTOCOLS_STR.
constexpr unsigned kOldest = 0x075500;

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

bool FindAll(void* library, Curl& curl) {
#define ZT_CURL_FIND(name) Find(library, "curl_" #name, curl.name)&&
  return ZT_CURL_FUNCTIONS(ZT_CURL_FIND) true;
#undef ZT_CURL_FIND
}

struct Loaded {
  Curl curl;
  const char* problem = nullptr;
};

Loaded Load() {
  Loaded loaded;
  void* library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = ::dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    loaded.problem = "URLs need libcurl, which is not installed (Debian: apt install libcurl4)";
    return loaded;
  }
  decltype(&::curl_version_info) version = nullptr;
  decltype(&::curl_global_init) init = nullptr;
  if (!Find(library, "curl_version_info", version) || !Find(library, "curl_global_init", init) ||
      !FindAll(library, loaded.curl) || version(CURLVERSION_NOW)->version_num < kOldest) {
    loaded.problem = "URLs need libcurl 7.85 or newer; the one that is installed is older";
  } else if (init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    loaded.problem = "libcurl cannot be set up";
  }
  return loaded;
}

}  // namespace

const Curl* LoadCurl(const char*& problem) {
  static const Loaded loaded = Load();
  problem = loaded.problem;
  return loaded.problem == nullptr ? &loaded.curl : nullptr;
}

}  // namespace zt::remote::internal
