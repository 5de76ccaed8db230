// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file The engine: a model whose K and V live in a `kvcache::KVCache`.
///
///   open(prompt) ──> sequence, the first rows attached        prefix tree
///   step({{sequence, next tokens}, ...}) ──> logits           one forward pass over a batch of chunks
///   fork(sequence) ──> the same rows again                    copy-on-write
///   suspend, resume ──> its pages for others, and back        preemption
///
/// What a step is made of (begin, add, submit, view, kernels, commit) stands in `paged_engine.hpp`. The type
/// of K and V is chosen at run time, so callers see this interface and compile no cache.

#include <kvcache/kvcache.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "args.hpp"
#include "model.hpp"
#include "threads.hpp"

namespace llama {

/// Of which tokens of a work the logits are computed.
enum class Wanted : std::uint8_t { none, last, all };

/// What one sequence computes in a step. Rows that the cache turns out to hold already, because another sequence
/// computed them or does so in this step, are attached instead (`kvcache::StepOptions`): those are first tokens, inside the prompt.
struct Work {
  kvcache::Sequence const* sequence;
  std::span<std::int32_t const> tokens;  // the next ones, at least one
  Wanted wanted = Wanted::last;
  bool draft = false;                         // guesses: a verdict may keep the first of them only
  std::span<kvcache::Index const> parents{};  // makes them a tree of guesses, see `kvcache::Chunk`
};

/// Asked once per draft when the kernels have run: how many of its tokens become real. Of a tree: which of its tokens,
/// counted from 1, ends the path that becomes real; 0: none. `logits` are those that the work wanted.
using Verdict = std::function<std::size_t(Work const& work, std::span<float const> logits)>;

struct EngineOptions {
  KvType kv = KvType::f16;
  int page_tokens = 16;
  std::uint32_t pages = 0;  // of the pool
  std::uint32_t max_sequences = 64;
  int max_step_tokens = 2048;
};

/// See the file comment. All errors are `Error`; after one the cache is as it was before the call.
/// **Threads** one at a time.
class Engine {
 public:
  Engine() = default;
  Engine(Engine const&) = delete;
  Engine& operator=(Engine const&) = delete;
  virtual ~Engine() = default;

  /// Attaches the longest cached prefix; `length()` of the result says how many tokens that are.
  [[nodiscard]] virtual kvcache::Sequence open(kvcache::Prompt const& prompt) = 0;
  [[nodiscard]] virtual kvcache::Sequence fork(kvcache::Sequence const& sequence) = 0;
  virtual void truncate(kvcache::Sequence const& sequence, int length) = 0;
  virtual void forget(kvcache::Domain const& domain) = 0;
  /// Takes the sequence's pages for others; what it published stays cached while there is room.
  virtual void suspend(kvcache::Sequence const& sequence) = 0;
  /// Attaches what is left; `length()` says how many tokens that are, the others are to be computed again.
  virtual void resume(kvcache::Sequence const& sequence) = 0;

  /// One forward pass, or what it lacks. **Shape** the result `(rows, vocab)`: of each work, in order, what it wanted of
  /// the tokens that were computed. Valid until the next step. **Errors** a `Shortage` of pages; `Error` for a token
  /// outside the vocabulary and the like; nothing changed either way.
  [[nodiscard]] virtual kvcache::Result<std::span<float const>, kvcache::Shortage> try_step(
    std::span<Work const> works, Verdict const& verdict = {}) = 0;
  /// The same, for who gave the pool room for everything. **Errors** `Error`, also for a shortage.
  [[nodiscard]] std::span<float const> step(std::span<Work const> works,
                                            Verdict const& verdict = {});

  /// The page copies that the last step asked for: what copy-on-write cost.
  [[nodiscard]] virtual std::span<kvcache::PageCopy const> copies() const = 0;
  [[nodiscard]] virtual std::span<kvcache::PageId const> pages(
    kvcache::Sequence const& sequence) const = 0;
  [[nodiscard]] virtual std::uint32_t holders(kvcache::PageId page) const = 0;
  [[nodiscard]] virtual std::size_t vocab() const = 0;
  [[nodiscard]] virtual kvcache::Geometry const& geometry() const = 0;
  [[nodiscard]] virtual kvcache::Stats stats() const = 0;
  [[nodiscard]] virtual kvcache::Footprint footprint() const = 0;
  [[nodiscard]] virtual kvcache::Report check_invariants() const = 0;
};

/// **Pre** `model` and `threads` outlive the result. **Errors** `Error` naming the option that cannot work.
[[nodiscard]] std::unique_ptr<Engine> make_engine(Model const& model,
                                                  Threads& threads,
                                                  EngineOptions const& options);

/// Pages that hold `tokens` tokens.
[[nodiscard]] constexpr std::uint32_t pages_for(std::size_t tokens, int page_tokens)
{
  auto const per_page = static_cast<std::size_t>(page_tokens);
  return static_cast<std::uint32_t>((tokens + per_page - 1) / per_page);
}

/// Called after each chunk of a prefill: the index of its first token, and the logits (rows, vocab) of it: none, or
/// of all tokens, or the last of the prompt. Returns whether to go on.
using ChunkVisitor = std::function<bool(std::size_t first, std::span<float const> logits)>;

/// Computes what `sequence` lacks of `prompt`, `chunk` tokens a step. Returns the logits of the last token, valid
/// until the next step; empty when `visit` ended it. **Pre** `prompt` starts with the sequence's tokens and goes on.
std::span<float const> prefill(Engine& engine,
                               kvcache::Sequence const& sequence,
                               std::span<std::int32_t const> prompt,
                               std::size_t chunk,
                               bool all_logits = false,
                               ChunkVisitor const& visit = {});

}  // namespace llama
