# cmake -D COMPILER=... -D INCLUDE_DIR=... -D SOURCE=file -P expect_error.cmake
#
# Succeeds when SOURCE does not compile and the compiler says what the file's first line, "// expect: REGEX", asks for.
# The regex is CMake's, and has to match what g++ and what clang++ print. A line "// flags: ..." adds options.
file(STRINGS ${SOURCE} first_line LIMIT_COUNT 1)
file(STRINGS ${SOURCE} flags LIMIT_COUNT 1 REGEX "^// flags: ")
if(NOT first_line MATCHES "^// expect: (.+)$")
    message(FATAL_ERROR "the first line must be \"// expect: REGEX\": ${SOURCE}")
endif()
set(expect "${CMAKE_MATCH_1}")
string(REPLACE "// flags: " "" flags "${flags}")
separate_arguments(flags UNIX_COMMAND "${flags}")

# LC_ALL: the messages must not be translated, nor their quotes be typographic.
execute_process(
    COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C ${COMPILER} -std=c++20 -fsyntax-only ${flags} -I ${INCLUDE_DIR} ${SOURCE}
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
message("${output}")
if(result STREQUAL "0")
    message(FATAL_ERROR "compiles, and must not: ${SOURCE}")
endif()
if(NOT output MATCHES "${expect}")
    message(FATAL_ERROR "fails for another reason than \"${expect}\": ${SOURCE}")
endif()
