"""Conan 2: the checkout that this recipe lies in as a package. tests/package/conan.sh makes it, and a consumer of it."""

import pathlib
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy
from conan.tools.layout import basic_layout


class Zeropp(ConanFile):
    name = "zeropp"
    description = "Communication-efficient collectives (ZeRO++) as header-only C++20 templates"
    license = "Apache-2.0"
    topics = ("collectives", "quantization", "mpi", "nccl", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    @property
    def checkout(self):
        return pathlib.Path(self.recipe_folder).parents[2]

    def set_version(self):
        header = (self.checkout / "include/zeropp/version.hpp").read_text()
        self.version = ".".join(re.findall(r"define ZEROPP_VERSION_\w+ (\d+)", header))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*"):
            copy(self, pattern, self.checkout, self.export_sources_folder)

    def layout(self):
        basic_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "BENCH"):
            toolchain.cache_variables[f"ZEROPP_BUILD_{part}"] = False
        # Vendors are looked for where the package is used.
        for vendor in ("MPI", "CUDA", "NCCL", "CHECKSUMMED"):
            toolchain.cache_variables[f"ZEROPP_ENABLE_{vendor}"] = "OFF"
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()

    def package_id(self):
        self.info.clear()

    def package_info(self):
        # Its own package files: they have the components, zeropp::mpi and the others.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["share/cmake/zeropp"]
        self.cpp_info.libdirs = []
        self.cpp_info.bindirs = []
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
