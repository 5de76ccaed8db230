// SPDX-License-Identifier: Apache-2.0
// kvcache_counts ROW N: builds the state of a row, does its work once, and prints what it left allocated, how long it took
// and how many operations it was. Under callgrind with `--instr-atstart=no` the work alone is counted; see counted.hpp.

#include <malloc.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <new>
#include <string_view>

#include "counts/rows.hpp"

namespace {

std::size_t live = 0;

void* take(std::size_t bytes)
{
  void* const p = std::malloc(bytes == 0 ? 1 : bytes);
  live += p != nullptr ? malloc_usable_size(p) : 0;
  return p;
}
void* take(std::size_t bytes, std::align_val_t alignment)
{
  auto const to = static_cast<std::size_t>(alignment);
  void* const p = std::aligned_alloc(to, (bytes + to - 1) / to * to);
  live += p != nullptr ? malloc_usable_size(p) : 0;
  return p;
}
void give(void* p)
{
  live -= p != nullptr ? malloc_usable_size(p) : 0;
  std::free(p);
}
void* or_end(void* p)
{
  if (p == nullptr) {
    std::abort();
  }
  return p;
}

}  // namespace

std::size_t kvcache_counts::live_bytes()
{
  return live;
}

void* operator new(std::size_t bytes)
{
  return or_end(take(bytes));
}
void* operator new[](std::size_t bytes)
{
  return or_end(take(bytes));
}
void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept
{
  return take(bytes);
}
void* operator new[](std::size_t bytes, std::nothrow_t const&) noexcept
{
  return take(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t to)
{
  return or_end(take(bytes, to));
}
void* operator new[](std::size_t bytes, std::align_val_t to)
{
  return or_end(take(bytes, to));
}
void* operator new(std::size_t bytes, std::align_val_t to, std::nothrow_t const&) noexcept
{
  return take(bytes, to);
}
void* operator new[](std::size_t bytes, std::align_val_t to, std::nothrow_t const&) noexcept
{
  return take(bytes, to);
}
void operator delete(void* p) noexcept
{
  give(p);
}
void operator delete[](void* p) noexcept
{
  give(p);
}
void operator delete(void* p, std::size_t) noexcept
{
  give(p);
}
void operator delete[](void* p, std::size_t) noexcept
{
  give(p);
}
void operator delete(void* p, std::align_val_t) noexcept
{
  give(p);
}
void operator delete[](void* p, std::align_val_t) noexcept
{
  give(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept
{
  give(p);
}
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept
{
  give(p);
}
void operator delete(void* p, std::nothrow_t const&) noexcept
{
  give(p);
}
void operator delete[](void* p, std::nothrow_t const&) noexcept
{
  give(p);
}
void operator delete(void* p, std::align_val_t, std::nothrow_t const&) noexcept
{
  give(p);
}
void operator delete[](void* p, std::align_val_t, std::nothrow_t const&) noexcept
{
  give(p);
}

int main(int argc, char** argv)
{
  using kvcache_counts::Row;
  for (auto const rows : {kvcache_counts::flight_rows(),
                          kvcache_counts::sequence_rows(),
                          kvcache_counts::decode_rows()}) {
    for (Row const& row : rows) {
      if (argc == 1) {
        std::printf("%.*s\n", static_cast<int>(row.name.size()), row.name.data());
      }
      if (argc != 3 || row.name != argv[1]) {
        continue;
      }
      auto const count = row.run(std::strtoull(argv[2], nullptr, 10));
      std::printf("counted %llu operations, %zu bytes, %.9f seconds\n",
                  static_cast<unsigned long long>(count.operations),
                  count.bytes,
                  count.seconds);
      return 0;
    }
  }
  if (argc != 1) {
    std::fprintf(stderr, "usage: kvcache_counts ROW N; alone it lists the rows\n");
  }
  return argc == 1 ? 0 : 2;
}
