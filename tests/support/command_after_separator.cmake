# For scripts run as `cmake -P SCRIPT -- command...`: sets `command` to the words behind the separator.
set(command "")
foreach(i RANGE ${CMAKE_ARGC})
    if(DEFINED seen_separator AND i LESS CMAKE_ARGC)
        list(APPEND command "${CMAKE_ARGV${i}}")
    elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
        set(seen_separator TRUE)
    endif()
endforeach()
