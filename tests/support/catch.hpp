#pragma once
/// \file
/// Includes the installed major version of Catch2.

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>

#include <string>
using Catch::Approx;  // its name in version 2
namespace Catch {
/// True of texts that hold `part`: its name in version 2. Version 3 has another matcher of that name.
inline auto Contains(const std::string& part) { return Matchers::ContainsSubstring(part); }
}  // namespace Catch
#else
#include <catch2/catch.hpp>
#endif
