# Counts with valgrind's lackey what the collectives load and store for a list of tensors, and fails where that is more than
# 1.02 of what they do for one tensor of the same total: a copy into a bucket, or out of one, for one of the collectives is a tenth more.
#
#   cmake -D valgrind=FILE -D program=FILE -P bytes_moved.cmake
cmake_minimum_required(VERSION 3.25)

# Sets `bytes` to what the program loads and stores in all.
function(count_bytes what bytes)
    execute_process(COMMAND ${valgrind} --tool=lackey --basic-counts=no --detailed-counts=yes --fair-sched=yes
                            ${program} ${what}
                    OUTPUT_QUIET ERROR_VARIABLE counts COMMAND_ERROR_IS_FATAL ANY)
    set(sum 0)
    foreach(type IN ITEMS I8 I16 I32 I64 F32 F64 V128 V256)
        string(REGEX MATCH "[0-9]+$" bits ${type})
        if(NOT counts MATCHES " ${type} +([0-9,]+) +([0-9,]+) ")
            message(FATAL_ERROR "valgrind says nothing of ${type}:\n${counts}")
        endif()
        string(REPLACE "," "" loads ${CMAKE_MATCH_1})
        string(REPLACE "," "" stores ${CMAKE_MATCH_2})
        math(EXPR sum "${sum} + (${loads} + ${stores}) * ${bits} / 8")
    endforeach()
    set(${bytes} ${sum} PARENT_SCOPE)
endfunction()

count_bytes(none without)
count_bytes(one one)
count_bytes(list list)
math(EXPR one "${one} - ${without}")
math(EXPR list "${list} - ${without}")
math(EXPR thousandths "${list} * 1000 / ${one}")
message("one tensor: ${one} bytes, a list: ${list} bytes, ${thousandths} thousandths of it")
if(thousandths GREATER 1020 OR thousandths LESS 900)
    message(FATAL_ERROR "expected at most 1020, and something like 1000")
endif()
