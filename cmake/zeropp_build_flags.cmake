# What zeropp's own tests, examples and benchmarks are compiled with. Consumers never see these targets.

add_library(zeropp_warnings INTERFACE)
set(zeropp_warning_flags
    -Wall
    -Wextra
    -Wpedantic
    -Wconversion
    -Wsign-conversion
    -Wshadow
    -Wnon-virtual-dtor
    -Wold-style-cast
    $<$<BOOL:${ZEROPP_WERROR}>:-Werror>)
target_compile_options(zeropp_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${zeropp_warning_flags}>")
# nvcc hands the host compiler code of its own making, which is neither pedantic nor free of old casts. GCC 12 at -O3
# takes an empty std::optional for an uninitialised one.
set(zeropp_cuda_warning_flags -Wall,-Wextra,-Wshadow,-Wnon-virtual-dtor,-Wno-maybe-uninitialized)
target_compile_options(
    zeropp_warnings
    INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${zeropp_cuda_warning_flags}>
              $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${ZEROPP_WERROR}>>:--Werror=all-warnings>
              $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${ZEROPP_WERROR}>>:-Xcompiler=-Werror>)

add_library(zeropp_sanitizers INTERFACE)
if(ZEROPP_SANITIZE)
    list(JOIN ZEROPP_SANITIZE "," zeropp_sanitize_flag)
    string(PREPEND zeropp_sanitize_flag "-fsanitize=")
    target_compile_options(zeropp_sanitizers INTERFACE ${zeropp_sanitize_flag} -fno-sanitize-recover=all
                                                       -fno-omit-frame-pointer)
    target_link_options(zeropp_sanitizers INTERFACE ${zeropp_sanitize_flag})
endif()

# GCC compiles these programs a tenth faster if it collects no garbage before it holds a gigabyte.
add_library(zeropp_compiler_memory INTERFACE)
target_compile_options(
    zeropp_compiler_memory INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-expand=100
                                     --param=ggc-min-heapsize=1000000>)

add_library(zeropp_build_flags INTERFACE)
target_link_libraries(zeropp_build_flags INTERFACE zeropp_warnings zeropp_sanitizers zeropp_compiler_memory)

# zeropp_precompile_umbrella(target...): these take the umbrella from a header that is compiled once for all of them. It does not
# pay with more headers in it, such as CLI11's and nlohmann's: to load it then takes longer than to parse the umbrella.
function(zeropp_precompile_umbrella)
    if(NOT TARGET zeropp_precompiled)
        file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cpp CONTENT "")
        add_library(zeropp_precompiled OBJECT ${PROJECT_BINARY_DIR}/precompiled.cpp)
        target_link_libraries(zeropp_precompiled PRIVATE zeropp::zeropp zeropp_build_flags)
        target_precompile_headers(zeropp_precompiled PRIVATE <zeropp/zeropp.hpp>)
    endif()
    foreach(target IN LISTS ARGN)
        target_precompile_headers(${target} REUSE_FROM zeropp_precompiled)
    endforeach()
endfunction()
