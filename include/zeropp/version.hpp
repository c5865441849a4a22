#pragma once
/// \file
/// The version of the library. CMake reads it from here: change it only here.

/// Major number of the library's version `MAJOR.MINOR.PATCH`, by semantic versioning (semver.org).
#define ZEROPP_VERSION_MAJOR 2
/// Minor number of the library's version.
#define ZEROPP_VERSION_MINOR 0
/// Patch number of the library's version.
#define ZEROPP_VERSION_PATCH 0

namespace zeropp {

/// ZEROPP_VERSION_MAJOR as a constant.
inline constexpr int version_major = ZEROPP_VERSION_MAJOR;
/// ZEROPP_VERSION_MINOR as a constant.
inline constexpr int version_minor = ZEROPP_VERSION_MINOR;
/// ZEROPP_VERSION_PATCH as a constant.
inline constexpr int version_patch = ZEROPP_VERSION_PATCH;

}  // namespace zeropp
