# zeropp::c is a library: an installation has it if ZEROPP_BUILD_C was on.
set(zeropp_component_found OFF)
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/c-targets.cmake)
    include(${CMAKE_CURRENT_LIST_DIR}/c-targets.cmake)
    set(zeropp_component_found ON)
endif()
