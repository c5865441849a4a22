"""Builds both packages of cmake/packaging/conda against doubles of conda-forge's packages, which are not reachable everywhere:
empty ones, beside this machine's CMake and compiler, and a Python that installs into the package.

    conda.py FOLDER
"""

import pathlib
import platform
import sys

import rattler_build

checkout = pathlib.Path(__file__).parents[2]
channel = pathlib.Path(sys.argv[1])
python = f"{sys.version_info.major}.{sys.version_info.minor}"
target = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}[platform.machine()]

# conda-forge's pins, as far as the recipe names them.
variants = rattler_build.VariantConfig(
    {
        "c_stdlib": ["sysroot"],
        "c_stdlib_version": ["2.28"],
        "cxx_compiler": ["gxx"],
        "cxx_compiler_version": ["14"],
        "python_min": [python],
    }
)


def double(name, version, **files):
    """A package of conda-forge, with the given texts as programs."""
    programs = []
    for program, text in files.items():
        file = channel / "doubles" / program
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
        programs.append(rattler_build.FileEntry.from_paths(file, f"bin/{program}"))
    (channel / target).mkdir(parents=True, exist_ok=True)
    rattler_build.assemble_package(
        name=name, version=version, target_platform=target, build_string="0", output_dir=channel / target, files=programs
    )


double("cmake", "4.1.0")
double("ninja", "1.13.0")
double(f"gxx_{target}", "14.3.0")
double(f"sysroot_{target}", "2.28")
double("pip", "25.0")
double("scikit-build-core", "1.1.2")
double(
    "python",
    f"{python}.0",
    python=f'#!/bin/sh\nPIP_PREFIX=$(dirname "$(dirname "$0")") exec {sys.executable} "$@"\n',
)

recipe = rattler_build.Stage0Recipe.from_file(checkout / "cmake/packaging/conda/recipe.yaml")
rendered = recipe.render(variants)
version = (checkout / "include/zeropp/version.hpp").read_text()
for variant in rendered:
    package = variant.recipe.package
    for number, part in zip(package.version.split("."), ("MAJOR", "MINOR", "PATCH")):
        assert f"ZEROPP_VERSION_{part} {number}\n" in version, f"expected the header's version, given {package.version}"
    # The Python package's test imports PyTorch, which has no double.
    tested = rattler_build.ToolConfiguration(test_strategy="native" if package.name == "zeropp" else "skip")
    built = variant.run_build(
        tool_config=tested,
        output_dir=channel,
        channels=[channel.as_uri()],
        env_isolation=rattler_build.EnvironmentIsolation.NONE,
    )
    print(package.name, built.packages)
