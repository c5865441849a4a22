#pragma once
/// \file
/// The library with checksums of its messages: link `zeropp::checksummed`, which is xxHash.

#include <zeropp/transport/checksummed.hpp>
#include <zeropp/zeropp.hpp>
