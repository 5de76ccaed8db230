// SPDX-License-Identifier: Apache-2.0
// A file of a program whose files have different -march; run.sh compiles it once for each, as KVCACHE_TEST_FILE.

#include <kvcache/attention/attend.hpp>
#include <kvcache/layout/paged_heads.hpp>

namespace kvcache_test {

using Layout = kvcache::PagedHeads<kvcache::half, 64, 16>;
using Call = void(kvcache::BatchView<Layout> const&,
                  kvcache::AttentionPlan const&,
                  kvcache::AttentionTensors const&);

Call KVCACHE_TEST_FILE;

void KVCACHE_TEST_FILE(kvcache::BatchView<Layout> const& view,
                       kvcache::AttentionPlan const& plan,
                       kvcache::AttentionTensors const& io)
{
  kvcache::attend_all(view, plan, 0, io);
}

#if defined(KVCACHE_TEST_MAIN)
Call wider, widest;
#endif

}  // namespace kvcache_test

#if defined(KVCACHE_TEST_MAIN)
int main()
{
  kvcache::BatchView<kvcache_test::Layout> const
    view{};  // of no step: nothing runs, but all is linked
  kvcache::AttentionPlan const plan;
  for (kvcache_test::Call* const call :
       {kvcache_test::plain, kvcache_test::wider, kvcache_test::widest}) {
    call(view, plan, {});
  }
}
#endif
