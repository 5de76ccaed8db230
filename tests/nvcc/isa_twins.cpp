// SPDX-License-Identifier: Apache-2.0
// The host's half of isa.cu, for a host compiler: nvcc would take the warp's calls for device code.

#include "../support/lockstep_warp.hpp"
#include "every_instruction.hpp"

namespace kvcache_test {

Results on_host(std::vector<std::uint32_t> const& in)
{
  Results out;
  std::vector<std::byte> shared(shared_bytes);
  LockstepWarp::run([&](LockstepWarp& warp) {
    std::int32_t const lane = warp.lane();
    every_instruction(warp,
                      shared.data(),
                      Lane{in.data() + words_in * lane,
                           out.exact.data() + words_exact * lane,
                           out.close.data() + words_close * lane},
                      out.counters.data());
  });
  return out;
}

}  // namespace kvcache_test
