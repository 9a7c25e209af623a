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
  return Find(library, "curl_easy_init", curl.easy_init) &&
         Find(library, "curl_easy_setopt", curl.easy_setopt) &&
         Find(library, "curl_easy_getinfo", curl.easy_getinfo) &&
         Find(library, "curl_easy_cleanup", curl.easy_cleanup) &&
         Find(library, "curl_easy_reset", curl.easy_reset) &&
         Find(library, "curl_easy_pause", curl.easy_pause) &&
         Find(library, "curl_easy_strerror", curl.easy_strerror) &&
         Find(library, "curl_slist_append", curl.slist_append) &&
         Find(library, "curl_slist_free_all", curl.slist_free_all) &&
         Find(library, "curl_multi_init", curl.multi_init) &&
         Find(library, "curl_multi_setopt", curl.multi_setopt) &&
         Find(library, "curl_multi_add_handle", curl.multi_add_handle) &&
         Find(library, "curl_multi_remove_handle", curl.multi_remove_handle) &&
         Find(library, "curl_multi_perform", curl.multi_perform) &&
         Find(library, "curl_multi_poll", curl.multi_poll) &&
         Find(library, "curl_multi_wakeup", curl.multi_wakeup) &&
         Find(library, "curl_multi_info_read", curl.multi_info_read) &&
         Find(library, "curl_multi_cleanup", curl.multi_cleanup);
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
