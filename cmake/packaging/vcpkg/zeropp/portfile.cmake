# An overlay port: vcpkg install zeropp --overlay-ports=cmake/packaging/vcpkg makes a package of the checkout it lies in.
# vcpkg itself has not run it: tests/package/vcpkg.cmake does, with doubles of vcpkg's functions.
set(VCPKG_BUILD_TYPE release)  # headers alone
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../../.." ABSOLUTE)

# Vendors are looked for where the package is used.
vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        -DZEROPP_BUILD_TESTS=OFF
        -DZEROPP_BUILD_EXAMPLES=OFF
        -DZEROPP_BUILD_BENCH=OFF
        -DZEROPP_ENABLE_MPI=OFF
        -DZEROPP_ENABLE_CUDA=OFF
        -DZEROPP_ENABLE_NCCL=OFF
        -DZEROPP_ENABLE_CHECKSUMMED=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/zeropp)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/licenses")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
