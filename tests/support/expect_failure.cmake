# cmake -D EXPECT=REGEX -P expect_failure.cmake -- command...
#
# Succeeds if the command fails and its output matches REGEX. Tests checks themselves: a check that cannot fail checks
# nothing. (ctest's WILL_FAIL ignores the reason and does not accept an abort.)
include(${CMAKE_CURRENT_LIST_DIR}/command_after_separator.cmake)

execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(REPLACE "\n" "\n    " output "${output}")
message("    ${output}")
if(result STREQUAL "0")
    message(FATAL_ERROR "succeeded, but should have failed with: ${EXPECT}")
endif()
if(NOT output MATCHES "${EXPECT}")
    message(FATAL_ERROR "failed (${result}), but not with: ${EXPECT}")
endif()
