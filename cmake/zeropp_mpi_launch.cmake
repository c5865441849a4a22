# zeropp_add_mpi_run(TEST_NAME RANKS COMMAND args...): a ctest that starts RANKS processes of a program on this machine.
#
# It must work where MPI programs usually do not run: as root, in a container, on fewer cores than ranks, without ssh.

set(zeropp_mpi_flags "")
set(zeropp_mpi_environment "")
if(TARGET zeropp::mpi)
    execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE zeropp_mpi_version ERROR_QUIET)
    if(zeropp_mpi_version MATCHES "Open MPI|OpenRTE|PRTE")
        # --bind-to none: two tests at a time would otherwise share the first cores and leave the rest idle.
        # vader's cross-memory attach needs a capability that containers take away; it warns about it in every run.
        set(zeropp_mpi_flags --oversubscribe --allow-run-as-root --bind-to none --mca btl_vader_single_copy_mechanism
                             none)
        # Open MPI looks for ssh even when it starts nothing on another machine.
        set(zeropp_mpi_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent=sh)
    endif()
endif()

function(zeropp_add_mpi_run name ranks)
    add_test(NAME ${name} COMMAND ${MPIEXEC_EXECUTABLE} ${zeropp_mpi_flags} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${ARGN})
    set_tests_properties(${name} PROPERTIES PROCESSORS ${ranks} ENVIRONMENT "${zeropp_mpi_environment}")
endfunction()
