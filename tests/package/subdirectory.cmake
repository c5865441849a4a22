# add_subdirectory, which is also what FetchContent does.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
build_and_run(${CMAKE_CURRENT_LIST_DIR}/consumer_subdirectory -D ZEROPP_SOURCE_DIR=${SOURCE_DIR})
