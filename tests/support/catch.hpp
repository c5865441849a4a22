#pragma once
/// \file
/// Includes the installed major version of Catch2.

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;  // its name in version 2
#else
#include <catch2/catch.hpp>
#endif
