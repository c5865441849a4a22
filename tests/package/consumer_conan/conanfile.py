"""What conan create runs with the package that it has made: the project of consumer_installed, by its CMake package."""

import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class Consumer(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeToolchain", "CMakeDeps"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self, build_folder=os.environ["CONSUMER_BUILD_DIR"])

    def build(self):
        cmake = CMake(self)
        cmake.configure(variables={"WITH_MPI": "ON"}, build_script_folder="../consumer_installed")
        cmake.build()

    def test(self):
        if can_run(self):
            for program in ("consumer", "consumer_mpi"):
                self.run(os.path.join(self.cpp.build.bindir, program), env="conanrun")
