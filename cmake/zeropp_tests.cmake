# The ways to register a test.

# All programs of the tests labelled unit and mpi, for scripts that want nothing else built.
add_custom_target(zeropp_test_programs)

find_program(ZEROPP_PYTHON python3)
mark_as_advanced(ZEROPP_PYTHON)

# zeropp_add_python_test(NAME argument...): python3 with these arguments; skipped without python3.
function(zeropp_add_python_test name)
    if(ZEROPP_PYTHON)
        add_test(NAME ${name} COMMAND ${ZEROPP_PYTHON} ${ARGN})
    else()
        add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: python3 not found")
    endif()
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: python3")
endfunction()

# zeropp_group_sources(OUT source...): OUT is translation units of fourteen sources each, which compile in less than half of
# the time that the sources take by themselves; the largest takes g++ 1.5 GB. A source with macros, or with a namespace that
# has a name, stays by itself.
function(zeropp_group_sources out)
    set(script ${PROJECT_SOURCE_DIR}/cmake/zeropp_group_sources.cmake)
    set(units "")
    set(together "")
    foreach(source IN LISTS ARGN)
        cmake_path(ABSOLUTE_PATH source)
        file(STRINGS ${source} special REGEX "^(template <>|#if|#define|namespace [a-z_:]+ {)")
        if(special)
            list(APPEND units ${source})
        else()
            list(APPEND together ${source})
        endif()
    endforeach()
    while(together)
        list(SUBLIST together 0 14 group)
        list(REMOVE_ITEM together ${group})
        list(GET group 0 first)
        cmake_path(GET first FILENAME name)
        set(unit ${CMAKE_CURRENT_BINARY_DIR}/groups/${out}/${name})
        add_custom_command(
            OUTPUT ${unit}
            COMMAND ${CMAKE_COMMAND} -D OUTPUT=${unit} -D "SOURCES=${group}" -P ${script}
            DEPENDS ${group} ${script}
            VERBATIM)
        list(APPEND units ${unit})
    endwhile()
    set(${out} ${units} PARENT_SCOPE)
endfunction()

# zeropp_add_test(NAME source... [TIMEOUT seconds] [LIBRARIES target...] [PRECOMPILED_HEADERS header...]
#                 [SEPARATE])
#
# One Catch2 program, one ctest called NAME. Headers that it does not name are precompiled with those of all tests.
# Sources are compiled in groups, unless they are SEPARATE. With few tests, sanitizers leave out tests of accuracy, which
# repeat the same accesses many times.
function(zeropp_add_test name)
    cmake_parse_arguments(PARSE_ARGV 1 test "SEPARATE" "TIMEOUT" "LIBRARIES;PRECOMPILED_HEADERS")
    set(${name} ${test_UNPARSED_ARGUMENTS})
    if(NOT test_SEPARATE)
        zeropp_group_sources(${name} ${test_UNPARSED_ARGUMENTS})
    endif()
    if(NOT test_TIMEOUT)
        set(test_TIMEOUT 300)
    endif()
    # Emulated instructions take ten times as long.
    if(CMAKE_CROSSCOMPILING)
        math(EXPR test_TIMEOUT "${test_TIMEOUT} * 4")
    endif()
    add_executable(test_${name} ${${name}})
    target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(test_${name} PRIVATE zeropp::zeropp ${test_LIBRARIES} zeropp_catch zeropp_build_flags)
    if(test_PRECOMPILED_HEADERS)
        target_precompile_headers(test_${name} PRIVATE ${test_PRECOMPILED_HEADERS})
    else()
        target_precompile_headers(test_${name} REUSE_FROM zeropp_catch)
    endif()
    add_dependencies(zeropp_test_programs test_${name})
    set(command test_${name})
    if(zeropp_sanitize_few)
        list(APPEND command ~[accuracy])
    endif()
    add_test(NAME ${name} COMMAND ${command})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${test_TIMEOUT} LABELS unit)
endfunction()

# zeropp_add_mpi_test(NAME RANKS count... SOURCES source... [TIMEOUT seconds])
#
# One Catch2 program whose every rank runs the same test cases, and one ctest NAME.npCOUNT for each count. Needs
# zeropp::mpi. TIMEOUT is for one test case: when it is over, the program says which one hangs and aborts all ranks.
function(zeropp_add_mpi_test name)
    cmake_parse_arguments(PARSE_ARGV 1 test "" TIMEOUT "RANKS;SOURCES")
    if(NOT test_TIMEOUT)
        set(test_TIMEOUT 60)
    endif()
    zeropp_group_sources(${name} ${test_SOURCES})
    add_executable(test_${name} ${${name}} ${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp)
    target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(test_${name} PRIVATE zeropp::mpi zeropp_catch zeropp_build_flags)
    target_precompile_headers(test_${name} REUSE_FROM zeropp_catch)
    add_dependencies(zeropp_test_programs test_${name})
    foreach(ranks IN LISTS test_RANKS)
        zeropp_add_mpi_run(${name}.np${ranks} ${ranks} $<TARGET_FILE:test_${name}>)
        set_property(TEST ${name}.np${ranks} APPEND PROPERTY ENVIRONMENT ZEROPP_TEST_CASE_TIMEOUT=${test_TIMEOUT})
        set_tests_properties(${name}.np${ranks} PROPERTIES TIMEOUT 600 LABELS mpi)
    endforeach()
endfunction()

# zeropp_add_compile_fail_test(NAME file): the file must not compile, for the reason that its first line expects.
function(zeropp_add_compile_fail_test name file)
    add_test(
        NAME ${name}
        COMMAND ${CMAKE_COMMAND} -D COMPILER=${CMAKE_CXX_COMPILER} -D INCLUDE_DIR=${PROJECT_SOURCE_DIR}/include -D
                SOURCE=${file} -P ${PROJECT_SOURCE_DIR}/tests/compile_fail/expect_error.cmake)
    set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS compile_fail)
endfunction()

# zeropp_headers_alone(): compiles every public header by itself, included twice, into one object library for each
# vendor: zeropp_headers_alone, zeropp_headers_alone_mpi, ... A vendor that is not there leaves its headers out. Without a
# vendor, a source has a header, one that this header includes, one that the other includes, and so on, the last one first:
# nothing comes before a header that it does not include itself. One more source has all these headers.
function(zeropp_headers_alone)
    set(mpi_headers "^(transport/)?mpi\\.hpp$")
    set(nccl_headers "^(transport/)?nccl(_family|_workspace)?\\.hpp$")
    set(checksummed_headers "^(transport/)?checksummed\\.hpp$")
    set(cuda_headers "^(execution/cuda_(stream|workspace)|transport/staged)\\.hpp$|^codec/cuda/")
    set(of_vendors "${mpi_headers}|${nccl_headers}|${checksummed_headers}|${cuda_headers}")
    set(folder ${CMAKE_CURRENT_BINARY_DIR}/headers_alone)

    file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include/zeropp
         ${PROJECT_SOURCE_DIR}/include/zeropp/*.hpp)
    set(taken "")
    foreach(header IN LISTS headers)
        set(library zeropp_headers_alone)
        set(needs zeropp::zeropp)
        foreach(vendor IN ITEMS mpi nccl cuda checksummed)
            if(header MATCHES "${${vendor}_headers}")
                set(library zeropp_headers_alone_${vendor})
                set(needs zeropp::${vendor})
            endif()
        endforeach()
        # Its source would compile only on machines with the vendor's headers on the compiler's own path.
        file(STRINGS ${PROJECT_SOURCE_DIR}/include/zeropp/${header} of_vendor REGEX "^#include <(mpi|nccl|cuda|xxhash)")
        if(of_vendor AND needs STREQUAL "zeropp::zeropp")
            message(FATAL_ERROR "zeropp/${header} is taken for a header without a vendor: ${of_vendor}")
        endif()
        if(header IN_LIST taken OR NOT TARGET ${needs})
            continue()
        endif()
        if(NOT TARGET ${library})
            add_library(${library} OBJECT)
            target_link_libraries(${library} PRIVATE ${needs} zeropp_build_flags)
        endif()
        set(includes "")
        set(next ${header})
        while(next)
            string(PREPEND includes "#include <zeropp/${next}>\n")
            list(APPEND taken ${next})
            file(STRINGS ${PROJECT_SOURCE_DIR}/include/zeropp/${next} lines REGEX "^#include <zeropp/.*\\.hpp>")
            set(next "")
            foreach(line IN LISTS lines)
                string(REGEX REPLACE "#include <zeropp/(.*)>" "\\1" included "${line}")
                if(NOT next AND library STREQUAL "zeropp_headers_alone" AND NOT included IN_LIST taken
                   AND NOT included MATCHES "${of_vendors}")
                    set(next ${included})
                endif()
            endforeach()
        endwhile()
        file(CONFIGURE OUTPUT ${folder}/${header}.cpp CONTENT "${includes}${includes}")
        target_sources(${library} PRIVATE ${folder}/${header}.cpp)
    endforeach()
    list(FILTER headers EXCLUDE REGEX "${of_vendors}")
    list(TRANSFORM headers REPLACE "(.+)" "#include <zeropp/\\1>\n" OUTPUT_VARIABLE includes)
    list(JOIN includes "" includes)
    file(CONFIGURE OUTPUT ${folder}/every_header.cpp CONTENT "${includes}")
    target_sources(zeropp_headers_alone PRIVATE ${folder}/every_header.cpp)
endfunction()

# Fails if two tests have one name, which CMake refuses within a folder only.
function(zeropp_require_unique_tests)
    set(names "")
    set(folders ${PROJECT_SOURCE_DIR})
    while(folders)
        list(POP_FRONT folders folder)
        get_property(tests DIRECTORY ${folder} PROPERTY TESTS)
        get_property(below DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
        foreach(name IN LISTS tests)
            if(name IN_LIST names)
                message(FATAL_ERROR "two tests have the name ${name}")
            endif()
            list(APPEND names ${name})
        endforeach()
        list(APPEND folders ${below})
    endwhile()
endfunction()
