// zt.remote — the functions of libcurl in use, from the loaded library.
#ifndef ZTSTREAM_REMOTE_CURL_H_
#define ZTSTREAM_REMOTE_CURL_H_

#include <curl/curl.h>

namespace zt::remote::internal {

// Those that are called; null until LoadCurl has succeeded.
// clang-format off
#define ZT_CURL_FUNCTIONS(X) \
  X(easy_init) X(easy_setopt) X(easy_getinfo) X(easy_cleanup) X(easy_pause) X(easy_strerror) \
  X(slist_append) X(slist_free_all) X(multi_init) X(multi_add_handle) X(multi_remove_handle) \
  X(multi_perform) X(multi_poll) X(multi_wakeup) X(multi_info_read) X(multi_cleanup)
// clang-format on

struct Curl {
#define ZT_CURL_POINTER(name) decltype(&::curl_##name) name = nullptr;
  ZT_CURL_FUNCTIONS(ZT_CURL_POINTER)
#undef ZT_CURL_POINTER
};

// The library, loaded by the first call. Null if no usable one is installed; `problem` says why.
const Curl* LoadCurl(const char*& problem);

}  // namespace zt::remote::internal

#endif  // ZTSTREAM_REMOTE_CURL_H_
