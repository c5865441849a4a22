# What the package tests have in common.

# Runs a command and fails with its output, unless it succeeds.
function(run)
    execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    message("${output}")
    if(NOT result STREQUAL "0")
        list(JOIN ARGV " " command)
        message(FATAL_ERROR "failed (${result}): ${command}")
    endif()
endfunction()

# Configures, builds and runs the consumer project in SOURCE; further arguments go to its configuration.
function(build_and_run source)
    run(${CMAKE_COMMAND} -S ${source} -B ${SCRATCH}/build -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER} -D
        WITH_MPI=${MPI} -D WITH_CHECKSUMMED=${CHECKSUMMED} ${ARGN})
    run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
    run(${SCRATCH}/build/consumer)
    if(MPI)
        run(${SCRATCH}/build/consumer_mpi)
    endif()
    if(CHECKSUMMED)
        run(${SCRATCH}/build/consumer_checksummed)
    endif()
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
file(MAKE_DIRECTORY ${SCRATCH})
