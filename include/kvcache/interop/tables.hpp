// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Our page table in the forms that other engines' kernels take.
///
///   native   int32 [table rows][row_pages], kept from step to step
///      |
///      +--> page_lists.hpp     indptr, indices, last_page_len     FlashInfer
///      +--> block_table.hpp    rectangle and lengths              vLLM, FlashAttention
///      +--> offset_table.hpp   planes of K and V by number        TensorRT-LLM
///      +--> slot_mapping.hpp   a slot for each token to store     vLLM, FlashInfer's quantising append
///
///   auto const source = kvcache::TableSource::of(step.view());
///   kvcache::fill({.indptr = a, .indices = b, .last_page_len = c}, source);
///
/// Page ids are the same in all of them: id p is index p of a tensor that begins at the pool's first byte, so index 0 is
/// our read-only page of zeros, as vLLM's null block and SGLang's dummy page are. Nothing is stored there (its slots are
/// never named) and whoever reads it reads zeros, so it serves as padding.
///
/// A batch may have more lines, and a step more tokens, than are in use, as in captured graphs: those are empty lines, and
/// slots of -1. The caller gives the memory; each form says how much it needs, and is refused with that figure if it
/// gets less. Whoever keeps addresses takes `lines * most_pages()` once.
///
/// A token tree is a chunk like any other here: its rows lie one after the other, and all of them count. Who sees whom is
/// a mask that the kernel takes apart from tables (`BatchView::token_mask`).
///
/// The pool itself, as a tensor of strides that such a kernel is given beside the table: `layer_tensor.hpp`.
///
/// Cost: what is written. Each form has the body of a kernel beside it, one line or one token of work.

#include <kvcache/interop/block_table.hpp>
#include <kvcache/interop/layer_tensor.hpp>
#include <kvcache/interop/offset_table.hpp>
#include <kvcache/interop/page_lists.hpp>
#include <kvcache/interop/slot_mapping.hpp>
#include <kvcache/interop/table_source.hpp>
