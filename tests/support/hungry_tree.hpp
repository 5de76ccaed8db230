// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file A prefix tree that asks the heap before each change, as a tree does that is larger than ever before. Small trees ask
/// once: here each change of the index can be made to fail.

#include <kvcache/core/ids.hpp>
#include <kvcache/prefix/radix_tree.hpp>

#include <new>
#include <span>

namespace kvcache_test {

/// See the file comment.
class HungryTree : public kvcache::RadixTree {
 public:
  using kvcache::RadixTree::RadixTree;

  kvcache::SpanId split(kvcache::SpanId id, kvcache::PageCount count)
  {
    ask();
    return kvcache::RadixTree::split(id, count);
  }
  kvcache::SpanId insert(kvcache::DomainId domain,
                         kvcache::PageId parent,
                         std::span<kvcache::Token const> tokens,
                         std::span<kvcache::PageId const> pages,
                         bool extend)
  {
    ask();
    return kvcache::RadixTree::insert(domain, parent, tokens, pages, extend);
  }

 private:
  static void ask()
  {
    void* const volatile memory =
      ::operator new(1);  // volatile: or the compiler leaves the pair out
    ::operator delete(memory);
  }
};

}  // namespace kvcache_test
