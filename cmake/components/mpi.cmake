# What zeropp::mpi stands on. The build and the installed package both read this file.
# MPI::MPI_CXX is the C API as C++ sees it, and needs no C compiler in the consumer's project.
find_package(MPI QUIET COMPONENTS CXX)
set(zeropp_component_found ${MPI_CXX_FOUND})
set(zeropp_component_links MPI::MPI_CXX)
