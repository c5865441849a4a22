# pkg-config, after an installation that has been moved to another place since; with MPI's own compiler where there is MPI.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
if(NOT PKG_CONFIG)
    message("skipped: there is no pkg-config here")
    return()
endif()
run(${CMAKE_COMMAND} --install ${BINARY_DIR} --prefix ${SCRATCH}/prefix)
file(RENAME ${SCRATCH}/prefix ${SCRATCH}/moved)
set(ENV{PKG_CONFIG_PATH} ${SCRATCH}/moved/share/pkgconfig)
run(${PKG_CONFIG} --exact-version=${VERSION} zeropp)
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs zeropp OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")

# Headers in a place of their own (an absolute CMAKE_INSTALL_INCLUDEDIR) do not move with the rest. CMake refuses one in the
# source tree, where the scratch folder may be.
execute_process(COMMAND mktemp -d OUTPUT_VARIABLE headers OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
run(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${SCRATCH}/apart -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER} -D
    CMAKE_INSTALL_INCLUDEDIR=${headers} -D ZEROPP_BUILD_TESTS=OFF -D ZEROPP_BUILD_EXAMPLES=OFF -D ZEROPP_BUILD_BENCH=OFF)
run(${CMAKE_COMMAND} --install ${SCRATCH}/apart --prefix ${SCRATCH}/prefix)
set(ENV{PKG_CONFIG_PATH} ${SCRATCH}/prefix/share/pkgconfig)
execute_process(COMMAND ${PKG_CONFIG} --cflags-only-I zeropp OUTPUT_VARIABLE include COMMAND_ERROR_IS_FATAL ANY)
string(STRIP "${include}" include)
if(NOT include STREQUAL "-I${headers}" OR NOT EXISTS ${headers}/zeropp/zeropp.hpp)
    message(FATAL_ERROR "expected -I${headers}, with the headers in it, given ${include}")
endif()
file(REMOVE_RECURSE ${headers})

run(${COMPILER} -std=c++20 ${CMAKE_CURRENT_LIST_DIR}/consumer.cpp -o ${SCRATCH}/consumer ${flags})
run(${SCRATCH}/consumer)
if(MPI)
    run(${MPI_COMPILER} -std=c++20 ${CMAKE_CURRENT_LIST_DIR}/consumer_mpi.cpp -o ${SCRATCH}/consumer_mpi ${flags})
    run(${SCRATCH}/consumer_mpi)
endif()
