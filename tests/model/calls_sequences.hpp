// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Calls on sequences, each on both instances and on the model. A call returns whether it did something.

#include <kvcache/kvcache.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/world.hpp"

namespace kvcache_test {

[[nodiscard]] inline std::string listed(std::span<kvcache::Token const> tokens)
{
  std::string out = "[";
  for (kvcache::Token const token : tokens) {
    out += (out.size() == 1 ? "" : " ") + std::to_string(token);
  }
  return out + "]";
}

/// Mostly zeros, so that texts share prefixes of every length.
inline void write_text(std::vector<kvcache::Token>& out,
                       std::size_t count,
                       std::uint32_t seed,
                       std::uint32_t alphabet)
{
  Random random(seed % 64);
  for (std::size_t i = 0; i < count; ++i) {
    bool const other = random.below(8) == 0 && alphabet > 1;
    out.push_back(other ? static_cast<kvcache::Token>(1 + random.below(alphabet - 1)) : 0);
  }
}

struct Request {
  std::uint32_t domain = 0;
  kvcache::Index fresh_tail = 1;
  std::vector<kvcache::Token> tokens;
};

/// A prompt: new text, or the text of an open sequence, cut or continued.
template <class T>
[[nodiscard]] Request request_of(World<T> const& w, Operation const& o)
{
  Request r;
  r.domain = o.a % w.setting.domains;
  r.fresh_tail = o.a < 56 ? 1 : static_cast<kvcache::Index>(1 + o.a % 7);
  std::size_t const most = static_cast<std::size_t>(w.setting.longest()) + (o.d % 32 == 0 ? 3 : 0);
  std::size_t const count = o.c % (most + 1);
  if (o.d % 4 == 0 && !w.books.live.empty()) {
    NaiveSequence const& from = w.books.live[o.b % w.books.live.size()];
    r.tokens = from.tokens;
    r.tokens.insert(r.tokens.end(), from.rest.begin(), from.rest.end());
    r.tokens.resize(std::min(r.tokens.size(), count));
  }
  write_text(r.tokens, count - r.tokens.size(), o.d / 4, w.setting.alphabet);
  return r;
}

template <class T>
[[nodiscard]] kvcache::Prompt prompt_of(World<T> const& w, Request const& r)
{
  bool const unnamed = r.domain == 0 && r.tokens.size() % 2 == 0;  // null means the empty domain
  return {.tokens = r.tokens,
          .domain = unnamed ? nullptr : &w.domains[r.domain],
          .fresh_tail = r.fresh_tail};
}

/// `probe` gives exactly what the naive tree holds, and why not more.
template <class T>
kvcache::Hit check_probe(World<T>& w, Request const& r)
{
  kvcache::Hit const hit = w.cache.probe(prompt_of(w, r));
  kvcache::Hit const twin = w.books.twin.probe(prompt_of(w, r));
  auto const size = static_cast<kvcache::Index>(r.tokens.size());
  if (size > w.setting.longest()) {
    require_equal(hit.rows, 0, "a prompt that open refuses hits nothing");
    return hit;
  }
  kvcache::Index const limit = std::max(size - r.fresh_tail, 0);
  kvcache::Index const want =
    w.books.tree.longest(r.domain, std::span(r.tokens).first(static_cast<std::size_t>(limit)));
  kvcache::Index const p = w.setting.page_tokens;
  require_equal(hit.rows, want, "rows of a hit");
  require_equal(hit.shared_rows, want / p * p, "shared rows of a hit");
  require_equal(hit.new_pages,
                w.books.pages_of(r.tokens.size()) - static_cast<kvcache::PageCount>(want / p),
                "new pages of a hit");
  require((hit.miss == kvcache::Miss::none) == (want == size), "miss: none");
  require((hit.miss == kvcache::Miss::last_token) == (want == limit && want != size),
          "miss: last_token");
  require((hit.miss == kvcache::Miss::partial) == (want < limit && want % p != 0), "miss: partial");
  require(hit.rows == twin.rows && hit.miss == twin.miss, "two instances probe differently");
  w.say("domain " + std::to_string(r.domain) + " " + listed(r.tokens) + " fresh " +
        std::to_string(r.fresh_tail) + ": hit " + std::to_string(hit.rows) + ", " + name(hit.miss));
  return hit;
}

/// Enters a sequence that both instances made.
template <class T>
void enter(World<T>& w, kvcache::Sequence handle, NaiveSequence s)
{
  require(handle.id() == s.id, "two instances gave different ids");
  require_equal(handle.cached(), s.cached, "rows that a sequence starts with");
  s.stamps = stamps_of(s.domain, s.epoch, s.tokens);
  w.books.live.push_back(std::move(s));
  w.handles.push_back(std::move(handle));
  w.say(" -> sequence " + std::to_string(w.books.live.back().id.slot));
}

template <class T>
bool open(World<T>& w, Operation const& o)
{
  Request const r = request_of(w, o);
  kvcache::Hit const hit = check_probe(w, r);
  kvcache::Stats const before = w.cache.stats();
  auto opened = w.cache.open(prompt_of(w, r));
  auto const twin = w.books.twin.open(prompt_of(w, r));
  require(opened.has_value() == twin.has_value(), "two instances: open");
  kvcache::Why const want =
    static_cast<kvcache::Index>(r.tokens.size()) > w.setting.longest()   ? kvcache::Why::too_large
    : w.books.live.size() + w.books.rows_kept == w.setting.max_sequences ? kvcache::Why::no_rows
                                                                         : kvcache::Why::ok;
  require_equal(opened ? kvcache::Why::ok : opened.error().why, want, "open");
  if (!opened) {
    return false;
  }
  NaiveSequence s;
  s.id = *twin;
  s.domain = r.domain;
  s.epoch = w.books.epochs[r.domain];
  auto const cut = r.tokens.begin() + hit.rows;
  s.tokens.assign(r.tokens.begin(), cut);
  s.rest.assign(cut, r.tokens.end());
  s.cached = hit.rows;
  require(opened->miss() == hit.miss, "open gives another reason than probe");
  enter(w, std::move(*opened), std::move(s));
  kvcache::Stats const after = w.cache.stats();
  require_equal(after.prompt_tokens - before.prompt_tokens, r.tokens.size(), "stats.prompt_tokens");
  require_equal(after.hit_tokens - before.hit_tokens, hit.rows, "stats.hit_tokens");
  w.books.recount({});
  w.tally.opens += 1;
  w.tally.hit_rows += static_cast<std::uint64_t>(hit.rows);
  w.tally.part_hits += hit.rows != hit.shared_rows ? 1U : 0U;
  return true;
}

template <class T>
bool fork(World<T>& w, Operation const& o)
{
  if (w.books.live.empty()) {
    return false;
  }
  std::size_t const i = o.a % w.books.live.size();
  if (w.books.live[i].in_step) {
    return false;
  }
  auto forked = w.cache.fork(w.handles[i]);
  auto const twin = w.books.twin.fork(w.books.live[i].id);
  require(forked.has_value() == twin.has_value(), "two instances: fork");
  kvcache::Why const want = w.books.live.size() + w.books.rows_kept == w.setting.max_sequences
                              ? kvcache::Why::no_rows
                              : kvcache::Why::ok;
  require_equal(forked ? kvcache::Why::ok : forked.error().why, want, "fork");
  w.say("sequence " + std::to_string(w.books.live[i].id.slot) + ": " + kvcache::name(want));
  if (!forked) {
    return false;
  }
  NaiveSequence s = w.books.live[i];
  s.id = *twin;
  s.cached = static_cast<kvcache::Index>(s.tokens.size());
  enter(w, std::move(*forked), std::move(s));
  w.books.recount({});
  return true;
}

template <class T>
bool truncate(World<T>& w, Operation const& o)
{
  if (w.books.live.empty()) {
    return false;
  }
  std::size_t const i = o.a % w.books.live.size();
  NaiveSequence& s = w.books.live[i];
  if (s.in_step) {
    return false;
  }
  auto const size = static_cast<kvcache::Index>(s.tokens.size());
  auto const length = static_cast<kvcache::Index>(o.b) % (size + 2);
  auto const kept = w.cache.truncate(w.handles[i], length);
  auto const twin = w.books.twin.truncate(s.id, length);
  require(kept.has_value() == twin.has_value(), "two instances: truncate");
  require_equal(kept ? kvcache::Why::ok : kept.error().why, kvcache::Why::ok, "truncate");
  w.say("sequence " + std::to_string(s.id.slot) + " of " + std::to_string(size) + " to " +
        std::to_string(length));
  if (!kept) {
    return false;
  }
  require_equal(*kept, std::min(length, size), "truncate: length kept");
  if (length >= size) {
    return false;
  }
  s.tokens.resize(static_cast<std::size_t>(length));
  s.stamps.resize(static_cast<std::size_t>(length));
  s.rest.clear();
  w.books.recount({});
  return true;
}

template <class T>
bool close(World<T>& w, Operation const& o)
{
  if (w.books.live.empty()) {
    return false;
  }
  std::size_t const i = o.a % w.books.live.size();
  kvcache::SequenceId const id = w.books.live[i].id;
  for (NaiveChunk& chunk : w.books.step.chunks) {
    if (chunk.sequence == id && !chunk.orphan) {
      chunk.orphan = true;
      w.tally.orphans += 1;
    }
  }
  if (w.books.live[i].in_step) {
    w.books.leave(w.books.twin.table(id));
  }
  w.say("sequence " + std::to_string(id.slot));
  if (o.b % 2 == 0) {
    w.handles[i].close();
  }
  w.handles.erase(w.handles.begin() + static_cast<std::ptrdiff_t>(i));  // its end closes it too
  require(w.books.twin.close(id).has_value(), "close");
  w.books.live.erase(w.books.live.begin() + static_cast<std::ptrdiff_t>(i));
  w.stale.push_back(id);
  if (w.stale.size() > 16) {
    w.stale.erase(w.stale.begin());
  }
  w.books.recount({});
  return true;
}

/// A forgotten domain hits nothing; its open sequences keep their rows.
template <class T>
bool forget(World<T>& w, Operation const& o)
{
  std::uint32_t const domain = o.a % w.setting.domains;
  w.cache.forget(w.domains[domain]);
  w.books.twin.forget(w.domains[domain]);
  w.books.epochs[domain] += 1;
  w.books.forget_waiting(domain);
  w.say("domain " + std::to_string(domain));
  w.books.recount({.leave = true});
  for (std::uint32_t page = 1; page <= w.setting.pages; ++page) {
    require(!w.books.tree.at(page) || w.books.tree.at(page)->domain != domain,
            "a page of a forgotten domain is still in the tree");
  }
  std::erase_if(w.books.lost, [&](auto const& lost) { return lost.entry.domain == domain; });
  return true;
}

}  // namespace kvcache_test
