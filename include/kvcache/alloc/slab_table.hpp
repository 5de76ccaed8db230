// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/check.hpp>
#include <kvcache/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// \file Which class of pages has which slab, and which slabs may change hands.
///
///   slab     0     1       2      3
///   class    open  sealed  open   -
///   used     12    3       0      0       2 and 3 are anybody's; 2 is zeroed first where a float class takes it from another
///
/// The byte side is `layout/slab_map.hpp`. A function of the calls alone, so every rank moves the same slabs.
/// Cost: `take` looks at every slab, and is called once for a slab's worth of pages; the rest is O(1).

namespace kvcache::inline v0_1 {

/// A slab that a class got.
struct TakenSlab {
  std::uint32_t slab = nil;  ///< `nil`: none is empty
  bool was_other =
    false;  ///< another class had it: float pages must be zeroed before they are read
};

/// See the file comment. **Threads** one owner.
class SlabTable {
 public:
  static constexpr std::uint8_t nobody = 0xff;

  /// **Errors** `std::bad_alloc`.
  explicit SlabTable(std::uint32_t slabs) : slabs_(slabs) {}

  [[nodiscard]] std::uint32_t size() const noexcept
  {
    return static_cast<std::uint32_t>(slabs_.size());
  }
  /// The class that has `slab`, or `nobody`. **Pre** of what takes a slab: `slab < size()`.
  [[nodiscard]] std::uint8_t owner(std::uint32_t slab) const noexcept { return slabs_[slab].owner; }
  [[nodiscard]] PageCount used(std::uint32_t slab) const noexcept { return slabs_[slab].used; }

  /// Gives an empty slab to `page_class`: the first that nobody had, else the first that others left empty.
  /// **Pre** `page_class != nobody`. **Cost** O(size()).
  [[nodiscard]] TakenSlab take(std::uint8_t page_class) noexcept
  {
    TakenSlab found{};
    for (std::uint32_t s = 0; s < size(); ++s) {
      Slab const& slab = slabs_[s];
      if (slab.owner == nobody) {
        found = {s, false};
        break;
      }
      if (found.slab == nil && slab.used == 0 && slab.owner != page_class) {
        found = {s, true};
      }
    }
    if (found.slab != nil) {
      slabs_[found.slab].owner = page_class;
    }
    return found;
  }
  /// `pages` of the slab are in use now. **Pre** somebody has it.
  void use(std::uint32_t slab, PageCount pages)
  {
    KVCACHE_EXPECTS(owner(slab) != nobody, "kvcache: SlabTable::use() needs a slab that was taken");
    slabs_[slab].used += pages;
  }
  /// `pages` of the slab are free again, and no step may touch them any more.
  void release(std::uint32_t slab, PageCount pages)
  {
    KVCACHE_EXPECTS(pages <= used(slab),
                    "kvcache: SlabTable::release() of more pages than are in use");
    slabs_[slab].used -= pages;
  }

 private:
  struct Slab {
    PageCount used = 0;
    std::uint8_t owner = nobody;
  };
  std::vector<Slab> slabs_;
};

}  // namespace kvcache::inline v0_1
