# Writes a translation unit that holds several sources, each in a namespace of its own: what they all instantiate is then
# compiled once. Their includes come first, outside of these namespaces.
#
#   cmake -D OUTPUT=FILE -D "SOURCES=FILE;..." -P zeropp_group_sources.cmake
set(includes "")
set(bodies "")
foreach(source IN LISTS SOURCES)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET source STEM LAST_ONLY stem)
    file(STRINGS ${source} lines REGEX "^#include ")
    foreach(line IN LISTS lines)
        string(REGEX REPLACE "^#include \"(.*)\"$" "${folder}/\\1" beside "${line}")
        if(EXISTS ${beside})
            set(line "#include \"${beside}\"")
        endif()
        list(APPEND includes "${line}")
    endforeach()
    string(APPEND bodies "namespace file_${stem} {\n#include \"${source}\"\n}\n")
endforeach()
list(REMOVE_DUPLICATES includes)
list(JOIN includes "\n" includes)
file(WRITE ${OUTPUT} "${includes}\n${bodies}")
