# What zeropp::checksummed stands on: xxHash (Debian's libxxhash-dev), a header and a library.
find_path(XXHASH_INCLUDE_DIR xxhash.h)
find_library(XXHASH_LIBRARY xxhash)
mark_as_advanced(XXHASH_INCLUDE_DIR XXHASH_LIBRARY)
set(zeropp_component_found OFF)
if(XXHASH_INCLUDE_DIR AND XXHASH_LIBRARY)
    set(zeropp_component_found ON)
    if(NOT TARGET xxHash::xxhash)
        add_library(xxHash::xxhash UNKNOWN IMPORTED)
        set_target_properties(xxHash::xxhash PROPERTIES IMPORTED_LOCATION ${XXHASH_LIBRARY}
                                                        INTERFACE_INCLUDE_DIRECTORIES ${XXHASH_INCLUDE_DIR})
    endif()
endif()
set(zeropp_component_links xxHash::xxhash)
