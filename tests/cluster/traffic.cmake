# cmake -D CLUSTER=cluster.sh -D PROGRAM=cluster_traffic -D COLLECTIVE=name -D SITES=s -D NODES=n -D PER_NODE=r
#       -D SCRATCH=folder -P traffic.cmake
#
# Runs one collective on a cluster and holds what crossed the interface of each node, and the link of each of several sites,
# against what `counting` says it has sent. The messages of all ranks are as long, so each receives as much as it sends.
#
# With p the bytes by `counting`, an interface must have carried at least
#     p + the headers of p: 54 bytes of Ethernet, IP and TCP in each frame, of at most 8960 bytes of data
# and at most
#     1.01 p                for Open MPI's own headers
#   + its headers           66 bytes with TCP's timestamps, in frames of at most 8948 bytes of data
#   + acknowledgements      66 bytes for each frame in the other direction
#   + 32 KiB                MPI's control traffic: start, splits, end (3 to 10 KB when measured)
#   + 64 KiB                a segment of TCP's sent twice when the machine stalls

file(MAKE_DIRECTORY ${SCRATCH})
set(crossed_file ${SCRATCH}/crossed.json)
set(counted_file ${SCRATCH}/counted.json)
file(REMOVE ${crossed_file} ${counted_file})
set(sites)
if(SITES GREATER 1)
    set(sites --sites ${SITES} --site-rate 1gbit)
endif()
execute_process(
    COMMAND ${CLUSTER} run --nodes ${NODES} --per-node ${PER_NODE} --rate 2gbit ${sites} --json ${crossed_file} -- ${PROGRAM}
            ${COLLECTIVE} ${SITES} ${NODES} ${PER_NODE} ${counted_file}
    RESULT_VARIABLE status
    OUTPUT_VARIABLE output
    ERROR_VARIABLE problem)
message("${output}${problem}")
if(status EQUAL 77 OR problem MATCHES "cluster.sh: needs root")
    message("skipped: no cluster can be made here")
    return()
elseif(NOT status EQUAL 0)
    message(FATAL_ERROR "cluster.sh ended with ${status}")
endif()

file(READ ${crossed_file} crossed)
file(READ ${counted_file} counted)
string(JSON count LENGTH "${crossed}" interfaces)
string(JSON expected LENGTH "${counted}")
if(NOT count EQUAL expected)
    message(FATAL_ERROR "expected ${expected} interfaces, found ${count}")
endif()
math(EXPR last "${count} - 1")
foreach(i RANGE ${last})
    string(JSON name GET "${crossed}" interfaces ${i} node)
    string(JSON p GET "${counted}" ${i})
    if(COLLECTIVE STREQUAL "secondary_partition_gather")
        set(expected "0")
    else()
        set(expected "[1-9][0-9]*")
    endif()
    if(NOT p MATCHES "^${expected}$")
        message(FATAL_ERROR "${name}: counting says that it has sent ${p} bytes; expected ${expected}")
    endif()
    math(EXPR least "${p} + (${p} + 8959) / 8960 * 54")
    math(EXPR most "${p} * 101 / 100 + 2 * 66 * (${p} * 101 / 100 / 8948 + 1) + 32768 + 65536")
    foreach(direction IN ITEMS sent received)
        string(JSON bytes GET "${crossed}" interfaces ${i} ${direction}_bytes)
        message("${name} ${direction} ${bytes} bytes; counted ${p}, which is at least ${least} and at most ${most}")
        if(bytes LESS least OR bytes GREATER most)
            message(FATAL_ERROR "${name}: the bytes ${direction} are not those that were counted")
        endif()
    endforeach()
endforeach()
