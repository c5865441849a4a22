#pragma once
/// \file
/// The library with local steps: islands that train by themselves and exchange their progress rarely.

#include <zeropp/local_steps/outer_step.hpp>
#include <zeropp/zeropp.hpp>
