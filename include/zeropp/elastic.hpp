#pragma once
/// \file
/// The library with recovery: weights and mirrored shards of ranks that have died, divided anew over the survivors.

#include <zeropp/elastic/recover_weights.hpp>
#include <zeropp/elastic/shard_mirror.hpp>
#include <zeropp/zeropp.hpp>
