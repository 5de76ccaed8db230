// SPDX-License-Identifier: Apache-2.0
// Each call of a random script is first run with no memory at its first allocation, then at its second, and so on
// until it goes through. A call that says `no_memory` changed nothing (I9, B-043), and nothing that cannot fail allocates.

#include <kvcache/alloc/page_allocator.hpp>
#include <kvcache/control/control.hpp>
#include <kvcache/prefix/radix_tree.hpp>
#include <kvcache/replace/lru.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/starving.hpp"
#include "support/catch.hpp"
#include "support/hungry_tree.hpp"
#include "support/random.hpp"

// The replacements hold for all tests of this program; see `starving.hpp`.
// Inlined, g++ would see `free` beside a `new` that it takes for its own.
[[gnu::noinline]] void* operator new(std::size_t bytes)
{
  void* const memory = kvcache_test::allocate(bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
[[gnu::noinline]] void* operator new[](std::size_t bytes)
{
  return operator new(bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept
{
  return kvcache_test::allocate(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, std::nothrow_t const&) noexcept
{
  return kvcache_test::allocate(bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes,
                                     std::align_val_t alignment,
                                     std::nothrow_t const&) noexcept
{
  return kvcache_test::allocate(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment)
{
  void* const memory = kvcache_test::allocate(bytes, static_cast<std::size_t>(alignment));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept
{
  kvcache_test::blocks_in_use -= memory != nullptr ? 1 : 0;
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept
{
  operator delete(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept
{
  operator delete(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept
{
  operator delete(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::nothrow_t const&) noexcept
{
  operator delete(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::nothrow_t const&) noexcept
{
  operator delete(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept
{
  operator delete(memory);
}

extern "C" {
void* __real_calloc(std::size_t count, std::size_t bytes);  // NOLINT: the linker's names
void* __wrap_calloc(std::size_t count, std::size_t bytes)   // NOLINT
{
  return kvcache_test::may_allocate() ? __real_calloc(count, bytes) : nullptr;
}
}

namespace {

using kvcache_test::allocations_left;
using kvcache_test::ran_out;
using kvcache_test::Random;
using Plane = kvcache::Control<kvcache::PageAllocator, kvcache_test::HungryTree, kvcache::Lru>;

struct Counts {
  std::uint64_t refused = 0;
  std::uint64_t calls = 0;
  std::uint64_t lean = 0;
};

Plane plane_of(std::uint64_t seed)
{
  Random random(seed);
  constexpr kvcache::PageCount pools[] = {2, 3, 8, 16};
  auto made = Plane::create({.pages = pools[seed % 4],
                             .page_tokens = static_cast<std::int32_t>(random.between(1, 5)),
                             .max_sequences = 5});
  return std::move(*made);
}

kvcache::Why why_of(kvcache::Error const& error)
{
  return error.why;
}
kvcache::Why why_of(kvcache::Shortage const& shortage)
{
  return shortage.why;
}

/// Runs `call` until memory suffices. What it then answers is the caller's to look at.
template <class Call>
auto through(Plane& plane, Counts& counts, Call const& call)
{
  for (std::int64_t allowed = 0;; ++allowed) {
    std::uint64_t const digest = plane.digest();
    allocations_left = allowed;
    ran_out = false;
    auto result = call();
    allocations_left = -1;
    ++counts.calls;
    if (result.has_value() || why_of(result.error()) != kvcache::Why::no_memory) {
      return result;
    }
    ++counts.refused;
    REQUIRE(plane.digest() == digest);
    kvcache::Report const report = plane.check_invariants();
    INFO((report ? "" : report.broken));
    REQUIRE(static_cast<bool>(report));
    REQUIRE(allowed < 100);
  }
}

/// A random script on two planes, one of which keeps running out of memory. Commits publish less where memory is
/// short, and drops put less back, so these get all they need.
void starve(std::uint64_t seed, Counts& counts)
{
  Random random(seed + 1000);
  Plane plane = plane_of(seed);
  Plane twin = plane_of(seed);
  std::vector<kvcache::SequenceId> open;
  std::vector<kvcache::PinId> pins;
  std::vector<kvcache::Domain> domains;
  for (char const* salt : {"a", "b", "c", "d"}) {
    domains.push_back(kvcache::Domain({.model = {}, .weights = {}, .salt = salt, .adapters = {}}));
  }
  for (int call = 0; call < 60; ++call) {
    std::vector<kvcache::Token> text;
    for (std::uint32_t i = random.between(1, 12); i > 0; --i) {
      text.push_back(static_cast<kvcache::Token>(random.below(8) == 0));
    }
    kvcache::SequenceId const some =
      open.empty() ? kvcache::SequenceId{}
                   : open[random.below(static_cast<std::uint32_t>(open.size()))];
    kvcache::Prompt const prompt{.tokens = text, .domain = &domains[random.below(4)]};
    switch (random.below(7)) {
      case 0:
      case 1: {
        auto const id = through(plane, counts, [&] { return plane.open(prompt); });
        auto const same = twin.open(prompt);
        REQUIRE(id.has_value() == same.has_value());
        if (id) {
          open.push_back(*id);
        }
        break;
      }
      case 2: {
        auto const id = through(plane, counts, [&] { return plane.fork(some); });
        auto const same = twin.fork(some);
        REQUIRE(id.has_value() == same.has_value());
        if (id) {
          open.push_back(*id);
        }
        break;
      }
      case 3: {
        auto const length = static_cast<kvcache::Index>(random.below(20));
        auto const kept = through(plane, counts, [&] { return plane.truncate(some, length); });
        REQUIRE(kept.has_value() == twin.truncate(some, length).has_value());
        break;
      }
      case 4:
        if (!open.empty() && random.below(2) == 0) {
          REQUIRE(through(plane, counts, [&] { return plane.close(some); }).has_value());
          REQUIRE(twin.close(some).has_value());
          std::erase(open, some);
        } else if (random.below(4) == 0) {
          allocations_left = 0;  // cannot fail, so it must not allocate
          plane.forget(*prompt.domain);
          allocations_left = -1;
          twin.forget(*prompt.domain);
        }
        break;
      case 5:
        if (pins.empty() || random.below(2) == 0) {
          auto const pin = through(plane, counts, [&] { return plane.pin(prompt); });
          auto const same = twin.pin(prompt);
          REQUIRE(pin.has_value() == same.has_value());
          if (pin) {
            REQUIRE(*pin == *same);
            pins.push_back(*pin);
          }
        } else {
          allocations_left = 0;  // cannot fail, so it must not allocate
          auto const gone = plane.unpin(pins.back());
          allocations_left = -1;
          REQUIRE(gone.has_value());
          REQUIRE(twin.unpin(pins.back()).has_value());
          pins.pop_back();
        }
        break;
      default: {
        std::vector<kvcache::SequenceId> chosen;
        for (kvcache::SequenceId const id : open) {
          if (random.below(2) == 0) {
            chosen.push_back(id);
          }
        }
        auto const starved = through(plane, counts, [&] { return plane.begin(); });
        REQUIRE(starved.has_value());
        REQUIRE(twin.begin().has_value());
        std::optional<kvcache::StepId> step = *starved;
        bool lean = false;
        for (std::size_t i = 0; i < chosen.size() && !lean; ++i) {
          auto const added =
            through(plane, counts, [&] { return plane.add(*step, chosen[i], {text}); });
          lean = ran_out;
          auto const same = twin.add(*step, chosen[i], {text});
          REQUIRE(added.has_value() == same.has_value());
          REQUIRE((!added.has_value() || *added == *same));
        }
        if (lean) {  // an add makes fewer pages pending where memory is short: again, with plenty
          ++counts.lean;
          REQUIRE(plane.drop(*step).has_value());
          REQUIRE(twin.drop(*step).has_value());
          REQUIRE(plane.digest() == twin.digest());
          step = *plane.begin();
          REQUIRE(*twin.begin() == *step);
          for (kvcache::SequenceId const id : chosen) {
            auto const added = plane.add(*step, id, {text});
            REQUIRE(added.has_value() == twin.add(*step, id, {text}).has_value());
          }
        }
        std::uint32_t const end = random.below(6);
        if (end == 0) {
          REQUIRE(plane.drop(*step).has_value());
          REQUIRE(twin.drop(*step).has_value());
          break;
        }
        REQUIRE(through(plane, counts, [&] { return plane.submit(*step); }).has_value());
        REQUIRE(twin.submit(*step).has_value());
        REQUIRE(plane.plan(*step) == twin.plan(*step));
        if (end == 1) {
          REQUIRE(through(plane, counts, [&] { return plane.fail(*step); }).has_value());
          REQUIRE(twin.fail(*step).has_value());
        } else {
          REQUIRE(plane.commit(*step).has_value());
          REQUIRE(twin.commit(*step).has_value());
        }
        break;
      }
    }
    REQUIRE(plane.digest() == twin.digest());
  }
  // Publishing, and putting back what a dropped step evicted, need memory that is not there: the step ends all the
  // same, with fewer pages cached, and every count is right.
  for (bool const drops : {true, false}) {
    std::vector<kvcache::Token> const text(8, 3);
    auto const step = plane.begin();
    for (kvcache::SequenceId const id : open) {
      (void)plane.add(*step, id, {text});
    }
    if (!drops) {
      REQUIRE(plane.submit(*step).has_value());
    }
    allocations_left = static_cast<std::int64_t>(random.below(drops ? 1 : 4));
    auto const done = drops ? plane.drop(*step) : plane.commit(*step);
    allocations_left = -1;
    REQUIRE(done.has_value());
    kvcache::Report const report = plane.check_invariants();
    INFO((report ? "" : report.broken));
    REQUIRE(static_cast<bool>(report));
  }
}

}  // namespace

TEST_CASE("Control: a call that runs out of memory changes nothing", "[memory][control]")
{
  Counts counts;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    INFO("seed " << seed);
    starve(seed, counts);
  }
  std::printf("memory: %llu calls, %llu of them without memory\n",
              static_cast<unsigned long long>(counts.calls),
              static_cast<unsigned long long>(counts.refused));
  CHECK(counts.refused > 1000);
  CHECK(counts.lean > 100);
}
