# Install rules and the package that find_package(zeropp) finds. Nothing here depends on the machine: a component's
# vendor is looked for where the package is used.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(zeropp_package_dir ${CMAKE_INSTALL_DATADIR}/cmake/zeropp)

install(DIRECTORY include/zeropp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh")
install(TARGETS zeropp EXPORT zeropp INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT zeropp NAMESPACE zeropp:: DESTINATION ${zeropp_package_dir} FILE zeropp-targets.cmake)
install(DIRECTORY cmake/components DESTINATION ${zeropp_package_dir})

configure_package_config_file(cmake/zeropp-config.cmake.in ${PROJECT_BINARY_DIR}/zeropp-config.cmake
                              INSTALL_DESTINATION ${zeropp_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/zeropp-config-version.cmake COMPATIBILITY SameMajorVersion
                                                                                   ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/zeropp-config.cmake ${PROJECT_BINARY_DIR}/zeropp-config-version.cmake
        DESTINATION ${zeropp_package_dir})

# For pkg-config, and as easily moved. MPI and CUDA have compilers of their own that know where they are: one file is enough.
if(IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
    # Headers lie there wherever the rest is moved.
    set(zeropp_pc_includedir ${CMAKE_INSTALL_INCLUDEDIR})
else()
    file(RELATIVE_PATH zeropp_include_from_pc ${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
    set(zeropp_pc_includedir "\${pcfiledir}/${zeropp_include_from_pc}")
endif()
configure_file(cmake/zeropp.pc.in ${PROJECT_BINARY_DIR}/zeropp.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/zeropp.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/zeropp)
