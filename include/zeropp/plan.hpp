#pragma once
/// \file
/// The library with its plans: bytes, memory and time of a training step, before it runs.

#include <zeropp/plan/memory.hpp>
#include <zeropp/plan/step.hpp>
#include <zeropp/plan/time.hpp>
#include <zeropp/plan/volume.hpp>
#include <zeropp/zeropp.hpp>
