// SPDX-License-Identifier: Apache-2.0

#include <kvcache/control/plan_text.hpp>

#include <string>

#include "support/catch.hpp"

using namespace kvcache;

TEST_CASE("plan_text: a plan prints a line for each thing that it says", "[control][plan_text]")
{
  Plan plan;
  plan.step = StepId{7};
  plan.slot = 1;
  plan.tables = {{RowId{3}, 2, 2, 1}};
  plan.ids = {PageId{1}, PageId{17}, PageId{18}};
  plan.moves = {{PageId{17}, PageId{18}, 3, 1}};
  plan.copies = {{PageId{4}, PageId{18}, 5}};
  plan.parents = {-1, 0, 0};
  plan.chunks = {{SequenceId{3, 1}, RowId{3}, 40, 2, 1}, {SequenceId{5, 1}, RowId{4}, 9, 3, 0, 0}};
  std::string text = "> ";
  print(plan, text);
  CHECK(text ==
        "> plan version 1, step 7, stream 0, slot 1\n"
        "table row 3, from 2: 17 18\n"
        "move page 17 row 3 to page 18 row 1\n"
        "copy page 4 to page 18, 5 rows\n"
        "chunk sequence 3.1 in row 3: 2 tokens from 40, slack 1\n"
        "chunk sequence 5.1 in row 4: 3 tokens from 9, tree -1 0 0\n");
}

TEST_CASE("plan_text: a plan that no pool would take prints too", "[control][plan_text]")
{
  Plan plan;
  plan.step = StepId{~std::uint64_t{0}};
  plan.tables = {{RowId{nil}, 0, nil, 0}, {RowId{0}, 0, 2, nil}, {RowId{0}, 0, 0, nil}};
  plan.ids = {PageId{5}};
  plan.chunks = {{SequenceId{0, 1}, RowId{0}, -4, -3, -2, 1},
                 {SequenceId{0, 1}, RowId{0}, 0, 9, 0, nil - 1}};
  std::string text;
  print(plan, text);
  CHECK(text ==
        "plan version 1, step 18446744073709551615, stream 0, slot 0\n"
        "table row 4294967295, from 0: 5 ?\n"
        "table row 0, from 0: ?\n"
        "table row 0, from 0:\n"
        "chunk sequence 0.1 in row 0: -3 tokens from -4, slack -2, tree\n"
        "chunk sequence 0.1 in row 0: 9 tokens from 0, tree ?\n");
}
