// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Opt-in: attention on the CPU with vector instructions chosen at run time. The one umbrella that
/// includes <immintrin.h>; start reading at `attention/attend.hpp`.

#include <kvcache/attention/attend.hpp>
#include <kvcache/attention/bias.hpp>
#include <kvcache/attention/instruction_set.hpp>
#include <kvcache/attention/merge.hpp>
#include <kvcache/attention/plan.hpp>
#include <kvcache/attention/reference.hpp>
#include <kvcache/attention/shape.hpp>
#include <kvcache/attention/sight.hpp>
