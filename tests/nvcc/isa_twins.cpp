// SPDX-License-Identifier: Apache-2.0
// The host's half of isa.cu, for a host compiler: nvcc would take the warp's calls for device code.

#include "every_instruction.hpp"
#include "support/simt/simt.hpp"

namespace kvcache_test {

Results on_host(std::vector<std::uint32_t> const& in)
{
  Results out;
  simt::launch(1, 32, shared_bytes, [&](simt::Block& block) {
    auto& warp = block.warp();
    std::int32_t const lane = warp.lane();
    every_instruction(warp,
                      block.shared(),
                      Lane{in.data() + words_in * lane,
                           out.exact.data() + words_exact * lane,
                           out.close.data() + words_close * lane},
                      out.counters.data());
  });
  return out;
}

}  // namespace kvcache_test
