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

# What the modules link of Abseil. Loading and relocating a shared library costs each run of the program a tenth of a
# millisecond, and Abseil alone is thirty of them: where the system has archives, programs take those, and zstd's,
# xxHash's and libcrypto's too. A shared library cannot take Abseil's archives, which are not position-independent.
option(ZT_LINK_ARCHIVES "Link Abseil, zstd, xxHash and libcrypto into programs from archives where there are any" ON)
set(ZT_ABSL absl::status absl::statusor)
if(ZT_LINK_ARCHIVES)
  # zt_archive(out library): the archive beside a shared library, or the library itself.
  function(zt_archive out library)
    string(REGEX REPLACE "[.]so[.0-9]*$" ".a" archive "${library}")
    if(NOT EXISTS "${archive}")
      set(archive "${library}")
    endif()
    set(${out} "${archive}" PARENT_SCOPE)
  endfunction()

  foreach(package IN ITEMS PkgConfig::zstd PkgConfig::xxhash)
    get_target_property(library ${package} INTERFACE_LINK_LIBRARIES)
    zt_archive(archive "${library}")
    set_target_properties(${package} PROPERTIES INTERFACE_LINK_LIBRARIES "${archive}")
  endforeach()
  get_target_property(library OpenSSL::Crypto IMPORTED_LOCATION)
  zt_archive(archive "${library}")
  set_target_properties(OpenSSL::Crypto PROPERTIES IMPORTED_LOCATION "${archive}")

  # Abseil's libraries and all that they stand on.
  set(archives "")
  set(open absl::status absl::statusor)
  set(seen "")
  while(open)
    list(POP_FRONT open package)
    if(package MATCHES "^absl::" AND NOT package IN_LIST seen)
      list(APPEND seen ${package})
      get_target_property(library ${package} LOCATION)
      if(library)
        zt_archive(archive "${library}")
        list(APPEND archives "${archive}")
      endif()
      get_target_property(more ${package} INTERFACE_LINK_LIBRARIES)
      if(more)
        list(APPEND open ${more})
      endif()
    endif()
  endwhile()
  add_library(zt_absl INTERFACE)
  target_link_libraries(zt_absl INTERFACE Threads::Threads
    "$<IF:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>,${archives},absl::status;absl::statusor>")
  set(ZT_ABSL $<BUILD_INTERFACE:zt_absl> $<INSTALL_INTERFACE:absl::status> $<INSTALL_INTERFACE:absl::statusor>)
endif()
