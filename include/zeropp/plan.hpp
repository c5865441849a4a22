#pragma once
/// \file
/// The library with plans: predicted bytes, memory and time of a training step.

#include <zeropp/plan/memory.hpp>
#include <zeropp/plan/step.hpp>
#include <zeropp/plan/time.hpp>
#include <zeropp/plan/volume.hpp>
#include <zeropp/zeropp.hpp>
