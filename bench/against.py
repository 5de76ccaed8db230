#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""against.py NEW OLD [--only BARS] [--rounds N] [--json FILE]: two builds of kvcache_bench in turn, and how their bars compare.

A round runs both programs, the first of them first in every other round, and each bar gives one ratio: above 1 the new build is
slower (or needs more). The value of a bar is already a ratio to a reference that its own process measured beside it, so what
the machine does from minute to minute cancels twice. The interval is that of the median by order statistics: no assumption
about how the noise is distributed. Called by bench/run.sh --against.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile

LIMIT = 1.03  # the upper end of an interval; above it a bar counts as slower
LEAST_ROUNDS = 15


def values(program, only, rounds):
    """{(bar, what): (value, better)} of one run."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [program, "--json", file.name, "--rounds", str(rounds)]
        if only:
            command += ["--only", only]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode not in (0, 1):
            sys.exit(done.stdout)
        bars = json.load(file)
    return {(b["bar"], b["what"]): (b["value"], b["better"]) for b in bars if b["pass"] is not None and b["value"] != 0}


def ranks(n, share=0.95):
    """The ranks, from 1 on, between which the median lies with at least `share`."""
    low = 0
    while low < n // 2:
        outside = 2 * sum(math.comb(n, k) for k in range(low + 1)) / 2**n
        if outside > 1 - share:
            break
        low += 1
    return max(low, 1), n + 1 - max(low, 1)


def main():
    parser = argparse.ArgumentParser(prog="bench/run.sh --against COMMIT", allow_abbrev=False)
    parser.add_argument("new")
    parser.add_argument("old")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS)
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    if arguments.rounds < LEAST_ROUNDS:
        parser.error(f"--rounds is {arguments.rounds}, at least {LEAST_ROUNDS} is right")

    if not arguments.only:  # exponents are held by their goals; a ratio of two says nothing
        listed = subprocess.run([arguments.new, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
        arguments.only = ",".join(dict.fromkeys(line.split()[0] for line in listed.splitlines() if not line.startswith("GROWTH")))

    ratios = {}
    for i in range(arguments.rounds):
        programs = [arguments.new, arguments.old]
        order = programs if i % 2 == 0 else programs[::-1]
        run = {program: values(program, arguments.only, 5) for program in order}
        for key, (new, better) in run[arguments.new].items():
            if key in run[arguments.old]:
                old = run[arguments.old][key][0]
                ratios.setdefault(key, []).append(old / new if better == "higher" else new / old)
        print(f"\rround {i + 1} of {arguments.rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)

    slower, results = 0, []
    print(f"{'bar':6} {'what':66} {'median':>7}  {'95 % interval':16} of new / old; above 1 is slower")
    for (bar, what), each in ratios.items():
        each.sort()
        n = len(each)
        low, high = ranks(n)
        median = (each[(n - 1) // 2] + each[n // 2]) / 2
        ends = each[low - 1], each[high - 1]
        # Too few rounds for an interval of 95 percent say nothing.
        verdict = "too few rounds" if n < 6 else "SLOWER" if ends[1] > LIMIT else "not slower"
        slower += verdict != "not slower"
        results.append({"bar": bar, "what": what, "median": median, "low": ends[0], "high": ends[1], "rounds": n, "pass": verdict == "not slower"})
        print(f"{bar:6} {what:66} {median:7.3f}  {ends[0]:.3f} .. {ends[1]:.3f}   {verdict}, {n} rounds")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    print(f"{len(results)} bars, {slower} slower than {LIMIT} or without a verdict")
    return 1 if slower or not results else 0


sys.exit(main())
