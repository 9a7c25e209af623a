# Every package the project stands on, found once. pkg-config serves those that ship no CMake package.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(hwy REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)

find_package(PkgConfig REQUIRED)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(cbor REQUIRED IMPORTED_TARGET libcbor)
pkg_check_modules(simdjson REQUIRED IMPORTED_TARGET simdjson)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(re2 REQUIRED IMPORTED_TARGET re2)

# A flag such as -pthread on one target alone would make its module files differ from everybody else's.
foreach(package zstd cbor simdjson xxhash re2)
  set_target_properties(PkgConfig::${package} PROPERTIES INTERFACE_COMPILE_OPTIONS "")
endforeach()

if(ZT_DEVELOPER OR (NOT DEFINED ZT_DEVELOPER AND PROJECT_IS_TOP_LEVEL))
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
  # The system's own Python: Debian's python3-cbor2, -zstandard and -numpy belong to it.
  find_program(ZT_PYTHON NAMES python3 PATHS /usr/bin /bin NO_DEFAULT_PATH)
endif()
