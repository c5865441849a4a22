# zeropp_add_component(NAME): the option ZEROPP_ENABLE_NAME and, where its vendor is found, the target zeropp::NAME.
#
# A macro, so that a component may enable a language and so that what it finds stays visible.
macro(zeropp_add_component name)
    string(TOUPPER ${name} zeropp_component_option)
    string(PREPEND zeropp_component_option ZEROPP_ENABLE_)
    set(${zeropp_component_option} AUTO CACHE STRING "Provide zeropp::${name}: AUTO (where found), ON (required), OFF")
    set_property(CACHE ${zeropp_component_option} PROPERTY STRINGS AUTO ON OFF)

    set(zeropp_component_found OFF)
    if(${zeropp_component_option})
        include(${PROJECT_SOURCE_DIR}/cmake/components/${name}.cmake)
    endif()

    if(zeropp_component_found)
        add_library(zeropp_${name} INTERFACE)
        add_library(zeropp::${name} ALIAS zeropp_${name})
        target_link_libraries(zeropp_${name} INTERFACE zeropp::zeropp ${zeropp_component_links})
    elseif(${zeropp_component_option} AND NOT ${zeropp_component_option} STREQUAL "AUTO")
        message(FATAL_ERROR "zeropp: ${zeropp_component_option} is ON, but what zeropp::${name} needs was not found")
    endif()
endmacro()
