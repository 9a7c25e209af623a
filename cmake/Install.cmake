# What `cmake --install` lays down: the libraries, their module interfaces, the package ztstream, the program.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ztstream)

# ztstream::ztstream: every module, as one thing to link.
get_property(modules GLOBAL PROPERTY ZT_MODULE_TARGETS)
add_library(ztstream_modules INTERFACE)
set_target_properties(ztstream_modules PROPERTIES EXPORT_NAME ztstream)
target_link_libraries(ztstream_modules INTERFACE ${modules})

# Interfaces are installed as sources: whoever imports them builds them with flags of its own.
install(TARGETS ztstream_modules ${modules} EXPORT ztstream-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET CXX_MODULES DESTINATION ${package_dir}/interfaces)
install(EXPORT ztstream-targets NAMESPACE ztstream:: DESTINATION ${package_dir} CXX_MODULES_DIRECTORY cxx-modules)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ztstream-config.cmake.in
  ${PROJECT_BINARY_DIR}/ztstream-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ztstream-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ztstream-config.cmake ${PROJECT_BINARY_DIR}/ztstream-config-version.cmake
  DESTINATION ${package_dir})

if(TARGET ztstream)
  install(TARGETS ztstream RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
