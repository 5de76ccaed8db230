// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The rules of the house that a reader of text can check. Each rule takes a tree and returns its breaches,
/// one sentence each; the test runs them on this repository, and on small broken trees that each must be seen.
///
///   level   0 core   1 layout device   2 alloc prefix replace evict quant select   3 control view
///           4 pool attention   5 cache   6 tier transfer   7 serve interop
///
/// A room includes rooms of lower levels only; rooms of one level never include each other.

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "architecture/source_text.hpp"

namespace kvcache_test {

/// Path from the repository's root, with `/` -> text.
using Tree = std::map<std::string, std::string>;
using Breaches = std::vector<std::string>;

inline std::map<std::string, int> const& room_levels()
{
  static std::map<std::string, int> const levels = {{"core", 0},
                                                    {"layout", 1},
                                                    {"device", 1},
                                                    {"alloc", 2},
                                                    {"prefix", 2},
                                                    {"replace", 2},
                                                    {"evict", 2},
                                                    {"quant", 2},
                                                    {"select", 2},
                                                    {"control", 3},
                                                    {"view", 3},
                                                    {"pool", 4},
                                                    {"cache", 5},
                                                    {"tier", 6},
                                                    {"attention", 4},
                                                    {"serve", 7},
                                                    {"transfer", 6},
                                                    {"interop", 7}};
  return levels;
}

inline std::string const include_root = "include/kvcache/";
inline std::string const isa_root = include_root + "core/isa/";

inline bool starts_with(std::string_view text, std::string_view start)
{
  return text.substr(0, start.size()) == start;
}

inline bool ends_with(std::string_view text, std::string_view end)
{
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

inline bool is_public_header(std::string const& path)
{
  return starts_with(path, include_root) && (ends_with(path, ".hpp") || ends_with(path, ".cuh"));
}

/// The room of a public header, or "" for the headers at the top.
inline std::string room_of(std::string const& path)
{
  std::string const rest = path.substr(include_root.size());
  std::size_t const slash = rest.find('/');
  return slash == std::string::npos ? "" : rest.substr(0, slash);
}

inline std::string where(std::string const& path, std::size_t line)
{
  return path + ":" + std::to_string(line) + ": ";
}

struct Include {
  std::size_t line;
  std::string name;  // without brackets
  bool quoted;
};

inline std::vector<Include> includes_of(std::string const& text)
{
  static std::regex const pattern(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"].*)re");
  std::vector<Include> out;
  std::size_t line = 0;
  for (std::string const& each : lines_of(text)) {
    ++line;
    std::smatch match;
    if (each.find("include") != std::string::npos && std::regex_match(each, match, pattern)) {
      out.push_back({line, match[2].str(), match[1].str() == "\""});
    }
  }
  return out;
}

// --- rooms -----------------------------------------------------------------------------------------------------------

/// Rooms include lower levels only, by `<kvcache/...>`, and only what exists.
inline Breaches rooms_include_downwards(Tree const& tree)
{
  Breaches out;
  for (auto const& [path, text] : tree) {
    if (!is_public_header(path)) {
      continue;
    }
    std::string const room = room_of(path);
    if (!room.empty() && room_levels().count(room) == 0) {
      out.push_back(where(path, 1) + "the room " + room + "/ is not in the table of levels");
      continue;
    }
    for (Include const& include : includes_of(text)) {
      if (include.quoted) {
        out.push_back(where(path, include.line) + "\"" + include.name +
                      "\": public headers are included as <kvcache/...>");
        continue;
      }
      if (!starts_with(include.name, "kvcache/")) {
        continue;
      }
      std::string const target = "include/" + include.name;
      if (tree.count(target) == 0) {
        out.push_back(where(path, include.line) + "<" + include.name + "> does not exist");
        continue;
      }
      std::string const other = room_of(target);
      if (room.empty() || other == room || target == include_root + "version.hpp") {
        continue;
      }
      if (other.empty()) {
        out.push_back(where(path, include.line) + room + "/ includes <" + include.name +
                      ">, which stands above every room");
      } else if (room_levels().count(other) != 0 &&
                 room_levels().at(other) >= room_levels().at(room)) {
        out.push_back(where(path, include.line) + room + "/ (level " +
                      std::to_string(room_levels().at(room)) + ") includes " + other + "/ (level " +
                      std::to_string(room_levels().at(other)) + ")");
      }
    }
  }
  return out;
}

/// Every header that `path` reaches through `<kvcache/...>`, and every other include on the way.
inline std::set<std::string> reached_from(Tree const& tree, std::string const& path)
{
  std::set<std::string> seen;
  std::vector<std::string> open{path};
  while (!open.empty()) {
    auto const at = tree.find(open.back());
    open.pop_back();
    if (at == tree.end()) {
      continue;
    }
    for (Include const& include : includes_of(at->second)) {
      bool const ours = starts_with(include.name, "kvcache/");
      if (seen.insert(ours ? "include/" + include.name : include.name).second && ours) {
        open.push_back("include/" + include.name);
      }
    }
  }
  return seen;
}

inline Breaches headers_have_no_cycles(Tree const& tree)
{
  Breaches out;
  for (auto const& [path, text] : tree) {
    if (is_public_header(path) && reached_from(tree, path).count(path) != 0) {
      out.push_back(where(path, 1) + "includes itself through other headers");
    }
  }
  return out;
}

/// `view.hpp` costs a kernel file next to nothing, and the facade carries no vector intrinsics.
inline Breaches umbrellas_stay_light(Tree const& tree)
{
  static std::set<std::string> const of_a_view = {
    "cassert",
    "compare",
    "concepts",
    "cstddef",
    "cstdint",
    "cstdio",
    "type_traits",
    "cstdlib",
    "exception",
    "new"};  // core/check.hpp, where calls are checked
  Breaches out;
  for (std::string const& name : reached_from(tree, include_root + "view.hpp")) {
    if (!starts_with(name, include_root) && of_a_view.count(name) == 0) {
      out.push_back("include/kvcache/view.hpp reaches <" + name + ">, too much for a kernel file");
    }
  }
  for (std::string const& name : reached_from(tree, include_root + "kvcache.hpp")) {
    if (name.find("intrin.h") != std::string::npos || name == "arm_neon.h") {
      out.push_back("include/kvcache/kvcache.hpp reaches <" + name + ">, which host.hpp may only");
    }
  }
  return out;
}

/// No heavy, third-party or misplaced CUDA header.
inline Breaches includes_are_allowed(Tree const& tree)
{
  static std::set<std::string> const banned = {"iostream", "functional", "ranges", "regex"};
  static std::set<std::string> const system = {
    "immintrin.h", "cpuid.h", "arm_neon.h", "sys/mman.h", "unistd.h"};
  Breaches out;
  for (auto const& [path, text] : tree) {
    if (!is_public_header(path)) {
      continue;
    }
    bool const kernel_file = ends_with(path, ".cuh");
    bool const cuda_file = kernel_file || starts_with(path, include_root + "device/cuda");
    for (Include const& include : includes_of(text)) {
      std::string const& name = include.name;
      std::string why;
      if (starts_with(name, "kvcache/")) {
        continue;
      }
      if (banned.count(name) != 0 || starts_with(name, "thrust/") ||
          starts_with(name, "cooperative_groups")) {
        why = "is too heavy for a public header";
      } else if (starts_with(name, "cub/")) {
        why = kernel_file ? "" : "belongs in a .cuh file";
      } else if (starts_with(name, "cuda")) {
        why = cuda_file ? "" : "belongs in device/cuda*.hpp or a .cuh file";
      } else if (name.find_first_of("./") != std::string::npos && system.count(name) == 0) {
        why = "is neither ours nor the standard library's";
      }
      if (!why.empty()) {
        out.push_back(where(path, include.line) + "<" + name + "> " + why);
      }
    }
  }
  return out;
}

// --- the look of a file ----------------------------------------------------------------------------------------------

inline Breaches headers_are_short(Tree const& tree)
{
  Breaches out;
  std::vector<std::size_t> sizes;
  for (auto const& [path, text] : tree) {
    if (!is_public_header(path)) {
      continue;
    }
    sizes.push_back(lines_of(text).size());
    if (sizes.back() > 400) {
      out.push_back(where(path, sizes.back()) + "a header has at most 400 lines");
    }
  }
  std::sort(sizes.begin(), sizes.end());
  if (!sizes.empty() && sizes[sizes.size() / 2] > 120) {
    out.push_back("the median header has " + std::to_string(sizes[sizes.size() / 2]) +
                  " lines, at most 120 are right");
  }
  return out;
}

/// At most ten macros, named KVCACHE_*, in three files; the compiler is asked in one.
inline Breaches macros_are_few(Tree const& tree)
{
  static std::regex const define(R"re(^\s*#\s*define\s+(\w+).*)re");
  static std::set<std::string> const homes = {include_root + "core/config.hpp",
                                              include_root + "core/check.hpp",
                                              include_root + "version.hpp"};
  Breaches out;
  std::set<std::string> names;
  for (auto const& [path, text] : tree) {
    if (!is_public_header(path)) {
      continue;
    }
    std::size_t line = 0;
    for (std::string const& each : lines_of(code_only(text))) {
      ++line;
      std::smatch match;
      if (each.find("define") != std::string::npos && std::regex_match(each, match, define)) {
        names.insert(match[1].str());
        if (!starts_with(match[1].str(), "KVCACHE_")) {
          out.push_back(where(path, line) + "the macro " + match[1].str() + " lacks KVCACHE_");
        }
        if (homes.count(path) == 0) {
          out.push_back(where(path, line) +
                        "macros live in core/config.hpp, core/check.hpp and version.hpp");
        }
      }
      if (has_word(each, "__CUDACC__") && path != include_root + "core/config.hpp") {
        out.push_back(where(path, line) + "only core/config.hpp asks for __CUDACC__");
      }
      bool const block = path == include_root + "core/cuda_block.hpp";
      bool const cuda_file =
        ends_with(path, ".cuh") || starts_with(path, include_root + "device/cuda") || block;
      if (has_word(each, "KVCACHE_HAS_CUDA") && !cuda_file &&
          path != include_root + "core/config.hpp") {
        out.push_back(where(path, line) +
                      "only core/cuda_block.hpp, device/cuda*.hpp and .cuh files ask for CUDA");
      }
      if (has_word(each, "__CUDA_ARCH__") && !block && !starts_with(path, isa_root) &&
          path != include_root + "core/config.hpp") {
        out.push_back(where(path, line) +
                      "only core/config.hpp and core/isa/ ask what is compiled for a device");
      }
    }
  }
  if (names.size() > 10) {
    out.push_back(std::to_string(names.size()) + " macros in include/, at most 10 are right");
  }
  return out;
}

/// Instructions stand in core/isa/, each with its twin. Outside are the empty fences of the vectors, and what a CPU is.
inline Breaches assembly_is_in_isa(Tree const& tree)
{
  Breaches out;
  for (auto const& [path, text] : tree) {
    if (!is_public_header(path) || starts_with(path, isa_root) ||
        path == include_root + "attention/instruction_set.hpp") {
      continue;
    }
    bool const fences = starts_with(path, include_root + "attention/vector_");
    std::vector<std::string> const lines = lines_of(text);
    std::size_t line = 0;
    for (std::string const& each : lines_of(code_only(text))) {
      ++line;
      bool const assembly =
        has_word(each, "asm") || has_word(each, "__asm__") || has_word(each, "__asm");
      bool const fence = fences && lines[line - 1].find("asm(\"\" :") != std::string::npos;
      if (assembly && !fence) {
        out.push_back(where(path, line) + "assembly outside core/isa/");
      }
    }
  }
  return out;
}

/// Assembly with an address among its operands names "memory": without it a compiler may move it over a store that it does not
/// see meet it. Loads of what nothing writes while a kernel runs (`.nc`) may move.
inline Breaches assembly_names_memory(Tree const& tree)
{
  Breaches out;
  for (auto const& [path, text] : tree) {
    if (!is_public_header(path)) {
      continue;
    }
    std::string const code = code_only(text);
    for (std::size_t at = code.find("asm"); at != std::string::npos;
         at = code.find("asm", at + 1)) {
      bool const starts = !is_word(code[at - 1]) || code[at - 1] == '_';
      std::size_t const open = code.find_first_not_of(" _abcdefghijklmnopqrstuvwxyz\n", at);
      if (!starts || open == std::string::npos || code[open] != '(') {
        continue;
      }
      std::string const whole = text.substr(open, past_close(code, open) - open);
      bool const constant = whole.find("(\"ld.global.nc.") != std::string::npos;
      if (whole.find("[%") != std::string::npos && !constant &&
          whole.find("\"memory\"") == std::string::npos) {
        out.push_back(where(path, line_of(code, at)) + "assembly at an address names \"memory\"");
      }
    }
  }
  return out;
}

inline bool is_source(std::string const& path)
{
  static std::array<std::string_view, 4> const endings = {".hpp", ".cuh", ".cpp", ".cu"};
  return std::any_of(
    endings.begin(), endings.end(), [&](std::string_view end) { return ends_with(path, end); });
}

inline Breaches files_open_the_same_way(Tree const& tree)
{
  Breaches out;
  for (auto const& [path, text] : tree) {
    if (!is_source(path)) {
      continue;
    }
    std::vector<std::string> const lines = lines_of(text);
    if (lines.empty() || lines[0] != "// SPDX-License-Identifier: Apache-2.0") {
      out.push_back(where(path, 1) + "the first line is `// SPDX-License-Identifier: Apache-2.0`");
    }
    bool const header = ends_with(path, ".hpp") || ends_with(path, ".cuh");
    if (header && (lines.size() < 2 || lines[1] != "#pragma once")) {
      out.push_back(where(path, 2) + "the second line of a header is `#pragma once`");
    }
  }
  return out;
}

inline Breaches nothing_is_unfinished(Tree const& tree)
{
  // Spelt in two halves, so that this file passes.
  static std::array<std::string, 3> const words = {
    "TO"
    "DO",
    "FIX"
    "ME",
    "XX"
    "X"};
  Breaches out;
  for (auto const& [path, text] : tree) {
    std::size_t line = 0;
    for (std::string const& each : lines_of(text)) {
      ++line;
      for (std::string const& word : words) {
        if (is_source(path) && has_word(each, word)) {
          out.push_back(where(path, line) + word + " is left");
        }
      }
    }
  }
  return out;
}

// --- what a public header may not hold -------------------------------------------------------------------------------

/// No object that shared libraries would share or double: function-local statics, mutable globals.
inline Breaches headers_hold_no_state(Tree const& tree)
{
  Breaches out;
  for (auto const& [path, text] : tree) {
    if (!is_public_header(path)) {
      continue;
    }
    std::string const code = without_directives(code_only(text));
    for (Statement const& statement : statements(code)) {
      std::string const declared = statement.text.substr(0, statement.text.find('='));
      bool const stored = has_word(declared, "static") || has_word(declared, "thread_local") ||
                          has_word(declared, "inline");
      bool const fixed = has_word(declared, "constexpr") || has_word(declared, "consteval") ||
                         has_word(declared, "namespace") || has_word(declared, "operator");
      bool const function = declared.find('(') != std::string::npos;
      if (!stored || fixed) {
        continue;
      }
      if (statement.scope == Scope::body) {
        if (has_word(declared, "static") || has_word(declared, "thread_local")) {
          out.push_back(where(path, line_of(code, statement.at)) + "a function-local static");
        }
      } else if (!function && !has_word(declared, "const")) {
        out.push_back(where(path, line_of(code, statement.at)) + "a global that can change");
      }
    }
  }
  return out;
}

/// nvcc rejects host-only `std::` functions in device code, but only where they are instantiated.
inline Breaches device_code_calls_no_std(Tree const& tree)
{
  static std::regex const call(R"re(std::[a-z_0-9]+\s*(<[^;(){}]*>)?\s*\()re");
  Breaches out;
  for (auto const& [path, text] : tree) {
    if (!is_public_header(path)) {
      continue;
    }
    std::string const code = without_directives(code_only(text));
    for (std::string const mark : {"KVCACHE_HOST_DEVICE", "KVCACHE_DEVICE"}) {
      for (std::size_t at = code.find(mark); at != std::string::npos;
           at = code.find(mark, at + 1)) {
        std::size_t const open = code.find('{', at);
        if (open == std::string::npos || code.find(';', at) < open) {
          continue;  // a declaration
        }
        std::string const body = code.substr(open, past_close(code, open) - open);
        std::smatch match;
        if (std::regex_search(body, match, call)) {
          std::size_t const found = open + static_cast<std::size_t>(match.position(0));
          out.push_back(where(path, line_of(code, found)) + "device code calls " + match.str() +
                        "...)");
        }
      }
    }
  }
  return out;
}

// --- tests -----------------------------------------------------------------------------------------------------------

/// Every test case asserts, and none hides.
inline Breaches tests_assert(Tree const& tree)
{
  static std::regex const opening(
    R"re((^|\n)(TEST_CASE|TEST_CASE_METHOD|TEMPLATE_TEST_CASE\w*|SCENARIO)\s*\()re");
  static std::regex const assertion(
    R"re(\b(REQUIRE|CHECK|STATIC_REQUIRE|FAIL|require|check|expect|verify)\w*\s*[(<])re");
  static std::regex const hidden(R"re(\[\.|\[!mayfail\]|\[!shouldfail\]|\[!hide\])re");
  Breaches out;
  for (auto const& [path, text] : tree) {
    if (!starts_with(path, "tests/") || !is_source(path)) {
      continue;
    }
    std::string const code = code_only(text);
    for (std::sregex_iterator at(code.begin(), code.end(), opening), end; at != end; ++at) {
      std::size_t const paren =
        static_cast<std::size_t>(at->position(0)) + static_cast<std::size_t>(at->length(0)) - 1;
      std::size_t const body = past_close(code, paren);
      std::size_t const open = code.find('{', body);
      std::string const line = where(path, line_of(code, paren));
      if (open == std::string::npos) {
        continue;
      }
      if (!std::regex_search(code.substr(open, past_close(code, open) - open), assertion)) {
        out.push_back(line + "a test case without an assertion");
      }
      if (std::regex_search(text.substr(paren, body - paren), hidden)) {
        out.push_back(line + "a test case that hides or may fail");
      }
    }
  }
  return out;
}

// --- the repository --------------------------------------------------------------------------------------------------

inline Breaches top_level_is_fixed(std::vector<std::string> const& entries)
{
  static std::set<std::string> const allowed = {"CMakeLists.txt",
                                                "include",
                                                "examples",
                                                "tests",
                                                "bench",
                                                "docs",
                                                "cmake",
                                                "LICENSE",
                                                "README.md",
                                                "CHANGELOG.md",
                                                ".clang-format",
                                                ".clang-tidy",
                                                "CONTRIBUTING.md",
                                                "CMakePresets.json",
                                                ".gitignore",
                                                ".ci",
                                                ".git",
                                                "build",
                                                "models",
                                                "compile_commands.json"};
  Breaches out;
  for (std::string const& entry : entries) {
    if (allowed.count(entry) == 0 && !starts_with(entry, "build")) {
      out.push_back(entry + ": is not part of the top level");
    }
  }
  return out;
}

/// Relative links of the pages lead to files of the repository.
inline Breaches links_resolve(Tree const& tree)
{
  static std::regex const link(R"re(\]\(([^)#\s]+)(#[^)]*)?\))re");
  Breaches out;
  for (auto const& [path, text] : tree) {
    if (!ends_with(path, ".md")) {
      continue;
    }
    for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at) {
      std::string const target = (*at)[1].str();
      if (target.find("://") != std::string::npos || starts_with(target, "mailto:")) {
        continue;
      }
      std::string resolved =
        (std::filesystem::path(path).parent_path() / target).lexically_normal().generic_string();
      if (ends_with(resolved, "/")) {
        resolved.pop_back();
      }
      auto const found = tree.lower_bound(resolved);
      bool const file = found != tree.end() && found->first == resolved;
      auto const inside = tree.lower_bound(resolved + "/");
      bool const folder = inside != tree.end() && starts_with(inside->first, resolved + "/");
      if (!file && !folder) {
        out.push_back(where(path, line_of(text, static_cast<std::size_t>(at->position(0)))) +
                      "the link to " + target + " leads nowhere");
      }
    }
  }
  return out;
}

/// Every file of the repository, build folders and version control aside; text of what the rules read.
inline Tree read_tree(std::filesystem::path const& root)
{
  namespace fs = std::filesystem;
  Tree tree;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator();
       ++it) {
    std::string const name = it->path().filename().string();
    if (it->is_directory() && it.depth() == 0 &&
        (name == ".git" || starts_with(name, "build") || name == "models")) {
      it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file()) {
      continue;
    }
    std::string const path = fs::relative(it->path(), root).generic_string();
    std::string& text = tree[path];
    if (is_source(path) || ends_with(path, ".md")) {
      std::ifstream file(it->path(), std::ios::binary);
      std::ostringstream all;
      all << file.rdbuf();
      text = all.str();
    }
  }
  return tree;
}

}  // namespace kvcache_test
