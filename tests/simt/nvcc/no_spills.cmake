# cmake -D NVCC=... -D SOURCE=file -D ARCHITECTURE=90 -D INCLUDE_DIR=... -D OUTPUT=path -P no_spills.cmake
#
# Compiles SOURCE for one GPU generation, warnings being errors, and fails where ptxas reports a stack frame or a spilled
# register for any kernel: both are traffic to memory that the kernels exist to avoid. The host's part is left out.
execute_process(
    COMMAND ${NVCC} -std=c++20 -O3 -arch=sm_${ARCHITECTURE} -cubin --Werror all-warnings -Xcompiler -Wall,-Wextra -Xptxas
            -v -I ${INCLUDE_DIR} ${SOURCE} -o ${OUTPUT}.cubin
    RESULT_VARIABLE result
    OUTPUT_VARIABLE report
    ERROR_VARIABLE report)
file(WRITE ${OUTPUT}.txt "${report}")
if(NOT result EQUAL 0)
    message(FATAL_ERROR "${report}\nnvcc failed: ${result}")
endif()

# ptxas says for each kernel: which one, then its stack frame and spills, then its registers.
string(REGEX MATCHALL "Compiling entry function '[^']*'|[^\n]*bytes stack frame[^\n]*|Used [0-9]+ registers" facts
       "${report}")
set(kernels 0)
set(failures "")
set(most 0)
foreach(fact IN LISTS facts)
    if(fact MATCHES "^Compiling entry function '([^']*)'")
        set(kernel ${CMAKE_MATCH_1})
        math(EXPR kernels "${kernels} + 1")
    elseif(fact MATCHES "^Used ([0-9]+) registers")
        if(CMAKE_MATCH_1 GREATER most)
            set(most ${CMAKE_MATCH_1})
        endif()
    elseif(NOT fact MATCHES "^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads")
        string(APPEND failures "${kernel}\n${fact}\n")
    endif()
endforeach()
message("${kernels} kernels for sm_${ARCHITECTURE}, ${most} registers at most (all of them: ${OUTPUT}.txt)")
if(kernels EQUAL 0)
    message(FATAL_ERROR "${report}\nptxas reports no kernel")
endif()
if(failures)
    message(FATAL_ERROR "spills or stack frames:\n${failures}")
endif()
