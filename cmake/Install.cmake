# What `cmake --install` lays down beside the program: the libraries, their interfaces, the package ztstream.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ztstream)

# ztstream::ztstream is the module zt, which brings the others along (an INTERFACE library would not: CMake looks for
# interfaces to build only through libraries that have some).
get_property(modules GLOBAL PROPERTY ZT_MODULE_TARGETS)
set_target_properties(zt_all PROPERTIES EXPORT_NAME ztstream)

# Interfaces are installed as sources: whoever imports them builds them with flags of its own.
install(TARGETS ${modules} EXPORT ztstream-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET CXX_MODULES DESTINATION ${package_dir}/interfaces)
install(EXPORT ztstream-targets NAMESPACE ztstream:: DESTINATION ${package_dir} CXX_MODULES_DIRECTORY cxx-modules)

# CMake writes the source folder's path into cxx-modules/; the installed interfaces are what is meant.
install(CODE "
  file(GLOB files \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${package_dir}/cxx-modules/*.cmake\")
  foreach(file IN LISTS files)
    file(READ \"\${file}\" text)
    string(REPLACE \"${PROJECT_SOURCE_DIR}/\" \"\\\${_IMPORT_PREFIX}/${package_dir}/interfaces/\" text \"\${text}\")
    file(WRITE \"\${file}\" \"\${text}\")
  endforeach()")

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ztstream-config.cmake.in
  ${PROJECT_BINARY_DIR}/ztstream-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ztstream-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ztstream-config.cmake ${PROJECT_BINARY_DIR}/ztstream-config-version.cmake
  DESTINATION ${package_dir})
