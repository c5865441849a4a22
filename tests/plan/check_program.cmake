# cmake [-D EXPECT=REGEX] [-D JSON=FILE -D VALUES="KEY... KEY=VALUE|..."] [-D PLOT=FILE] -P check_program.cmake
#       -- command...
#
# Succeeds when the command does, prints what is expected, its JSON file has these values, and its script for
# gnuplot draws a picture (where there is gnuplot).
#
# cmake -D REFUSAL=REGEX -P check_program.cmake -- command...
#
# Succeeds when the command ends with 2, says why in one line, and then how it is used.
include(${CMAKE_CURRENT_LIST_DIR}/../support/command_after_separator.cmake)

foreach(file IN ITEMS "${JSON}" "${PLOT}")
    if(file)
        file(REMOVE "${file}" "${file}.png")
    endif()
endforeach()
execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE complaint)
message("${output}${complaint}")

if(DEFINED REFUSAL)
    if(NOT result STREQUAL "2")
        message(FATAL_ERROR "ended with ${result}, expected 2")
    endif()
    if(NOT complaint MATCHES "^zeropp-plan: [^\n]*\nusage: [^\n]*\n[^\n]*\n$" OR NOT complaint MATCHES "${REFUSAL}")
        message(FATAL_ERROR "expected one line with: ${REFUSAL}, and the usage")
    endif()
    return()
endif()

if(NOT result STREQUAL "0" OR NOT complaint STREQUAL "")
    message(FATAL_ERROR "ended with ${result}")
endif()
if(DEFINED EXPECT AND NOT output MATCHES "${EXPECT}")
    message(FATAL_ERROR "expected: ${EXPECT}")
endif()

if(DEFINED JSON)
    file(READ ${JSON} json)
    string(REPLACE "|" ";" values "${VALUES}")
    foreach(value IN LISTS values)
        string(REGEX MATCH "^(.*)=(.*)$" matched "${value}")
        set(expected ${CMAKE_MATCH_2})
        separate_arguments(path UNIX_COMMAND "${CMAKE_MATCH_1}")
        string(JSON found GET "${json}" ${path})
        if(NOT found STREQUAL expected)
            message(FATAL_ERROR "${path} is ${found}, expected ${expected}")
        endif()
    endforeach()
endif()

if(DEFINED PLOT)
    find_program(gnuplot gnuplot)
    if(NOT gnuplot)
        message(STATUS "no gnuplot here: the script was not tried")
        return()
    endif()
    execute_process(COMMAND ${gnuplot} ${PLOT} RESULT_VARIABLE result ERROR_VARIABLE complaint)
    if(NOT result STREQUAL "0" OR complaint OR NOT EXISTS ${PLOT}.png)
        message(FATAL_ERROR "gnuplot ended with ${result}: ${complaint}")
    endif()
    file(SIZE ${PLOT}.png size)
    if(size LESS 5000)
        message(FATAL_ERROR "${PLOT}.png has ${size} bytes")
    endif()
endif()
