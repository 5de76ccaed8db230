# SPDX-License-Identifier: Apache-2.0
"""The recall model in JAX: a Llama (RMSNorm, RoPE, grouped queries, SwiGLU) of 664,704 parameters.

Three things are not as one would write them first, all for speed on a CPU: `barrier` keeps XLA from fusing element-wise
work into the loops of matrix products; embedding rows are fetched by a product with one-hot rows, whose gradient is a
product again and no scatter; attention goes by blocks of 128 queries, so that half of the masked work is never done.
"""
import jax
import jax.numpy as jnp
import numpy as np

from recall_language import ROWS

CONFIG = {"V": ROWS, "d": 128, "L": 4, "H": 8, "Hk": 2, "hd": 32, "f": 192, "theta": 1e6}
EPSILON = 1e-5
barrier = jax.lax.optimization_barrier


def init(key):
    """Matrices are [in, out]: y = x @ w. The output head starts at zero."""
    d, layers, heads, kv_heads, dim, f = (CONFIG[k] for k in ("d", "L", "H", "Hk", "hd", "f"))
    keys = iter(jax.random.split(key, 1 + 7 * layers))

    def normal(*shape, std):
        return jax.random.normal(next(keys), shape, jnp.float32) * std

    out = (2 * layers) ** -0.5  # what is added to the residual stream starts small
    params = {"emb": normal(ROWS, d, std=1.0), "head": jnp.zeros((ROWS, d)), "nf": jnp.ones(d)}
    for layer in range(layers):
        params[f"l{layer}"] = {
            "n1": jnp.ones(d),
            "n2": jnp.ones(d),
            "wq": normal(d, heads * dim, std=d ** -0.5),
            "wk": normal(d, kv_heads * dim, std=d ** -0.5),
            "wv": normal(d, kv_heads * dim, std=d ** -0.5),
            "wo": normal(heads * dim, d, std=(heads * dim) ** -0.5 * out),
            "wg": normal(d, f, std=d ** -0.5),
            "wu": normal(d, f, std=d ** -0.5),
            "wd": normal(f, d, std=f ** -0.5 * out),
        }
    return params


def rotations(positions):
    """Cosines and sines [..., head_dim / 2] of positions [...]."""
    inverse = CONFIG["theta"] ** (-np.arange(0, CONFIG["hd"], 2) / CONFIG["hd"])
    angles = positions[..., None] * inverse
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rms_norm(x, gain):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPSILON) * gain


def rotate(x, cosines, sines):
    """x [B, T, heads, head_dim]: channel i turns with i + head_dim / 2."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    c, s = cosines[:, :, None], sines[:, :, None]
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1)


def attend(q, k, v):
    """Causal. q [B, T, heads, head_dim], k and v [B, T, kv_heads, head_dim]; returns [B * T, heads * head_dim]."""
    batch, length, heads, dim = q.shape
    kv_heads = k.shape[2]
    group = heads // kv_heads
    rows = batch * kv_heads
    q = q.reshape(batch, length, kv_heads, group, dim).transpose(0, 2, 3, 1, 4)
    q = barrier(q.reshape(rows, group, length, dim))
    k = barrier(k.transpose(0, 2, 3, 1).reshape(rows, dim, length))
    v = barrier(v.transpose(0, 2, 1, 3).reshape(rows, length, dim))
    hidden = jnp.where(jnp.tril(jnp.ones((length, length), bool)), 0.0, -1e30).astype(jnp.float32)
    block = length if length <= 256 else 128
    outs = []
    for first in range(0, length, block):
        end = first + block
        logits = barrier(jnp.matmul(q[:, :, first:end].reshape(rows, group * block, dim), k[:, :, :end]))
        logits = logits.reshape(rows, group, block, end) + hidden[first:end, :end]
        weights = jax.nn.softmax(logits, -1).reshape(rows, group * block, end)
        outs.append(barrier(jnp.matmul(weights, v[:, :end])).reshape(rows, group, block, dim))
    out = jnp.concatenate(outs, 2).reshape(batch, kv_heads, group, length, dim)
    return out.transpose(0, 3, 1, 2, 4).reshape(batch * length, heads * dim)


def logits(params, tokens, cosines, sines):
    """tokens [B, T], rotations [B, T, head_dim / 2]; returns [B * T, ROWS]."""
    heads, kv_heads, dim = CONFIG["H"], CONFIG["Hk"], CONFIG["hd"]
    batch, length = tokens.shape
    x = jax.nn.one_hot(tokens.reshape(-1), ROWS, dtype=jnp.float32) @ params["emb"]
    for layer in range(CONFIG["L"]):
        w = params[f"l{layer}"]
        y = barrier(rms_norm(x, w["n1"]))
        q = barrier(rotate(barrier(y @ w["wq"]).reshape(batch, length, heads, dim), cosines, sines) * dim ** -0.5)
        k = barrier(rotate(barrier(y @ w["wk"]).reshape(batch, length, kv_heads, dim), cosines, sines))
        v = barrier(y @ w["wv"]).reshape(batch, length, kv_heads, dim)
        x = barrier(x + barrier(attend(q, k, v)) @ w["wo"])
        y = barrier(rms_norm(x, w["n2"]))
        x = barrier(x + barrier(jax.nn.silu(barrier(y @ w["wg"])) * barrier(y @ w["wu"])) @ w["wd"])
    return barrier(rms_norm(x, params["nf"])) @ params["head"].T
