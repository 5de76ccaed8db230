#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes examples/llama/recall.gguf from the trained weights of the recall model (numpy only).

usage: recall_to_gguf.py weights_bf16.npz recall.gguf

The archive holds bf16 bit patterns as uint16 and computes y = x @ w; a GGUF matrix is stored by rows of outputs, so
matrices are transposed and their bits kept. The model rotates halves of a head, channel i with i + head_dim / 2. GGUF
files of architecture `llama` rotate neighbours, 2i with 2i + 1, so the rows of q and k are put in that order, which
changes no dot product of a query and a key. The same input gives the same bytes.
"""
import json
import struct
import sys

import numpy as np

U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5
TYPE_F32, TYPE_BF16 = 0, 30
NORMAL, CONTROL, UNUSED = 1, 3, 5
ALIGNMENT = 32
CONTEXT = 4096
RMS_EPS = 1e-5


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key, kind, payload):
    return text(key) + struct.pack("<I", kind) + payload


def number(key, value):
    return pair(key, U32, struct.pack("<I", value))


def real(key, value):
    return pair(key, F32, struct.pack("<f", value))


def string(key, value):
    return pair(key, STRING, text(value))


def array(key, kind, items):
    body = b"".join(text(i) if kind == STRING else struct.pack("<i", i) for i in items)
    return pair(key, ARRAY, struct.pack("<IQ", kind, len(items)) + body)


def pad(blob):
    return blob + b"\0" * (-len(blob) % ALIGNMENT)


def interleave(rows, heads):
    """Rows [heads * head_dim, in]: within each head, row i to 2i and row i + half to 2i + 1."""
    dim = rows.shape[0] // heads
    split = rows.reshape(heads, 2, dim // 2, rows.shape[1])
    return split.transpose(0, 2, 1, 3).reshape(rows.shape)


def widen(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def tensors_of(z, cfg):
    """Yields (name, array): uint16 is bf16, float32 is float32; shape [out, in] or [n]."""
    yield "token_embd.weight", z["emb"]
    for n in range(cfg["L"]):
        def w(k):
            return z[f"l{n}.{k}"]

        block = f"blk.{n}."
        yield block + "attn_norm.weight", widen(w("n1"))
        yield block + "attn_q.weight", interleave(w("wq").T, cfg["H"])
        yield block + "attn_k.weight", interleave(w("wk").T, cfg["Hk"])
        yield block + "attn_v.weight", w("wv").T
        yield block + "attn_output.weight", w("wo").T
        yield block + "ffn_norm.weight", widen(w("n2"))
        yield block + "ffn_gate.weight", w("wg").T
        yield block + "ffn_up.weight", w("wu").T
        yield block + "ffn_down.weight", w("wd").T
    yield "output_norm.weight", widen(z["nf"])
    yield "output.weight", z["head"]


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: recall_to_gguf.py weights_bf16.npz recall.gguf")
    z = np.load(sys.argv[1])
    cfg = json.loads(str(z["cfg"]))
    words = [str(w) for w in z["vocab"]]
    unused = cfg["V"] - len(words)  # rows that only round the matrix up
    kinds = [CONTROL] + [NORMAL] * (len(words) - 1) + [UNUSED] * unused
    words += [f"<unused{i}>" for i in range(unused)]

    metadata = [
        string("general.architecture", "llama"),
        string("general.name", "kvcache recall model"),
        string("general.license", "apache-2.0"),
        number("general.alignment", ALIGNMENT),
        number("llama.block_count", cfg["L"]),
        number("llama.context_length", CONTEXT),
        number("llama.embedding_length", cfg["d"]),
        number("llama.feed_forward_length", cfg["f"]),
        number("llama.attention.head_count", cfg["H"]),
        number("llama.attention.head_count_kv", cfg["Hk"]),
        number("llama.attention.key_length", cfg["hd"]),
        number("llama.attention.value_length", cfg["hd"]),
        number("llama.rope.dimension_count", cfg["hd"]),
        real("llama.rope.freq_base", cfg["theta"]),
        real("llama.attention.layer_norm_rms_epsilon", RMS_EPS),
        number("llama.vocab_size", cfg["V"]),
        string("tokenizer.ggml.model", "words"),
        array("tokenizer.ggml.tokens", STRING, words),
        array("tokenizer.ggml.token_type", I32, kinds),
        number("tokenizer.ggml.bos_token_id", 0),
    ]
    infos, data, count = b"", b"", 0
    for name, values in tensors_of(z, cfg):
        kind = TYPE_F32 if values.dtype == np.float32 else TYPE_BF16
        dims = values.shape[::-1]
        infos += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        infos += struct.pack("<IQ", kind, len(data))
        data += pad(np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes())
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(metadata)) + b"".join(metadata) + infos
    blob = pad(head) + data
    with open(sys.argv[2], "wb") as out:
        out.write(blob)
    print(f"{sys.argv[2]}: {count} tensors, {len(blob)} bytes")


if __name__ == "__main__":
    main()
