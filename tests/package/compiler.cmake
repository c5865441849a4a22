# No build system at all: one include directory and one flag for threads.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
run(${COMPILER} -std=c++20 -I ${SOURCE_DIR}/include ${CMAKE_CURRENT_LIST_DIR}/consumer.cpp -o ${SCRATCH}/consumer -pthread)
run(${SCRATCH}/consumer)
