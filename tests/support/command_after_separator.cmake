# For scripts that `cmake -P` runs with `-- command...`: sets `command` to what stands behind the separator.
set(command "")
foreach(i RANGE ${CMAKE_ARGC})
    if(DEFINED seen_separator AND i LESS CMAKE_ARGC)
        list(APPEND command "${CMAKE_ARGV${i}}")
    elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
        set(seen_separator TRUE)
    endif()
endforeach()
