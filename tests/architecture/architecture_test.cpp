// SPDX-License-Identifier: Apache-2.0
// The house rules, held against this repository; and each rule held against a tree that breaks it, because a rule
// that never fires looks just like a rule that is kept.

#include <filesystem>

#include "architecture/cuda_rules.hpp"
#include "architecture/rules.hpp"
#include "support/catch.hpp"

using namespace kvcache_test;

namespace {

std::string const opening = "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n";

Tree const& repository()
{
  static Tree const tree = read_tree(KVCACHE_SOURCE_DIR);
  return tree;
}

void check_none(Breaches const& breaches)
{
  for (std::string const& breach : breaches) {
    UNSCOPED_INFO(breach);
  }
  CHECK(breaches.empty());
}

void check_one(Breaches const& breaches, std::string const& part)
{
  for (std::string const& breach : breaches) {
    UNSCOPED_INFO(breach);
  }
  CHECK(breaches.size() == 1);
  CHECK_THAT(breaches.empty() ? "" : breaches[0], Contains(part));
}

Tree header(std::string const& path, std::string const& text)
{
  return {{"include/kvcache/" + path, opening + text}};
}

}  // namespace

TEST_CASE("Architecture: the repository keeps the house rules", "[architecture]")
{
  Tree const& tree = repository();
  REQUIRE(tree.count("include/kvcache/version.hpp") == 1);
  check_none(rooms_include_downwards(tree));
  check_none(headers_have_no_cycles(tree));
  check_none(umbrellas_stay_light(tree));
  check_none(includes_are_allowed(tree));
  check_none(headers_are_short(tree));
  check_none(macros_are_few(tree));
  check_none(assembly_is_in_isa(tree));
  check_none(assembly_names_memory(tree));
  check_none(cuda_is_asked_in_order(tree));
  check_none(files_open_the_same_way(tree));
  check_none(nothing_is_unfinished(tree));
  check_none(headers_hold_no_state(tree));
  check_none(device_code_calls_no_std(tree));
  check_none(tests_assert(tree));
  check_none(links_resolve(tree));
}

TEST_CASE("Architecture: the top level holds what it should and nothing else", "[architecture]")
{
  std::vector<std::string> entries;
  for (auto const& entry : std::filesystem::directory_iterator(KVCACHE_SOURCE_DIR)) {
    entries.push_back(entry.path().filename().string());
  }
  check_none(top_level_is_fixed(entries));
  check_one(top_level_is_fixed({"include", "scripts", "build-asan"}), "scripts");
}

TEST_CASE("Architecture: an include that goes up or sideways is seen", "[architecture]")
{
  Tree tree = header("alloc/page.hpp", "#include <kvcache/control/step.hpp>\n");
  tree["include/kvcache/control/step.hpp"] = opening;
  check_one(rooms_include_downwards(tree), "alloc/ (level 2) includes control/ (level 3)");

  tree = header("view/tile.hpp", "  #  include <kvcache/control/step.hpp>\n");
  tree["include/kvcache/control/step.hpp"] = opening + "#include <kvcache/alloc/page.hpp>\n";
  tree["include/kvcache/alloc/page.hpp"] = opening;
  check_one(rooms_include_downwards(tree), "view/ (level 3) includes control/ (level 3)");

  tree = header("alloc/page.hpp", "#include <kvcache/kvcache.hpp>\n");
  tree["include/kvcache/kvcache.hpp"] = opening;
  check_one(rooms_include_downwards(tree), "stands above every room");

  check_one(rooms_include_downwards(header("attic/old.hpp", "")), "attic/ is not in the table");
  check_one(rooms_include_downwards(header("alloc/a.hpp", "#include \"b.hpp\"\n")),
            "<kvcache/...>");
  check_one(rooms_include_downwards(header("alloc/a.hpp", "#include <kvcache/core/b.hpp>\n")),
            "does not exist");
}

TEST_CASE("Architecture: a cycle of headers is seen", "[architecture]")
{
  Tree tree = header("alloc/a.hpp", "#include <kvcache/alloc/b.hpp>\n");
  check_none(headers_have_no_cycles(tree));
  tree["include/kvcache/alloc/b.hpp"] = opening + "#include <kvcache/alloc/a.hpp>\n";
  CHECK(headers_have_no_cycles(tree).size() == 2);
}

TEST_CASE("Architecture: a heavy include behind an umbrella is seen", "[architecture]")
{
  Tree tree = header("view.hpp", "#include <kvcache/view/tile.hpp>\n#include <cstdint>\n");
  tree["include/kvcache/view/tile.hpp"] = opening + "#include <vector>\n";
  check_one(umbrellas_stay_light(tree), "reaches <vector>");

  tree = header("kvcache.hpp", "#include <kvcache/cache/c.hpp>\n#include <vector>\n");
  tree["include/kvcache/cache/c.hpp"] = opening + "#include <immintrin.h>\n";
  check_one(umbrellas_stay_light(tree), "reaches <immintrin.h>");
}

TEST_CASE("Architecture: banned, third-party and misplaced CUDA headers are seen", "[architecture]")
{
  for (std::string const name :
       {"iostream", "functional", "ranges", "regex", "thrust/sort.h", "cooperative_groups.h"}) {
    check_one(includes_are_allowed(header("core/a.hpp", "#include <" + name + ">\n")), "too heavy");
  }
  check_one(includes_are_allowed(header("core/a.hpp", "#include <fmt/core.h>\n")), "neither ours");
  check_one(includes_are_allowed(header("core/a.hpp", "#include <boost/mp11>\n")), "neither ours");
  check_one(includes_are_allowed(header("pool/a.hpp", "#include <cuda_fp16.h>\n")), "device/cuda");
  check_one(includes_are_allowed(header("device/cuda.hpp", "#include <cub/cub.cuh>\n")), ".cuh");
  check_none(includes_are_allowed(header("device/cuda.hpp", "#include <cuda_runtime_api.h>\n")));
  check_none(includes_are_allowed(header("pool/a.cuh", "#include <cub/cub.cuh>\n")));
  check_none(includes_are_allowed(header("pool/a.hpp", "#include <vector>\n")));
}

TEST_CASE("Architecture: a long header and a long median are seen", "[architecture]")
{
  Tree tree = header("core/a.hpp", std::string(399, '\n'));
  CHECK(headers_are_short(tree).size() == 2);
  tree["include/kvcache/core/b.hpp"] = opening;
  tree["include/kvcache/core/c.hpp"] = opening;
  check_one(headers_are_short(tree), "at most 400 lines");
  check_one(headers_are_short(header("core/a.hpp", std::string(119, '\n'))), "the median header");
  check_none(headers_are_short(header("core/a.hpp", std::string(118, '\n'))));
}

TEST_CASE("Architecture: stray macros are seen", "[architecture]")
{
  check_one(macros_are_few(header("core/check.hpp", "#define CHECK_IT 1\n")), "lacks KVCACHE_");
  check_one(macros_are_few(header("pool/a.hpp", "# define KVCACHE_A 1\n")), "macros live in");
  check_none(macros_are_few(header("pool/a.hpp", "// #define KVCACHE_A 1\n")));
  check_one(macros_are_few(header("pool/a.hpp", "#if defined(__CUDACC__)\n#endif\n")), "only core");
  check_one(macros_are_few(header("pool/a.hpp", "#if KVCACHE_HAS_CUDA\n#endif\n")), "ask for CUDA");
  std::string many;
  for (int i = 0; i < 11; ++i) {
    many += "#define KVCACHE_M" + std::to_string(i) + "\n";
  }
  check_one(macros_are_few(header("core/config.hpp", many)), "11 macros");
}

TEST_CASE("Architecture: a call of CUDA that waits or names no stream is seen", "[architecture]")
{
  auto const body = [](std::string const& call) {
    return header("device/cuda_a.hpp", "inline void f() { " + call + "; }\n");
  };
  check_one(cuda_is_asked_in_order(body("cudaMemcpy(a, b, 1, k)")), "default stream");
  check_one(cuda_is_asked_in_order(body("::cudaDeviceSynchronize()")), "waits");
  check_one(cuda_is_asked_in_order(body("run<<<1, 2>>>(x, y)")), "names its stream");
  check_one(cuda_is_asked_in_order(body("run<<<1, 2, 0>>>(x)")), "names its stream");
  check_none(cuda_is_asked_in_order(body("run<<<1, 2, 0, s>>>(x)")));
  check_none(cuda_is_asked_in_order(body("cudaMemcpyAsync(a, b, 1, k, s)")));
  check_none(cuda_is_asked_in_order(body("/* cudaMemcpy */ g()")));
  Tree const flags = {{"tests/a.sh", std::string("nvcc --expt-") + "relaxed-constexpr\n"}};
  check_one(cuda_is_asked_in_order(flags), "every user");
}

TEST_CASE(
  "Architecture: a CUDA header outside device/cuda*.hpp and .cuh files is seen, however it is "
  "reached",
  "[architecture]")
{
  Tree tree = repository();
  for (char const* const entry : {"kvcache.hpp", "host.hpp", "view.hpp"}) {
    for (std::string const& name : reached_from(tree, include_root + entry)) {
      CAPTURE(entry, name);
      CHECK_FALSE(starts_with(name, "cuda"));
      CHECK_FALSE(starts_with(name, include_root + "device/cuda"));
    }
  }
}

TEST_CASE("Architecture: assembly and questions about devices outside core/isa are seen",
          "[architecture]")
{
  std::string const barrier = "inline void f() { asm volatile(\"bar.sync 0;\"); }\n";
  check_one(assembly_is_in_isa(header("view/a.hpp", barrier)), "outside core/isa/");
  check_one(assembly_is_in_isa(header("core/isa.hpp", barrier)), "outside core/isa/");
  check_one(assembly_is_in_isa(header("attention/vector_avx2.hpp", barrier)), "outside core/isa/");
  check_one(assembly_is_in_isa(header("pool/a.cuh", "void f() { __asm__(\"\"); }\n")), "outside");
  std::string const fence = "inline void f(int r) { asm(\"\" : \"+r\"(r)); }\n";
  check_one(assembly_is_in_isa(header("view/a.hpp", fence)), "outside core/isa/");
  check_none(assembly_is_in_isa(header("attention/vector_avx2.hpp", fence)));
  check_none(assembly_is_in_isa(header("core/isa/a.hpp", barrier)));
  check_none(assembly_is_in_isa(header("view/a.hpp", "// asm volatile\nint asm_like = 1;\n")));
  std::string const question = "#if defined(__CUDA_ARCH__)\n#endif\n";
  check_one(macros_are_few(header("pool/a.hpp", question)), "core/isa/ ask what is compiled");
  check_none(macros_are_few(header("core/isa/a.hpp", question)));
  check_none(macros_are_few(header("core/cuda_block.hpp", question)));
}

TEST_CASE("Architecture: assembly that reads or writes memory without saying so is seen",
          "[architecture]")
{
  std::string const open = "void f(int p, int d)\n{\n  ";
  std::string const load = "asm volatile(\"ld.shared.b32 %0, [%1];\" : \"=r\"(d) : \"r\"(p)";
  std::string const close = ");\n}\n";
  check_one(assembly_names_memory(header("core/isa/a.hpp", open + load + close)), "a.hpp:5");
  check_one(assembly_names_memory(
              header("core/isa/a.hpp",
                     open + load + " : \"memory\");\n  __asm__(\"red [%0];\" :: \"r\"(p)" + close)),
            "a.hpp:6");
  check_none(
    assembly_names_memory(header("core/isa/a.hpp", open + load + " : \"memory\"" + close)));
  check_none(assembly_names_memory(
    header("core/isa/a.hpp",
           open + "asm(\"max.f32 %0, %1, %2;\" : \"=f\"(d) : \"f\"(p), \"f\"(p)" + close)));
  check_none(assembly_names_memory(
    header("core/isa/a.hpp",
           open + "asm volatile(\"ld.global.nc.b32 %0, [%1];\" : \"=r\"(d) : \"l\"(p)" + close)));
}

TEST_CASE("Architecture: a file without its opening lines is seen", "[architecture]")
{
  check_one(files_open_the_same_way({{"bench/a.cpp", "int main() {}\n"}}), "the first line");
  check_one(
    files_open_the_same_way({{"tests/a.hpp", "// SPDX-License-Identifier: Apache-2.0\n\n"}}),
    "#pragma once");
  check_none(files_open_the_same_way({{"tests/a.txt", "anything"}, {"tests/b.hpp", opening}}));
}

TEST_CASE("Architecture: unfinished notes are seen", "[architecture]")
{
  check_one(nothing_is_unfinished(header("core/a.hpp", std::string("// TO") + "DO: more\n")),
            "left");
  check_none(nothing_is_unfinished(header("core/a.hpp", "// tomato\n")));
}

TEST_CASE("Architecture: state in a header is seen", "[architecture]")
{
  std::string const local = "function-local static";
  std::string const global = "a global that can change";
  check_one(headers_hold_no_state(
              header("core/a.hpp", "inline int f() { static int n = 0; return ++n; }\n")),
            local);
  check_one(headers_hold_no_state(header("core/a.hpp",
                                         "template <class T>\nstruct A : B<T> {\n  int f() const\n "
                                         " {\n    if (x) {\n      static std::map<int, int> m(4);\n"
                                         "    }\n    return 1;\n  }\n};\n")),
            local);
  check_one(headers_hold_no_state(header(
              "core/a.hpp", "inline constexpr auto f = [] { thread_local int n; return n; };\n")),
            local);
  check_one(
    headers_hold_no_state(header("core/a.hpp", "namespace a {\ninline int counter = 0;\n}\n")),
    global);
  check_one(headers_hold_no_state(
              header("core/a.hpp", "struct A {\n  inline static std::atomic<int> n{0};\n};\n")),
            global);
  check_none(headers_hold_no_state(header(
    "core/a.hpp",
    "namespace kvcache::inline v0_1 {\n// static int x;\ninline constexpr int a = 1;\nstruct A {\n"
    "  static constexpr bool b = true;\n  static int f(int x) { return x; }\n  static A make();\n"
    "  inline static int const c = 3;\n};\nstatic_assert(sizeof(A) == 1);\ninline int g()\n{\n"
    "  static constexpr int t[] = {1, 2};\n  char const* s = \"static int x;\";\n  return "
    "t[0];\n}\n}\n")));
}

TEST_CASE("Architecture: a call to std in device code is seen", "[architecture]")
{
  std::string const marked = "struct A {\n  KVCACHE_HOST_DEVICE int f(int x) const\n  {\n    ";
  check_one(
    device_code_calls_no_std(header("view/a.hpp", marked + "return std::min(x, 3);\n  }\n};\n")),
    "std::min");
  check_one(device_code_calls_no_std(
              header("view/a.hpp", marked + "return std::min<int>(x, 3);\n  }\n};\n")),
            "std::min<int>");
  check_none(device_code_calls_no_std(header(
    "view/a.hpp",
    marked +
      "return static_cast<std::int32_t>(x);\n  }\n  int g() { return std::min(1, 2); }\n};\n")));
}

TEST_CASE("Architecture: a test case that asserts nothing, or hides, is seen", "[architecture]")
{
  auto const test = [](std::string const& text) { return Tree{{"tests/a/a_test.cpp", text}}; };
  // Split, so that this file does not hold such a case itself.
  std::string const open = std::string("\nTEST") + "_CASE(\"a\", \"[a]\")\n{\n";
  check_one(
    tests_assert(test(open + "  // REQUIRE(true);\n  f();\n}\n" + open + "  REQUIRE(f());\n}\n")),
    "without an assertion");
  check_one(
    tests_assert(test(std::string("\nTEST") + "_CASE(\"a\", \"[.][a]\")\n{\n  CHECK(f());\n}\n")),
    "hides");
  check_none(tests_assert(test(open + "  for (int x : {1, 2}) {\n    expect_same(x);\n  }\n}\n")));
}

TEST_CASE("Architecture: a link that leads nowhere is seen", "[architecture]")
{
  Tree const tree = {
    {"docs/a.md", "[b](../README.md#top) [c](b.md) [d](https://example.org) [e](../docs)"},
    {"README.md", ""}};
  check_one(links_resolve(tree), "b.md leads nowhere");
}
