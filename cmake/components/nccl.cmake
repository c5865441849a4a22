# What zeropp::nccl stands on: NCCL and the CUDA runtime. NCCL is looked for where NCCL_ROOT says and beside the
# toolkit; the Python package of NCCL has only the versioned name of the library, which must not make way for another
# folder's unversioned one: headers and library are of one version.
include(${CMAKE_CURRENT_LIST_DIR}/cuda.cmake)
if(zeropp_component_found)
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} ENV NCCL_ROOT ${CUDAToolkit_INCLUDE_DIRS}
              PATH_SUFFIXES include)
    find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR
                 HINTS ${NCCL_ROOT} ENV NCCL_ROOT ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
    mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
    if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
        if(NOT TARGET NCCL::NCCL)
            add_library(NCCL::NCCL UNKNOWN IMPORTED)
            set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
                                                        INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
        endif()
        list(APPEND zeropp_component_links NCCL::NCCL)
    else()
        set(zeropp_component_found OFF)
    endif()
endif()
