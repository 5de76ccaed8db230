#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/mutants/run.py [--only NUMBERS] [--jobs N] [--operations N]: which small wrong changes of the headers do the tests notice?

`changes.txt` lists changes as a tired developer makes them: a condition dropped, an order turned round, a field not reset. All of
them are built into one copy of the headers, each behind a number that the environment chooses, so that a hundred of them cost one
build: KVCACHE_MUTANT=17 runs the tests with change 17. A change is *killed* where a test fails, crashes or never ends, and
*survives* where all pass. A change that alters nothing anyone could see is an equivalent; the list says so, and why.

Outside CI: it takes about an hour. The exit status is 1 where a change survives that is not listed as an equivalent.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "mutants"
# The room of a changed header, and the test programs that may notice, the quickest first.
TESTS = {
    "alloc": ["alloc", "control"],
    "attention": ["attention", "device_attention"],
    "cache": ["cache", "memory"],
    "control": ["control", "cache", "faults", "memory"],
    "core": ["core", "control"],
    "device": ["device", "pool", "simt"],
    "interop": ["interop"],
    "layout": ["layout", "pool"],
    "pool": ["pool", "device", "cache", "fuzz"],
    "prefix": ["prefix", "control"],
    "replace": ["replace", "prefix", "control"],
    "view": ["view", "interop", "device", "simt"],
}
WITH_MODELS = {"alloc", "cache", "control", "pool", "prefix", "replace"}
SECONDS = 900  # of one test program; a loop without end is killed

SWITCH = """#pragma once
#include <cstdlib>
namespace kvcache_mutant {
inline int const chosen = std::getenv("KVCACHE_MUTANT") != nullptr ? std::atoi(std::getenv("KVCACHE_MUTANT")) : 0;
inline constexpr bool is(int number) noexcept { return !__builtin_is_constant_evaluated() && chosen == number; }
}  // namespace kvcache_mutant
"""


class Change:
    """One entry: `N file`, lines `- old`, lines `+ new`, and perhaps `= why it is an equivalent`."""

    def __init__(self, number, path):
        self.number, self.path, self.old, self.new, self.equivalent = number, path, [], [], ""

    def text(self, lines):
        return "\n".join(lines)


def read_changes(path):
    changes = []
    for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        mark, rest = line[:2], line[2:]
        if mark == "- ":
            changes[-1].old.append(rest)
        elif mark == "+ ":
            changes[-1].new.append(rest)
        elif mark == "= ":
            changes[-1].equivalent = rest
        elif re.fullmatch(r"\d+ \S+", line):
            number, header = line.split()
            changes.append(Change(int(number), header))
        else:
            sys.exit(f"{path.name}:{at}: neither 'N header', '- old', '+ new' nor '= why'")
    return changes


def switched(change):
    """The text that does one or the other."""
    old, new = change.text(change.old), change.text(change.new)
    statement = old.rstrip().endswith(";")
    if statement:
        return f"if (::kvcache_mutant::is({change.number})) {{\n{new}\n}} else {{\n{old}\n}}"
    return f"(::kvcache_mutant::is({change.number}) ? ({new}) : ({old}))"


def pattern_of(text):
    """As written, whatever the layout: clang-format may break lines elsewhere."""
    return re.compile(r"\s+".join(re.escape(word) for word in text.split()))


def make_tree(changes):
    tree = BUILD / "tree"
    if tree.exists():
        shutil.rmtree(tree)
    tree.mkdir(parents=True)
    files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, files):
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    (tree / "mutant.hpp").write_text(SWITCH, encoding="utf-8")
    wrong = []
    for change in changes:
        header = tree / "include" / "kvcache" / change.path
        text = header.read_text(encoding="utf-8") if header.exists() else ""
        found = list(pattern_of(change.text(change.old)).finditer(text))
        if len(found) != 1:
            wrong.append(f"change {change.number}: {change.path} has its text {len(found)} times, once is right")
            continue
        text = text[: found[0].start()] + switched(change) + text[found[0].end() :]
        header.write_text(text, encoding="utf-8")
    if wrong:
        sys.exit("\n".join(wrong))
    return tree


def build(tree, programs, jobs):
    out = BUILD / "out"
    flags = f"-include {tree}/mutant.hpp -w"
    configure = ["cmake", "-S", tree, "-B", out, "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_FLAGS={flags}", "-DKVCACHE_BUILD_TESTS=ON", "-DKVCACHE_BUILD_EXAMPLES=OFF", "-DKVCACHE_BUILD_BENCH=OFF"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", out, "--parallel", str(jobs), "--target", *[f"{p}_tests" for p in programs]], check=True)
    return out / "tests"


def runs_of(change, operations):
    """The programs, with their arguments, that may notice a change."""
    room = change.path.split("/")[0]
    runs = [([f"{name}_tests"], {}) for name in TESTS.get(room, ["control"])]
    if room in WITH_MODELS:
        runs.append((["model_tests"], {"KVCACHE_MODEL_OPS": str(operations)}))
    return runs


def verdict(change, programs, operations):
    start = time.monotonic()
    for command, extra in runs_of(change, operations):
        environment = dict(os.environ, KVCACHE_MUTANT=str(change.number), KVCACHE_FEWER_CASES="4", **extra)
        try:
            done = subprocess.run([programs / command[0], *command[1:]], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return f"killed by {command[0]}: it never ends", time.monotonic() - start
        if done.returncode != 0:
            return f"killed by {command[0]}", time.monotonic() - start
    return "SURVIVES", time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(prog="tests/mutants/run.py", allow_abbrev=False)
    parser.add_argument("--only", default="", help="numbers, with commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--operations", type=int, default=2_000_000, help="of each random model")
    arguments = parser.parse_args()
    changes = read_changes(Path(__file__).with_name("changes.txt"))
    if len({c.number for c in changes}) != len(changes):
        sys.exit("changes.txt: a number stands twice")
    tree = make_tree(changes)
    programs = sorted({p for c in changes for p in TESTS.get(c.path.split("/")[0], ["control"])} | {"model"})
    where = build(tree, programs, arguments.jobs)
    for run in sorted({run[0][0] for c in changes for run in runs_of(c, 1000)}):  # without a change all pass
        done = subprocess.run([where / run], env=dict(os.environ, KVCACHE_MODEL_OPS="20000", KVCACHE_FEWER_CASES="4"), stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            sys.exit(f"{run} fails without any change")
    chosen = [c for c in changes if not arguments.only or str(c.number) in arguments.only.split(",")]
    survivors = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for change, (said, seconds) in zip(chosen, pool.map(lambda c: verdict(c, where, arguments.operations), chosen)):
            survives = said == "SURVIVES"
            equivalent = survives and change.equivalent
            survivors += survives and not change.equivalent
            print(f"{change.number:4} {change.path:36} {'an equivalent: ' + change.equivalent if equivalent else said} ({seconds:.0f} s)", flush=True)
    print(f"{len(chosen)} changes, {survivors} survive")
    return 1 if survivors else 0


sys.exit(main())
