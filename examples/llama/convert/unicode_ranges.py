#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints examples/llama/unicode_ranges.hpp from Python's Unicode database (standard library only).

usage: unicode_ranges.py > unicode_ranges.hpp
"""
import sys
import unicodedata

LAST = 0x10FFFF


def ranges(wanted):
    """[(first, last)] of the code points for which `wanted(category)` holds."""
    out = []
    for c in range(LAST + 1):
        if not wanted(unicodedata.category(chr(c))):
            continue
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def table(name, comment, items):
    print(f"\n/// {comment}")
    print(f"inline constexpr CodeRange {name}[] = {{")
    line = " "
    for first, last in items:
        item = f" {{0x{first:x}, 0x{last:x}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = " "
        line += item
    print(line.rstrip(",") + "};")


print(f"""// SPDX-License-Identifier: Apache-2.0
#pragma once

// Written by convert/unicode_ranges.py from Unicode {unicodedata.unidata_version}; do not edit.
// clang-format off

#include <cstdint>

namespace llama {{

/// Code points from `first` to `last`, both included.
struct CodeRange {{
  std::uint32_t first;
  std::uint32_t last;
}};""")
table("letter_ranges", r"\p{L}: categories Lu, Ll, Lt, Lm, Lo.", ranges(lambda k: k[0] == "L"))
table("number_ranges", r"\p{N}: categories Nd, Nl, No.", ranges(lambda k: k[0] == "N"))
print("\n}  // namespace llama")
print("// clang-format on")
sys.stdout.flush()
