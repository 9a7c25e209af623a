// no_curl — stands for libcurl in programs that link an archive of libhdf5 with its driver for S3.
// Nothing here opens a file by that driver, which is told that libcurl failed.
#define HIDDEN extern "C" __attribute__((visibility("hidden")))

constexpr int kFailed = 2;  // CURLE_FAILED_INIT

HIDDEN int curl_global_init(long) { return kFailed; }
HIDDEN void curl_global_cleanup() {}
HIDDEN void* curl_easy_init() { return nullptr; }
HIDDEN void curl_easy_cleanup(void*) {}
HIDDEN int curl_easy_setopt(void*, int, ...) { return kFailed; }
HIDDEN int curl_easy_perform(void*) { return kFailed; }
HIDDEN void* curl_slist_append(void*, const char*) { return nullptr; }
HIDDEN void curl_slist_free_all(void*) {}
