# Checks that are no GoogleTest program: the house rules (every run), and CI's longer ones (ctest -C Ci, .ci/run).

# The house rules and the formatting.
add_test(NAME lint COMMAND ${PROJECT_SOURCE_DIR}/tests/lint.sh)
set_tests_properties(lint PROPERTIES LABELS style TIMEOUT 120)

# A project outside the tree builds against the installed package and runs.
add_test(NAME install CONFIGURATIONS Ci COMMAND ${PROJECT_SOURCE_DIR}/tests/install/run.sh ${PROJECT_BINARY_DIR}
  $<$<TARGET_EXISTS:ztstream>:$<TARGET_FILE:ztstream>>)
set_tests_properties(install PROPERTIES LABELS ci RUN_SERIAL ON TIMEOUT 600)

# zt_ci_check(stage TIMEOUT seconds): scripts/check.sh STAGE as a test of the Ci configuration, alone on the
# machine. Each builds a preset of its own below build/.
function(zt_ci_check stage)
  cmake_parse_arguments(ARG "" "TIMEOUT" "" ${ARGN})
  add_test(NAME ci_${stage} CONFIGURATIONS Ci COMMAND ${PROJECT_SOURCE_DIR}/scripts/check.sh ${stage})
  set_tests_properties(ci_${stage} PROPERTIES LABELS ci RUN_SERIAL ON TIMEOUT ${ARG_TIMEOUT})
endfunction()

if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  zt_ci_check(tidy TIMEOUT 1200)
  zt_ci_check(asan TIMEOUT 1800)
endif()
