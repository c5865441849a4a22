# find_package, after an installation that has been moved to another place since.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
run(${CMAKE_COMMAND} --install ${BINARY_DIR} --prefix ${SCRATCH}/prefix)
file(RENAME ${SCRATCH}/prefix ${SCRATCH}/moved)
build_and_run(${CMAKE_CURRENT_LIST_DIR}/consumer_installed -D CMAKE_PREFIX_PATH=${SCRATCH}/moved)

# A component that does not exist is an error of find_package, not of the first line that needs it.
execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer_installed -B ${SCRATCH}/build_absent -G ${GENERATOR} -D
            CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_PREFIX_PATH=${SCRATCH}/moved -D EXTRA_COMPONENT=absent
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
if(result STREQUAL "0" OR NOT output MATCHES "absent")
    message(FATAL_ERROR "find_package(zeropp COMPONENTS absent) did not fail by name:\n${output}")
endif()
