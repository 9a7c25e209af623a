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

# Linked from their archives where the system has them: loading and relocating a shared library costs each run of the
# program a tenth of a millisecond, and Abseil alone is thirty of them. Others import the installed package with the
# libraries of their own choice.
option(ZT_LINK_ARCHIVES "Link Abseil, zstd, xxHash and libcrypto from archives where there are any" ON)
if(ZT_LINK_ARCHIVES)
  function(zt_link_archive target property)
    get_target_property(library ${target} ${property})
    string(REGEX REPLACE "[.]so[.0-9]*$" ".a" archive "${library}")
    if(EXISTS "${archive}")
      set_target_properties(${target} PROPERTIES ${property} "${archive}")
    endif()
  endfunction()
  zt_link_archive(PkgConfig::zstd INTERFACE_LINK_LIBRARIES)
  zt_link_archive(PkgConfig::xxhash INTERFACE_LINK_LIBRARIES)
  get_property(packages DIRECTORY PROPERTY IMPORTED_TARGETS)
  list(FILTER packages INCLUDE REGEX "^(absl::|OpenSSL::Crypto$)")
  foreach(package IN LISTS packages)
    foreach(configuration IN ITEMS "" _NONE _RELEASE _RELWITHDEBINFO)
      zt_link_archive(${package} IMPORTED_LOCATION${configuration})
    endforeach()
  endforeach()
endif()
