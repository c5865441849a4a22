#pragma once
/// \file
/// The version of the library. CMake reads it from here: change it only here.

/// The version, for the preprocessor.
#define ZEROPP_VERSION_MAJOR 2
#define ZEROPP_VERSION_MINOR 0
#define ZEROPP_VERSION_PATCH 0

namespace zeropp {

/// The version, for code: `MAJOR.MINOR.PATCH` by semantic versioning (semver.org).
inline constexpr int version_major = ZEROPP_VERSION_MAJOR;
inline constexpr int version_minor = ZEROPP_VERSION_MINOR;
inline constexpr int version_patch = ZEROPP_VERSION_PATCH;

}  // namespace zeropp
