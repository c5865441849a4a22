# cmake -D JSON=FILE -P check_program.cmake -- command... -J FILE
#
# Succeeds if the command does, and in every row of its file elements were checked and none was wrong.
#
# cmake -D PROGRAM=NAME -D REFUSAL=REGEX -P check_program.cmake -- command...
#
# Succeeds if the command ends with 2 and one line with the reason, with any number of ranks.
include(${CMAKE_CURRENT_LIST_DIR}/../../tests/support/command_after_separator.cmake)

if(DEFINED JSON)
    file(REMOVE ${JSON})
endif()
execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
message("${output}")

if(DEFINED REFUSAL)
    if(NOT result STREQUAL "2")
        message(FATAL_ERROR "ended with ${result}, expected 2")
    endif()
    string(REGEX MATCHALL "(^|\n)${PROGRAM}: [^\n]*" lines "${output}")
    list(LENGTH lines count)
    if(NOT count EQUAL 1 OR NOT lines MATCHES "${REFUSAL}")
        message(FATAL_ERROR "expected one line with: ${REFUSAL}")
    endif()
    return()
endif()

if(NOT result STREQUAL "0")
    message(FATAL_ERROR "ended with ${result}")
endif()
file(READ ${JSON} json)
string(JSON rows LENGTH "${json}" rows)
if(rows EQUAL 0)
    message(FATAL_ERROR "no rows in ${JSON}")
endif()
math(EXPR last "${rows} - 1")
foreach(row RANGE ${last})
    set(checked 0)
    # Rows of the codec have one result, rows of collectives up to two, and unquantized ones.
    foreach(result IN ITEMS wrong out_of_place in_place native_fp32 native_bf16 ours_bf16)
        string(JSON type ERROR_VARIABLE absent TYPE "${json}" rows ${row} ${result})
        if(type STREQUAL "OBJECT")
            string(JSON wrong GET "${json}" rows ${row} ${result} wrong)
        elseif(type STREQUAL "NUMBER")
            string(JSON wrong GET "${json}" rows ${row} ${result})
        else()
            continue()
        endif()
        if(NOT wrong STREQUAL "0")
            message(FATAL_ERROR "row ${row}, ${result}: '${wrong}' wrong elements, expected 0")
        endif()
        math(EXPR checked "${checked} + 1")
    endforeach()
    if(checked EQUAL 0)
        message(FATAL_ERROR "row ${row}: nothing was checked")
    endif()
endforeach()
