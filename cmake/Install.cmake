# What `cmake --install` lays down beside the program: the libraries, their interfaces, the package ztstream.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ztstream)

# ztstream::ztstream is the module zt, which brings the others along (an INTERFACE library would not: CMake looks for
# interfaces to build only through libraries that have some).
get_property(modules GLOBAL PROPERTY ZT_MODULE_TARGETS)
list(REMOVE_ITEM modules zt_cli zt_capi)  # the program's and the C interface's own
set_target_properties(zt_all PROPERTIES EXPORT_NAME ztstream)
add_library(ztstream::ztstream ALIAS zt_all)

# Interfaces are installed as sources: whoever imports them builds them with flags of its own.
install(TARGETS ${modules} EXPORT ztstream-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
  FILE_SET CXX_MODULES DESTINATION ${package_dir}/interfaces COMPONENT dev)
install(EXPORT ztstream-targets NAMESPACE ztstream:: DESTINATION ${package_dir} CXX_MODULES_DIRECTORY cxx-modules
  COMPONENT dev)

# CMake writes the source folder's path into cxx-modules/; the installed interfaces are what is meant.
install(CODE "
  file(GLOB files \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${package_dir}/cxx-modules/*.cmake\")
  foreach(file IN LISTS files)
    file(READ \"\${file}\" text)
    string(REPLACE \"${PROJECT_SOURCE_DIR}/\" \"\\\${_IMPORT_PREFIX}/${package_dir}/interfaces/\" text \"\${text}\")
    file(WRITE \"\${file}\" \"\${text}\")
  endforeach()" COMPONENT dev)

list(TRANSFORM modules REPLACE "^zt_all$" "ztstream" OUTPUT_VARIABLE ztstream_targets)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ztstream-config.cmake.in
  ${PROJECT_BINARY_DIR}/ztstream-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ztstream-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ztstream-config.cmake ${PROJECT_BINARY_DIR}/ztstream-config-version.cmake
  DESTINATION ${package_dir} COMPONENT dev)

# What belongs to the program, where the system looks for it.
install(FILES ${PROJECT_SOURCE_DIR}/docs/man/ztstream.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES ${PROJECT_SOURCE_DIR}/completions/ztstream.bash RENAME ztstream
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
install(FILES ${PROJECT_SOURCE_DIR}/completions/_ztstream
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT program)
install(FILES ${PROJECT_SOURCE_DIR}/completions/ztstream.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE RENAME copyright
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/ztstream COMPONENT program)

# The Python package over the library of libztstream0, without a copy of it. scripts/wheel.sh writes the one with its own.
if(TARGET ztstream_c)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/ztstream DESTINATION lib/python3/dist-packages COMPONENT python EXCLUDE_FROM_ALL
    FILES_MATCHING PATTERN "*.py" PATTERN "py.typed")
endif()

# Packages are made of what is built; the tests need not be.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

# `cpack -G DEB` in the build folder: ztstream (the program), ztstream-dev (the modules), libztstream0 and libztstream-dev
# (the C interface for every compiler and language), python3-ztstream.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ztstream)
set(CPACK_PACKAGE_CONTACT "ztstream <ztstream@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has a description of its own, whose first line is the summary
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program dev c cdev)
if(TARGET ztstream_c)
  list(APPEND CPACK_COMPONENTS_ALL python)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
if(CMAKE_CROSSCOMPILING)  # cpack would name the host that it runs on, and can ask for the packages of that one alone
  string(REGEX REPLACE "^aarch64$" "arm64" CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR})
endif()
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME ztstream)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "libcurl4")  # loaded when the first URL is opened
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "convert weights of neural networks into zTensor files\n\
Streams safetensors, npy, GGUF, PyTorch, ONNX, HDF5 and Keras files into .zt files, and .zt files into safetensors, npy and GGUF. \
Lists, compares and verifies them.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME ztstream-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_DESCRIPTION "C++20 modules to read and write zTensor files\n\
Interfaces and archives for projects that import the module zt, with a CMake package. They need clang 19.")
set(CPACK_DEBIAN_C_PACKAGE_NAME libztstream0)
set(CPACK_DEBIAN_C_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_C_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_C_PACKAGE_RECOMMENDS "libcurl4")
set(CPACK_DEBIAN_C_DESCRIPTION "library to read and write zTensor files\n\
The shared library behind a C interface, for programs in C, C++17, Python and other languages.")
set(CPACK_DEBIAN_CDEV_PACKAGE_NAME libztstream-dev)
set(CPACK_DEBIAN_CDEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_CDEV_DESCRIPTION "headers of the zTensor library for C and C++17\n\
Headers for any compiler, a CMake package and a file for pkg-config.")
set(CPACK_DEBIAN_CDEV_PACKAGE_DEPENDS "libztstream0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-ztstream)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_DESCRIPTION "zTensor files in numpy and torch\n\
Opens checkpoints of every format that ztstream reads as arrays and tensors, and writes .zt files.")
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3, libztstream0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS "python3-numpy, ztstream")
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/PackageTools.cmake)
# What cmake/ztstream-config.cmake.in looks for.
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libabsl-dev, libzstd-dev, libhwy-dev, libcbor-dev, libsimdjson-dev, libssl-dev, \
libxxhash-dev, zlib1g-dev, libdeflate-dev, libutf8proc-dev, pkg-config")
if(ZT_HDF5)
  string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", libhdf5-dev")
endif()
# What a project that imports the modules is built with.
set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS "clang-19, clang-tools-19, lld-19, ninja-build")
include(CPack)
