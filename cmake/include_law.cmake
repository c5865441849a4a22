# cmake -D INCLUDE_DIR=include -D TESTS_DIR=tests -P include_law.cmake
#
# The include law: which room of the library may include which, and the only headers that may name a vendor's. No header is
# longer, or wider, than one can read. Each header has a test: at its path below TESTS_DIR, or a file there includes it. Reads
# every header under INCLUDE_DIR/zeropp, prints each violation, and fails if there is one.

# Room by room, what its headers may include, as paths below zeropp/. Every room may include itself.
set(law_core "^$")
set(law_execution "^core/")
set(law_quantizer "^core/")
set(law_topology "^core/")
set(law_transport "^(core|execution|topology)/")
set(law_layout "^(core|topology)/|^quantizer/(quantizer|abilities)\\.hpp$")
set(law_codec "^(core|execution|quantizer|layout)/")
string(CONCAT law_collective "^(core|topology|layout)/|^(execution/execution|quantizer/quantizer)\\.hpp$|"
                             "^(transport/transport|transport/communicator|codec/codec)\\.hpp$")
set(law_plan "^(core|quantizer|topology|layout)/")
# Entry headers, directly in zeropp/, include what they like, the umbrella too; no room includes an entry header.
set(law_entry ".")

# Vendor by vendor: its headers, and the headers of ours that may include them.
set(vendors mpi nccl cuda xxhash)
set(mpi_headers "^mpi((-ext)?\\.h$|/)")
set(mpi_fence "^transport/mpi(_wire)?\\.hpp$")
set(nccl_headers "^nccl")
set(nccl_fence "^transport/nccl\\.hpp$")
set(cuda_headers "^(cuda|cub/|thrust/|nv/|nvtx|cooperative_groups|driver_types|vector_types|mma\\.h|math_constants\\.h)")
string(CONCAT cuda_fence "^cuda_span\\.cuh$|^execution/cuda_(stream|workspace)\\.hpp$|^codec/cuda|^transport/(nccl|staged)\\.hpp$|"
                         "^core/element[^/]*\\.(hpp|cuh)$")

set(xxhash_headers "^xx(hash|h3|h_)")
set(xxhash_fence "^transport/checksummed\\.hpp$")

set(most_lines 400)
set(most_columns 120)
math(EXPR too_wide "${most_columns} + 1")
string(REPEAT "[^\n]" ${too_wide} wide_line)

set(tested "")
file(GLOB_RECURSE test_files ${TESTS_DIR}/*.cpp ${TESTS_DIR}/*.hpp ${TESTS_DIR}/*.cu ${TESTS_DIR}/*.cuh)
foreach(test_file IN LISTS test_files)
    file(STRINGS ${test_file} lines REGEX "^#include <zeropp/")
    string(APPEND tested "${lines}")
endforeach()

set(violations 0)
macro(violation text)
    math(EXPR violations "${violations} + 1")
    message("zeropp/${header}: ${text}")
endmacro()

file(GLOB_RECURSE headers RELATIVE ${INCLUDE_DIR}/zeropp ${INCLUDE_DIR}/zeropp/*)
foreach(header IN LISTS headers)
    set(room entry)
    if(header MATCHES "^([^/]+)/")
        set(room ${CMAKE_MATCH_1})
    endif()
    if(NOT DEFINED law_${room})
        violation("the room ${room} is not in the include law")
        continue()
    endif()

    file(READ ${INCLUDE_DIR}/zeropp/${header} text)
    string(REGEX MATCHALL "\n" ends "${text}")
    list(LENGTH ends lines)
    if(lines GREATER most_lines)
        violation("has ${lines} lines, more than ${most_lines}")
    endif()
    if(text MATCHES "${wide_line}")
        violation("has a line of more than ${most_columns} columns")
    endif()

    string(REGEX REPLACE "\\.(hpp|cuh)$" ".cpp" test_file ${header})
    string(FIND "${tested}" "<zeropp/${header}>" place)
    if(place EQUAL -1 AND NOT EXISTS ${TESTS_DIR}/${test_file})
        violation("no test includes it, and none is at tests/${test_file}")
    endif()

    # Only the directive itself is matched, so that what follows it in the line cannot upset CMake's lists.
    string(REGEX MATCHALL "(^|\n)[ \t]*#[ \t]*include[ \t]*[<\"][^>\"\n]*[>\"]" directives "${text}")
    foreach(directive IN LISTS directives)
        string(REGEX MATCH "([<\"])([^>\"]*)" matched "${directive}")
        set(bracket "${CMAKE_MATCH_1}")
        set(included "${CMAKE_MATCH_2}")
        if(included MATCHES "^zeropp/(.*)$")
            set(ours "${CMAKE_MATCH_1}")
            if(ours MATCHES "^${room}/")
                continue()
            elseif(NOT ours MATCHES "${law_${room}}")
                violation("${room} may not include zeropp/${ours}")
            elseif(NOT EXISTS ${INCLUDE_DIR}/zeropp/${ours})
                violation("zeropp/${ours} does not exist")
            endif()
        elseif(bracket STREQUAL "\"")
            violation("\"${included}\" should be written <zeropp/...>")
        else()
            foreach(vendor IN LISTS vendors)
                if(included MATCHES "${${vendor}_headers}" AND NOT header MATCHES "${${vendor}_fence}")
                    violation("<${included}> is outside the ${vendor} fence")
                endif()
            endforeach()
        endif()
    endforeach()
endforeach()

list(LENGTH headers count)
if(count EQUAL 0)
    message(FATAL_ERROR "no headers under ${INCLUDE_DIR}/zeropp")
endif()
if(violations GREATER 0)
    message(FATAL_ERROR "${violations} violation(s) of the include law in ${count} headers")
endif()
message(STATUS "${count} headers obey the include law")
