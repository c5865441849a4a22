# cmake -D EXPECT=REGEX -P expect_failure.cmake -- command...
#
# Succeeds when the command fails and says what is expected. For tests of the checks themselves: a check that cannot
# fail checks nothing. (ctest's own WILL_FAIL does not look at the reason, and does not accept an abort.)
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
