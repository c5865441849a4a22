#pragma once
/// \file
/// The library with message checksums. Link `zeropp::checksummed` (xxHash).

#include <zeropp/transport/checksummed.hpp>
#include <zeropp/zeropp.hpp>
