#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks a recall model through the decoder of this folder, and prints how many answers are right by length of the text.

usage: ask.py LLAMA [MODEL.gguf] [--texts 2]

LLAMA is the program, such as build/demo/examples/llama/llama; without MODEL it asks the model inside the program.

Every question is a run of its own that reads the text, decodes four tokens greedily, and must print the four digits.
Only numpy is needed. The texts are others than train.py measures with, and those are others than training sees.
"""
import argparse
import random
import subprocess
import sys

sys.dont_write_bytecode = True  # the source folder stays as it is

from recall_language import VOCABULARY, test_text


def words(tokens):
    """The text of tokens: a space between words, none before . , ? and none between digits."""
    out = ""
    for word in (VOCABULARY[token] for token in tokens):
        joined = not out or word in ".,?" or (word.isdigit() and out[-1].isdigit())
        out += word if joined else " " + word
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--texts", type=int, default=2)
    args = parser.parse_args()
    command = [args.llama] + (["--model", args.model] if args.model else [])
    for length in (256, 512, 1024, 2048, 4000):
        rng = random.Random(321 + length)
        right = asked = 0
        for _ in range(args.texts):
            tokens, answers = test_text(rng, length)
            for at in answers:
                run = subprocess.run(command + ["--prompt", words(tokens[:at]), "--n", "4", "--no-progress"],
                                     check=True, capture_output=True, text=True)
                right += run.stdout.strip() == words(tokens[at:at + 4])
                asked += 1
        print(f"{length:4d} tokens: {right} of {asked}", flush=True)


if __name__ == "__main__":
    main()
