# What zeropp::cuda stands on: the CUDA runtime of the toolkit that is found, as headers and a library; no language. The
# library is the one that the consumer's own CUDA code is linked with (CUDA_RUNTIME_LIBRARY, static unless told
# otherwise), so that a program never holds two runtimes.
find_package(CUDAToolkit QUIET)
set(zeropp_component_found ${CUDAToolkit_FOUND})
set(zeropp_component_links "")
if(CUDAToolkit_FOUND)
    set(zeropp_component_links
        $<IF:$<STREQUAL:$<TARGET_PROPERTY:CUDA_RUNTIME_LIBRARY>,Shared>,CUDA::cudart,CUDA::cudart_static>)

    # C++20 for consumers that compile CUDA; the others never see it. CMake knows it as a feature since 3.26.
    if(NOT TARGET zeropp_cuda_standard)
        add_library(zeropp_cuda_standard INTERFACE IMPORTED)
        if("cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
            target_compile_features(zeropp_cuda_standard INTERFACE cuda_std_20)
        else()
            target_compile_options(zeropp_cuda_standard INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
        endif()
    endif()
    list(APPEND zeropp_component_links zeropp_cuda_standard)
endif()
