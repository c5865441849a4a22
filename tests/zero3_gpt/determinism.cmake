# cmake -D CONFIGS=FILE... -D CHUNKS=COUNT -D FOLDER=FOLDER -D ARGUMENTS=ARGUMENT... -D THREADS=COMMAND... -D MPI=COMMAND...
#       -P determinism.cmake
#
# Succeeds when training gives the same bits again: on threads, with more threads that quantize, with gradients reduced in one
# chunk and in COUNT, and on MPI, unless that is empty. Bits are those of all losses, and of the weights that the
# last step trains with.
file(REMOVE_RECURSE ${FOLDER})

# The same configurations, of the same names, with gradients in chunks.
set(chunked "")
foreach(config IN LISTS CONFIGS)
    file(READ ${config} json)
    string(JSON json SET "${json}" zeropp gradient_chunks ${CHUNKS})
    cmake_path(GET config FILENAME name)
    file(WRITE ${FOLDER}/${name} "${json}")
    list(APPEND chunked ${FOLDER}/${name})
endforeach()

# The files of a run, which have to be those of the first.
function(train run command configs)
    file(MAKE_DIRECTORY ${FOLDER}/${run})
    execute_process(COMMAND ${command} ${configs} ${ARGUMENTS} --curve ${FOLDER}/${run}/losses --dump ${FOLDER}/${run}
                    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT result STREQUAL "0")
        message(FATAL_ERROR "${run}: ended with ${result}: ${output}")
    endif()
    file(GLOB files RELATIVE ${FOLDER}/${run} ${FOLDER}/${run}/*)
    if(NOT DEFINED first_files)
        file(READ ${FOLDER}/${run}/losses losses)
        message("${losses}")
        set(first_files ${files} PARENT_SCOPE)
        set(first_run ${run} PARENT_SCOPE)
        return()
    endif()
    if(NOT files STREQUAL first_files)
        message(FATAL_ERROR "${run} wrote ${files}, and ${first_run} ${first_files}")
    endif()
    foreach(file IN LISTS files)
        file(SHA256 ${FOLDER}/${first_run}/${file} expected)
        file(SHA256 ${FOLDER}/${run}/${file} given)
        if(NOT given STREQUAL expected)
            message(FATAL_ERROR "${file} of ${run} differs from that of ${first_run}: compare them in ${FOLDER}")
        endif()
    endforeach()
    message("${run}: the bits of ${first_run}")
endfunction()

train(threads "${THREADS}" "${CONFIGS}")
train(codec_threads "${THREADS};--codec-threads;3" "${CONFIGS}")
train(threads_in_chunks "${THREADS}" "${chunked}")
if(MPI)
    train(mpi "${MPI}" "${CONFIGS}")
    train(mpi_in_chunks "${MPI}" "${chunked}")
endif()
