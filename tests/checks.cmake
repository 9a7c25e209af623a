# Checks that are no GoogleTest program: the house rules (every run), and CI's longer ones (ctest -C Ci, scripts/test.sh --ci).

# The house rules and the formatting.
add_test(NAME lint COMMAND ${PROJECT_SOURCE_DIR}/tests/lint.sh)
set_tests_properties(lint PROPERTIES LABELS style TIMEOUT 600)

# examples/exporter, a project of its own, builds against the installed package and runs.
add_test(NAME install COMMAND ${PROJECT_SOURCE_DIR}/tests/install/run.sh ${PROJECT_BINARY_DIR}
  $<$<TARGET_EXISTS:ztstream>:$<TARGET_FILE:ztstream>>)
set_tests_properties(install PROPERTIES LABELS ci PROCESSORS 2 TIMEOUT 1800)

# examples/classic, in C, C++17 and Python, builds against libztstream with the system's own compiler and runs.
find_program(ZT_GXX g++)
find_program(ZT_MAKE make)
if(TARGET ztstream_c AND ZT_GXX AND ZT_MAKE AND ZT_PYTHON)
  add_test(NAME classic COMMAND ${PROJECT_SOURCE_DIR}/tests/install/classic.sh ${PROJECT_BINARY_DIR}
    $<TARGET_FILE:ztstream>)
  set_tests_properties(classic PROPERTIES LABELS ci TIMEOUT 600)
endif()

# A Slurm of one node converts in shards: docs/CLUSTER.md as it stands. Skipped where Slurm is not installed.
if(TARGET ztstream AND ZT_PYTHON)
  add_test(NAME cluster CONFIGURATIONS Ci COMMAND ${PROJECT_SOURCE_DIR}/scripts/try-slurm.sh)
  set_tests_properties(cluster PROPERTIES LABELS ci TIMEOUT 900 SKIP_RETURN_CODE 77
    ENVIRONMENT "ZTSTREAM=$<TARGET_FILE:ztstream>")
endif()

# What the thread sanitizer runs, beside the end-to-end tests with this label.
add_custom_target(thread_tests)
foreach(test IN ITEMS pipeline_test numbered_test writer_test random_writer_test reader_test sink_test compress_test fault_test)
  if(TARGET ${test})
    set_property(TEST ${test} APPEND PROPERTY LABELS threads)
    add_dependencies(thread_tests ${test})
  endif()
endforeach()
if(TARGET ztstream)
  add_dependencies(thread_tests ztstream)
endif()

# zt_ci_check(stage TIMEOUT seconds): scripts/check.sh STAGE as a test of the Ci configuration, alone on the
# machine. Each builds a preset of its own below build/.
function(zt_ci_check stage)
  cmake_parse_arguments(ARG "" "TIMEOUT" "" ${ARGN})
  add_test(NAME ci_${stage} CONFIGURATIONS Ci COMMAND ${PROJECT_SOURCE_DIR}/scripts/check.sh ${stage})
  set_tests_properties(ci_${stage} PROPERTIES LABELS ci RUN_SERIAL ON TIMEOUT ${ARG_TIMEOUT})
endfunction()

if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  # Every exported name is documented where it is declared, or this fails. Skipped without doxygen.
  add_test(NAME reference COMMAND ${PROJECT_SOURCE_DIR}/scripts/docs.sh)
  set_tests_properties(reference PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)
  # Other hosts: built here, tried under qemu-user, compared with what this one writes. Skipped, and said, without qemu-user.
  if(TARGET ztstream)
    foreach(arch IN ITEMS arm64 s390x)
      add_test(NAME host_${arch} CONFIGURATIONS Ci COMMAND ${PROJECT_SOURCE_DIR}/scripts/try-host.sh ${arch} --short)
      set_tests_properties(host_${arch} PROPERTIES LABELS ci RUN_SERIAL ON TIMEOUT 3600 SKIP_RETURN_CODE 77)
    endforeach()
  endif()
  zt_ci_check(tidy TIMEOUT 2400)
  zt_ci_check(tsan TIMEOUT 2400)
  zt_ci_check(asan+fuzz TIMEOUT 2400)
endif()
