#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the recall model and writes it as GGUF; prints its recall by length of the text.

usage: train.py [--out recall.gguf] [--seed 0] [--cores 2]

Matrices learn by Muon: the momentum, made orthogonal by five steps of Newton and Schulz; with AdamW in its place it takes
far longer until names are looked up. AdamW moves embedding, head and gains. Texts grow from 128 to 2,048 tokens.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--out", default="recall.gguf")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--cores", type=int, default=2, help="each has a share of every batch")
parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of steps: 0.01 shows that all of it runs")
ARGS = parser.parse_args()
sys.dont_write_bytecode = True  # the source folder stays as it is
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (f"--xla_force_host_platform_device_count={ARGS.cores} "
                           "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

import recall_language as language
import recall_model as model
from recall_language import Style


class Stage(NamedTuple):
    steps: int
    length: int      # tokens of a sequence
    sequences: int   # of a step
    at_once: int     # of these, at the same time on one core
    style: Style


class Phase(NamedTuple):
    """Stages under one schedule: the rates rise over `warm` steps and fall over the last `fall` of all steps."""
    matrix_rate: float
    rate: float
    warm: int
    fall: float
    stages: list


PHASES = [
    Phase(0.02, 3e-3, 100, 0.35, [
        Stage(260, 128, 32, 8, Style(dense=0.7, attributes=1)),  # by its end names are looked up
        Stage(40, 128, 64, 8, Style(dense=0.4, gaps=0.5, attributes=1)),
        Stage(60, 128, 64, 8, Style(dense=0.3, gaps=0.5)),
        Stage(80, 256, 32, 4, Style(dense=0.15, gaps=0.7)),
        Stage(70, 512, 16, 2, Style(dense=0.05, gaps=0.7)),
        Stage(24, 1024, 8, 1, Style(gaps=0.5)),
        Stage(8, 2048, 4, 1, Style()),
    ]),
    # Until here the digits of a new fact weigh nothing: they are noise. Now it learns that there are four of them.
    Phase(0.005, 1e-3, 10, 1.0, [
        Stage(36, 512, 16, 2, Style(gaps=0.5, new_digits=0.03)),
        Stage(6, 1024, 8, 1, Style(gaps=0.5, new_digits=0.03)),
    ]),
]
DECAY = 0.05


def loss(params, tokens, targets, cosines, sines, weights):
    """The weighted sum of losses; and [loss of answers, right digits, digits, all weights]."""
    rows = model.logits(params, tokens, cosines, sines)
    targets, weights = targets.reshape(-1), weights.reshape(-1)
    losses = jax.nn.logsumexp(rows, -1) - (rows * jax.nn.one_hot(targets, language.ROWS, dtype=jnp.float32)).sum(-1)
    answers = weights >= 1
    right = ((rows.argmax(-1) == targets) & answers).sum().astype(jnp.float32)
    return (losses * weights).sum(), jnp.stack([(losses * answers).sum(), right, answers.sum().astype(jnp.float32),
                                                weights.sum()])


def sum_of_gradients(params, *batch):
    """On one core; batch is [pieces, sequences at once, ...]."""
    def add(total, piece):
        (_, figures), gradients = jax.value_and_grad(loss, has_aux=True)(params, *piece)
        return jax.tree.map(jnp.add, total, (gradients, figures)), None

    zero = (jax.tree.map(jnp.zeros_like, params), jnp.zeros(4))
    return jax.lax.psum(jax.lax.scan(add, zero, batch)[0], "core")


everywhere, by_core = PartitionSpec(), PartitionSpec("core")
cores = Mesh(np.array(jax.devices()), ("core",))
sum_of_gradients = jax.shard_map(sum_of_gradients, mesh=cores,
                                 in_specs=(everywhere,) + (by_core,) * 5, out_specs=(everywhere, everywhere),
                                 check_vma=False)


def orthogonal(matrix):
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (jnp.linalg.norm(x) + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.T if tall else x


def step(params, first, second, number, matrix_rate, rate, *batch):
    """`first` and `second` are the moments of the gradients; `number` counts from 1."""
    gradients, figures = sum_of_gradients(params, *batch)
    gradients = jax.tree.map(lambda g: g / figures[3], gradients)
    norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(gradients)))
    gradients = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / (norm + 1e-9)), gradients)

    def update(path, p, g, m, v):
        if path[-1].key.startswith("w"):
            m = 0.95 * m + g
            move = orthogonal(g + 0.95 * m) * max(1, g.shape[0] / g.shape[1]) ** 0.5
            return p - matrix_rate * (move + DECAY * p), m, v
        m = 0.9 * m + 0.1 * g
        v = 0.98 * v + 0.02 * g * g
        return p - rate * (m / (1 - 0.9 ** number)) / (jnp.sqrt(v / (1 - 0.98 ** number)) + 1e-9), m, v

    updated = jax.tree_util.tree_map_with_path(update, params, gradients, first, second)
    def part(i):
        return jax.tree.map(lambda u: u[i], updated, is_leaf=lambda u: isinstance(u, tuple))

    return part(0), part(1), part(2), figures


step = jax.jit(step, donate_argnums=(0, 1, 2))
choices = jax.jit(lambda *inputs: model.logits(*inputs).argmax(-1))


def recall(params, length, texts):
    """The share of questions of which all four digits are right, in texts of `length` tokens that training never saw."""
    rng = random.Random(123 + length)
    right = asked = 0
    for _ in range(texts):
        tokens, answers = language.test_text(rng, length)
        chosen = np.asarray(choices(params, tokens[None, :-1], *model.rotations(np.arange(length)[None])))
        right += sum(bool((chosen[at - 1:at + 3] == tokens[at:at + 4]).all()) for at in answers)
        asked += len(answers)
    return right, asked


def train(params, rng):
    began, seen = time.time(), 0
    for phase in PHASES:
        first = jax.tree.map(jnp.zeros_like, params)
        second = jax.tree.map(jnp.zeros_like, params)
        stages = [stage._replace(steps=max(1, round(stage.steps * ARGS.scale))) for stage in phase.stages]
        total, number = sum(stage.steps for stage in stages), 0
        for stage in stages:
            figures = np.zeros(4)
            for _ in range(stage.steps):
                number += 1
                share = min(1, number / phase.warm) * min(1, max(0.02, (total - number) / (phase.fall * total)))
                tokens, targets, positions, weights = language.batch(rng, stage.style, stage.sequences, stage.length)
                batch = [a.reshape(-1, stage.at_once, *a.shape[1:])
                         for a in (tokens, targets, *model.rotations(positions), weights)]
                params, first, second, now = step(params, first, second, number, share * phase.matrix_rate,
                                                  share * phase.rate, *batch)
                figures = 0.9 * figures + np.asarray(now)
                seen += stage.sequences * stage.length
            print(f"{stage.steps:4d} steps of {stage.sequences:2d} x {stage.length:4d} tokens: "
                  f"{time.time() - began:5.0f} s, {seen / 1e6:5.2f} million tokens, "
                  f"{100 * figures[1] / figures[2]:5.1f} % of the digits asked for", flush=True)
    return params


def write(params, path):
    """As bf16, rounded to nearest even, through convert/recall_to_gguf.py. Returns what was written, as float32."""
    flat = {name: value for name, value in params.items() if not isinstance(value, dict)}
    for layer in range(model.CONFIG["L"]):
        flat.update({f"l{layer}.{name}": value for name, value in params[f"l{layer}"].items()})
    bits = {}
    for name, value in flat.items():
        wide = np.ascontiguousarray(value, np.float32).view(np.uint32).astype(np.uint64)
        bits[name] = ((wide + 0x7fff + ((wide >> 16) & 1)) >> 16).astype(np.uint16)
    with tempfile.TemporaryDirectory() as folder:
        archive = f"{folder}/weights_bf16.npz"
        np.savez(archive, cfg=json.dumps(model.CONFIG), vocab=np.array(language.VOCABULARY), **bits)
        converter = pathlib.Path(__file__).resolve().parent.parent / "convert" / "recall_to_gguf.py"
        subprocess.run([sys.executable, str(converter), archive, path], check=True)
    return jax.tree.map(lambda p: p.astype(jnp.bfloat16).astype(jnp.float32), params)


def main():
    params = model.init(jax.random.PRNGKey(ARGS.seed))
    count = sum(p.size for p in jax.tree.leaves(params))
    print(f"{count:,} parameters, seed {ARGS.seed}, {ARGS.cores} cores", flush=True)
    params = write(train(params, random.Random(ARGS.seed + 7)), ARGS.out)
    for length, texts in ((256, 16), (512, 16), (1024, 16), (2048, 8), (4096, 3)):
        right, asked = recall(params, length, texts)
        print(f"recall over {length:4d} tokens: {right} of {asked}, {100 * right / asked:.1f} %", flush=True)


if __name__ == "__main__":
    main()
