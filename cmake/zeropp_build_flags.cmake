# What zeropp's own tests, examples and benchmarks are compiled with. Consumers never see these targets.

add_library(zeropp_warnings INTERFACE)
target_compile_options(
    zeropp_warnings
    INTERFACE -Wall
              -Wextra
              -Wpedantic
              -Wconversion
              -Wsign-conversion
              -Wshadow
              -Wnon-virtual-dtor
              -Wold-style-cast
              $<$<BOOL:${ZEROPP_WERROR}>:-Werror>)

add_library(zeropp_sanitizers INTERFACE)
if(ZEROPP_SANITIZE)
    list(JOIN ZEROPP_SANITIZE "," zeropp_sanitize_flag)
    string(PREPEND zeropp_sanitize_flag "-fsanitize=")
    target_compile_options(zeropp_sanitizers INTERFACE ${zeropp_sanitize_flag} -fno-sanitize-recover=all
                                                       -fno-omit-frame-pointer)
    target_link_options(zeropp_sanitizers INTERFACE ${zeropp_sanitize_flag})
endif()

add_library(zeropp_build_flags INTERFACE)
target_link_libraries(zeropp_build_flags INTERFACE zeropp_warnings zeropp_sanitizers)
