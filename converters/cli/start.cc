// start.cc — keeps Highway's packaged library from measuring its clock when the program starts.
#include <cstdint>

#include <hwy/nanobenchmark.h>

namespace hwy::platform {

// Highway 1.0 computes this when its shared library is loaded, for the benchmark helper in it, which takes three
// milliseconds of timing loops. The program times nothing with that helper. The dynamic linker takes the program's own
// definition for the library's call; a static Highway leaves its helper out altogether.
std::uint64_t TimerResolution() { return 1; }

}  // namespace hwy::platform
