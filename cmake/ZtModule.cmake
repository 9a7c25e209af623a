# zt_module, zt_test, zt_bench: so that every list below the root is names only.

# zt_module(NAME INTERFACE unit.cppm... [INTERNAL part.cppm...] [SOURCES unit.cc...] [PLAIN kernel.cc...] [DEPS zt_x...]
#           [PRIVATE lib...] [PUBLIC lib...])
#
# One folder, one named module, one static library zt_NAME. DEPS are the modules it imports; an import of
# anything else is found by tests/lint.sh. INTERNAL partitions are for the module's own .cc files and are not installed. PLAIN
# sources hold no module code (Highway kernels) and are not scanned.
function(zt_module name)
  cmake_parse_arguments(ARG "" "" "INTERFACE;INTERNAL;SOURCES;PLAIN;DEPS;PRIVATE;PUBLIC" ${ARGN})
  set(target zt_${name})
  if(NOT name STREQUAL std)
    list(PREPEND ARG_DEPS zt_std)
  endif()
  add_library(${target} STATIC)
  add_library(zt::${name} ALIAS ${target})
  target_sources(${target}
    PUBLIC FILE_SET CXX_MODULES BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_INTERFACE}
    PRIVATE ${ARG_SOURCES} ${ARG_PLAIN})
  if(ARG_INTERNAL)
    target_sources(${target}
      PRIVATE FILE_SET internal TYPE CXX_MODULES BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_INTERNAL})
  endif()
  if(ARG_PLAIN)
    set_source_files_properties(${ARG_PLAIN} PROPERTIES CXX_SCAN_FOR_MODULES OFF)
  endif()
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PRIVATE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/modules>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/converters>)
  target_link_libraries(${target} PUBLIC ${ARG_DEPS} ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  set_property(GLOBAL APPEND PROPERTY ZT_MODULE_TARGETS ${target})
endfunction()

# zt_test(name [SOURCES file.cc...] DEPS zt_x...): a GoogleTest program, name.cc unless SOURCES says otherwise, with
# the label `module`; the target module_tests builds them all. ZT_TEST_DATA names tests/data; tests may write below the
# folder in TEST_TMPDIR.
function(zt_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;PRIVATE" ${ARGN})
  if(NOT ARG_SOURCES)
    set(ARG_SOURCES ${name}.cc)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_compile_definitions(${name} PRIVATE ZT_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/modules ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_PRIVATE} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 1800)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS module)
  add_dependencies(module_tests ${name})
endfunction()

# zt_bench(name DEPS zt_x...): a program that measures.
function(zt_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE" ${ARGN})
  if(NOT ARG_SOURCES)
    set(ARG_SOURCES ${name}.cc)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/modules)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_PRIVATE} benchmark::benchmark)
endfunction()
