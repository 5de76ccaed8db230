// SPDX-License-Identifier: Apache-2.0
#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/prefix/radix_tree.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "prefix/naive_tree.hpp"
#include "support/catch.hpp"
#include "support/random.hpp"

using namespace kvcache;
using kvcache_test::NaiveTree;
using Text = NaiveTree::Text;

namespace {

/// Drives two trees (of different hash seeds) and a naive model with the same random calls.
class Model {
 public:
  Model(std::int32_t page_tokens, PageCount pages, std::uint64_t seed)
      : page_tokens_(static_cast<std::size_t>(page_tokens)),
        capacity_(pages),
        random_(seed),
        tree_(page_tokens, pages),
        twin_(page_tokens, pages, {.seed = seed * 77}),
        naive_(page_tokens_),
        ids_(pages)
  {
    for (std::string const salt : {"", "a", "b"}) {
      Domain const domain({.model = {}, .weights = {}, .salt = salt, .adapters = {}});
      tree_.intern(domain);
      twin_.intern(domain);
    }
  }

  /// One random call, compared and recounted. False: they differ.
  bool step()
  {
    switch (random_.below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return add() && whole();
      case 4:
      case 5:
        return pop() && whole();
      case 6:
        return split() && whole();
      case 7:
        return random_.below(200) != 0 || (forget() && whole());
      case 8:
        return look_at_page();
      default:
        return look_at_prompt();
    }
  }

  /// The same content, brought into a fresh tree in another order and in other spans.
  bool rebuilt_digest_is_equal()
  {
    RadixTree fresh(static_cast<std::int32_t>(page_tokens_), capacity_, {.seed = 5});
    for (std::string const salt : {"", "a", "b"}) {
      fresh.intern(Domain({.model = {}, .weights = {}, .salt = salt, .adapters = {}}));
    }
    for (std::uint32_t d = 0; d < 3; ++d) {
      for (std::uint32_t i = 0; i < tree_.generation(DomainId{d}); ++i) {
        fresh.forget(DomainId{d}, [](SpanId) {}, [](PageId) {});
      }
    }
    // Parents come before children in the order of the map: a prefix sorts before what it starts.
    for (auto const& [key, page] : naive_.pages()) {
      Text const before(key.second.begin(),
                        key.second.end() - static_cast<std::ptrdiff_t>(page_tokens_));
      PageId const parent =
        before.empty() ? zero_page : naive_.page(key.first, before, before.size());
      if (parent != zero_page && fresh.last_page(fresh.span_of(parent)) != parent) {
        SpanId const span = fresh.span_of(parent);
        std::size_t const rows = before.size() - static_cast<std::size_t>(fresh.first_token(span));
        fresh.split(span, static_cast<PageCount>(rows / page_tokens_));
      }
      std::span<Token const> const tokens(key.second);
      fresh.insert(
        DomainId{key.first}, parent, tokens.last(page_tokens_), {&page, 1}, random_.below(2) == 0);
    }
    return fresh.digest() == tree_.digest() && fresh.check_invariants();
  }

  std::uint32_t spans() const { return tree_.num_spans(); }

 private:
  Text prompt()
  {
    // Few tokens, so that prompts meet, part and meet again; often the text of a cached page goes on.
    Text text;
    if (naive_.size() != 0 && random_.below(2) == 0) {
      text = any_page_key().second;
      text.resize(text.size() - random_.below(static_cast<std::uint32_t>(text.size())));
    }
    std::size_t const more = random_.below(static_cast<std::uint32_t>(3 * page_tokens_ + 2));
    for (std::size_t i = 0; i < more; ++i) {
      bool const rare = page_tokens_ > 1 && random_.below(8) != 0;
      text.push_back(rare ? 1 : static_cast<Token>(random_.below(3)));
    }
    return text;
  }

  NaiveTree::Key const& any_page_key()
  {
    auto at = naive_.pages().begin();
    std::advance(at, random_.below(static_cast<std::uint32_t>(naive_.size())));
    return at->first;
  }

  bool whole() const
  {
    return tree_.check_invariants() && twin_.check_invariants() &&
           tree_.num_pages() == naive_.size() && tree_.digest() == twin_.digest() &&
           tree_.num_spans() == twin_.num_spans() &&
           ids_.num_free() + tree_.num_pages() == ids_.capacity();
  }

  bool add()
  {
    DomainId const domain{random_.below(3)};
    Text const text = prompt();
    std::size_t const have = naive_.match(domain.slot, text, text.size()).size();
    std::size_t const want = text.size() / page_tokens_;
    std::vector<PageId> pages(want - have);
    if (pages.empty() || !ids_.take(pages)) {
      return true;
    }
    Match const match = tree_.match(domain, text, static_cast<Index>(text.size()));
    if (static_cast<std::size_t>(match.full_pages) != have) {
      return false;
    }
    PageId parent = zero_page;
    if (have != 0) {
      if (match.span_pages < tree_.size(match.span)) {
        if (tree_.split(match.span, match.span_pages) !=
            twin_.split(match.span, match.span_pages)) {
          return false;
        }
      }
      parent = naive_.page(domain.slot, text, have * page_tokens_);
    }
    std::span<Token const> const tokens =
      std::span<Token const>(text).subspan(have * page_tokens_, pages.size() * page_tokens_);
    bool const extend = random_.below(2) == 0;
    SpanId const span = tree_.insert(domain, parent, tokens, pages, extend);
    bool const same = twin_.insert(domain, parent, tokens, pages, extend) == span;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      naive_.put(domain.slot, NaiveTree::first(text, (have + i + 1) * page_tokens_), pages[i]);
    }
    return same && tree_.last_page(span) == pages.back() && tree_.span_of(pages[0]) == span;
  }

  std::optional<SpanId> any_span()
  {
    if (tree_.num_spans() == 0) {
      return std::nullopt;
    }
    PageId const page = naive_.pages().at(any_page_key());
    return tree_.span_of(page);
  }

  bool pop()
  {
    auto const span = any_span();
    if (!span || tree_.children(*span) != 0) {
      return true;
    }
    PageCount const size = tree_.size(*span);
    PageCount const count = random_.between(1, size);
    std::vector<PageId> const pages(tree_.pages(*span).begin(), tree_.pages(*span).end());
    std::vector<PageId> out(count);
    Text tokens(count * page_tokens_);
    PageId const before = tree_.previous_page(pages[size - count]);
    Text const text = naive_.key(pages.back()).second;
    std::uint32_t const domain = naive_.key(pages.back()).first;

    Popped const popped = tree_.pop_tail(*span, count, out.data(), tokens.data());
    std::vector<PageId> twin_out(count);
    twin_.pop_tail(*span, count, twin_out.data(), nullptr);
    bool right = popped.domain == DomainId{domain} && popped.pages == count &&
                 popped.parent == before && popped.removed_span == (count == size) &&
                 out == twin_out && std::equal(out.begin(), out.end(), pages.rbegin()) &&
                 std::equal(tokens.rbegin(), tokens.rend(), text.rbegin());
    for (PageId const page : out) {
      right = right && !tree_.contains(page);
      naive_.erase(page);
      ids_.release(page);
    }
    // Whoever asks again is told that it was here.
    Match const match = tree_.match(DomainId{domain}, text, static_cast<Index>(text.size()));
    return right && (match.miss == Miss::evicted || match.miss == Miss::partial);
  }

  bool split()
  {
    auto const span = any_span();
    if (!span || tree_.size(*span) == 1) {
      return true;
    }
    PageCount const size = tree_.size(*span);
    PageCount const at = random_.between(1, size - 1);
    std::uint32_t const children = tree_.children(*span);
    SpanId const parent = tree_.parent(*span);
    Index const start = tree_.first_token(*span);
    SpanId const head = tree_.split(*span, at);
    return twin_.split(*span, at) == head && tree_.size(head) == at &&
           tree_.size(*span) == size - at && tree_.parent(*span) == head &&
           tree_.parent(head) == parent && tree_.children(*span) == children &&
           tree_.children(head) == 1 && tree_.first_token(head) == start &&
           tree_.first_token(*span) == start + static_cast<Index>(at * page_tokens_);
  }

  bool forget()
  {
    DomainId const domain{random_.below(3)};
    std::uint32_t const generation = tree_.generation(domain);
    std::set<std::uint32_t> spans;
    std::vector<PageId> pages;
    bool right = true;
    tree_.forget(
      domain,
      [&](SpanId span) {
        right = right && tree_.size(span) != 0 && tree_.domain(span) == domain;
        spans.insert(span.value);
      },
      [&](PageId page) { pages.push_back(page); });
    std::size_t twins = 0;
    twin_.forget(domain, [](SpanId) {}, [&](PageId) { ++twins; });
    for (PageId const page : pages) {
      right = right && naive_.key(page).first == domain.slot;
      naive_.erase(page);
      ids_.release(page);
    }
    for (auto const& [key, page] : naive_.pages()) {
      right = right && key.first != domain.slot;
    }
    return right && twins == pages.size() && (spans.empty() == pages.empty()) &&
           tree_.generation(domain) == generation + 1;
  }

  bool look_at_page()
  {
    if (naive_.size() == 0) {
      return true;
    }
    NaiveTree::Key const key = any_page_key();
    PageId const page = naive_.pages().at(key);
    std::size_t const before = key.second.size() - page_tokens_;
    PageId const parent = before == 0 ? zero_page : naive_.page(key.first, key.second, before);
    std::span<Token const> const own = std::span<Token const>(key.second).last(page_tokens_);
    Text next = key.second;
    for (std::size_t i = 0; i < page_tokens_; ++i) {
      next.push_back(random_.below(8) != 0 ? 1 : static_cast<Token>(random_.below(3)));
    }
    DomainId const domain{key.first};
    return tree_.contains(page) && tree_.previous_page(page) == parent &&
           tree_.find_child(domain, parent, own) == page &&
           tree_.find_child(domain, page, std::span<Token const>(next).last(page_tokens_)) ==
             naive_.page(key.first, next, next.size());
  }

  bool look_at_prompt()
  {
    std::uint32_t const domain = random_.below(3);
    Text const text = prompt();
    std::size_t const rows = random_.below(static_cast<std::uint32_t>(text.size() + 2));
    std::uint64_t const before = tree_.digest();
    Match const match = tree_.match(DomainId{domain}, text, static_cast<Index>(rows));
    std::vector<PageId> const expected = naive_.match(domain, text, rows);
    std::vector<PageId> pages(expected.size());
    if (static_cast<std::size_t>(match.full_pages) != expected.size()) {
      return false;
    }
    tree_.copy_pages(match, pages.data());
    std::size_t const full = pages.size() * page_tokens_;
    std::size_t const wanted = std::min(rows, text.size());
    auto const partial_rows = static_cast<std::size_t>(match.partial_rows);
    auto const [best, siblings] =
      naive_.partial(domain,
                     NaiveTree::first(text, full),
                     std::span<Token const>(text).subspan(full, wanted - full));
    bool right = pages == expected && tree_.digest() == before &&
                 (siblings > 16 ? partial_rows <= best && partial_rows > 0 : partial_rows == best);
    if (partial_rows != 0) {
      right = right && partial_rows < page_tokens_ &&
              naive_.key(match.partial_page).first == domain &&
              naive_.key(match.partial_page).second.size() == full + page_tokens_ &&
              std::equal(text.begin(),
                         text.begin() + static_cast<std::ptrdiff_t>(full + partial_rows),
                         naive_.key(match.partial_page).second.begin());
    } else {
      right = right && match.partial_page == zero_page;
    }
    std::size_t const reached = full + partial_rows;
    switch (match.miss) {
      case Miss::none:
        return right && reached == text.size();
      case Miss::last_token:
        return right && reached == wanted && reached < text.size();
      case Miss::partial:
        return right && reached < wanted && partial_rows != 0;
      case Miss::other_domain:
        return right && reached == 0 && reached < wanted;
      case Miss::evicted:
      case Miss::never_seen:
        return right && reached < wanted && partial_rows == 0;
    }
    return false;
  }

  std::size_t page_tokens_;
  PageCount capacity_;
  kvcache_test::Random random_;
  RadixTree tree_;
  RadixTree twin_;
  NaiveTree naive_;
  PageAllocator ids_;
};

}  // namespace

TEST_CASE("RadixTree: equals a naive map over random calls", "[prefix][radix_tree]")
{
  for (std::int32_t const page_tokens : {1, 4, 16}) {
    for (PageCount const pages : {2U, 3U, 8U, 16U, 60U}) {
      std::uint64_t const seed = static_cast<std::uint64_t>(page_tokens) * 1000 + pages;
      CAPTURE(page_tokens, pages, seed);
      Model model(page_tokens, pages, seed);
      int first_wrong = -1;
      std::uint32_t most_spans = 0;
      for (int i = 0; i < 16'000 && first_wrong < 0; ++i) {
        if (!model.step() || (i % 500 == 0 && !model.rebuilt_digest_is_equal())) {
          first_wrong = i;
        }
        most_spans = std::max(most_spans, model.spans());
      }
      CHECK(first_wrong == -1);
      CHECK(most_spans >= pages / 2);  // the streams do reach trees that branch
    }
  }
}
