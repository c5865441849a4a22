# Programs that run on a GPU. Where they are not built (ZEROPP_BUILD_GPU is off) or there is no GPU, their tests are
# still there, and skipped.

if(ZEROPP_BUILD_GPU)
    if(NOT TARGET zeropp::cuda)
        message(FATAL_ERROR "zeropp: ZEROPP_BUILD_GPU is ON, but no CUDA toolkit was found")
    endif()
    if(NOT CMAKE_CUDA_ARCHITECTURES)
        set(CMAKE_CUDA_ARCHITECTURES native)
    endif()
    enable_language(CUDA)
    add_custom_target(zeropp_gpu)
endif()

# zeropp_add_gpu_program(NAME source... [LIBRARIES target...]): a program in the build directory's gpu/, which
# tests/gpu.sh can run elsewhere. Part of the target zeropp_gpu.
function(zeropp_add_gpu_program name)
    cmake_parse_arguments(PARSE_ARGV 1 program "" "" LIBRARIES)
    add_executable(${name} ${program_UNPARSED_ARGUMENTS})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/gpu)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${name} PRIVATE zeropp::cuda ${program_LIBRARIES} zeropp_build_flags)
    add_dependencies(zeropp_gpu ${name})
endfunction()

# zeropp_add_gpu_run(TEST_NAME TARGET TIMEOUT seconds): a ctest, one at a time, of a program that ends with 77 where it
# cannot run. Skipped if there is no such target.
function(zeropp_add_gpu_run test target timeout)
    if(TARGET ${target})
        add_test(NAME ${test} COMMAND ${target})
        set_tests_properties(${test} PROPERTIES SKIP_RETURN_CODE 77 RUN_SERIAL ON)
    else()
        add_test(NAME ${test} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${target} was not built; tests/gpu.sh does")
        set_tests_properties(${test} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped:")
    endif()
    set_tests_properties(${test} PROPERTIES TIMEOUT ${timeout} LABELS gpu)
endfunction()
