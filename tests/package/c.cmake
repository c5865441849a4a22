# The C library, found by a project that knows no C++, after an installation that has been moved to another place since.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
run(${CMAKE_COMMAND} --install ${BINARY_DIR} --prefix ${SCRATCH}/prefix)
file(RENAME ${SCRATCH}/prefix ${SCRATCH}/moved)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer_c -B ${SCRATCH}/build -G ${GENERATOR} -D
    CMAKE_PREFIX_PATH=${SCRATCH}/moved)
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
run(${SCRATCH}/build/consumer)

# Only the interface's names leave the library.
execute_process(COMMAND nm -D --defined-only ${LIBRARY} OUTPUT_VARIABLE names COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^ \n]+\n" names "${names}")
list(FILTER names EXCLUDE REGEX "^zeropp_")
if(NOT names STREQUAL "")
    message(FATAL_ERROR "expected exported names zeropp_*, given also ${names}")
endif()
