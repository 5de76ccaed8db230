// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <kvcache/core/config.hpp>
#include <kvcache/core/dtype.hpp>
#include <kvcache/core/ids.hpp>
#include <kvcache/view/rope.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file A row of one head, cut into what a thread turns and stores at a time.
///
///   halves, 8 elements a run   | 0 | 1 | .. | 0 | 1 | .. | n | n+1 | ..     unit 0 has two runs, dims/2 apart
///                              |<-- dims/2 -->|<-- dims/2 -->| the rest, as it is
///
/// Elements that turn together are in one unit, so a row may be turned in place, and no thread waits for another. A run is
/// 16 bytes of what is stored, or one element where `dims` does not allow that.

namespace kvcache::inline v0_1::detail {

/// `16 / sizeof(T)` elements as one load or store.
template <class T>
struct alignas(16) Packed {
  static constexpr std::int32_t size = 16 / static_cast<std::int32_t>(sizeof(T));
  T elements[static_cast<std::size_t>(size)];
};

/// `W` elements in registers.
template <class T, std::int32_t W>
struct Run {
  T elements[static_cast<std::size_t>(W)];
  KVCACHE_HOST_DEVICE T& operator[](std::int32_t i) { return elements[i]; }
  KVCACHE_HOST_DEVICE T operator[](std::int32_t i) const { return elements[i]; }
};

/// Whether `W` elements of T at `p` may go as whole `Packed`.
template <std::int32_t W, class T>
[[nodiscard]] KVCACHE_HOST_DEVICE bool packs(T const* p)
{
  return W % Packed<T>::size == 0 && reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

template <std::int32_t W, class T>
KVCACHE_HOST_DEVICE void load_run(T const* from, Run<T, W>& to)
{
  if constexpr (W % Packed<T>::size == 0) {
    if (packs<W>(from)) {
      for (std::int32_t i = 0; i < W; i += Packed<T>::size) {
        auto const packed = *reinterpret_cast<Packed<T> const*>(from + i);
        for (std::int32_t j = 0; j < Packed<T>::size; ++j) {
          to[i + j] = packed.elements[j];
        }
      }
      return;
    }
  }
  for (std::int32_t i = 0; i < W; ++i) {
    to[i] = from[i];
  }
}

template <std::int32_t W, class T>
KVCACHE_HOST_DEVICE void store_run(T* to, Run<T, W> const& from)
{
  if constexpr (W % Packed<T>::size == 0) {
    if (packs<W>(to)) {
      for (std::int32_t i = 0; i < W; i += Packed<T>::size) {
        Packed<T> packed;
        for (std::int32_t j = 0; j < Packed<T>::size; ++j) {
          packed.elements[j] = from[i + j];
        }
        *reinterpret_cast<Packed<T>*>(to + i) = packed;
      }
      return;
    }
  }
  for (std::int32_t i = 0; i < W; ++i) {
    to[i] = from[i];
  }
}

/// How many units a row has, and which of them turn.
struct RowUnits {
  std::int32_t turned;
  std::int32_t count;
  bool wide;  ///< runs of `run` elements, not of one

  KVCACHE_HOST_DEVICE RowUnits(std::int32_t dim, Rope const& rope, std::int32_t run)
  {
    bool const halves = rope.style == RopeStyle::halves;
    wide = (halves ? rope.dims / 2 : rope.dims) % run == 0;
    std::int32_t const width = wide ? run : 1;
    turned = halves || !wide ? rope.dims / 2 / width : rope.dims / width;
    count = turned + (dim - rope.dims) / width;
  }
};

/// Stores unit `u` of a row in runs of `W`. `turns` are the dims/2 cosines of the token's position, then as many sines.
/// **Pre** `in == out`, or they do not overlap.
template <std::int32_t W, class In, class Out>
KVCACHE_HOST_DEVICE void store_unit(In const* in,
                                    Out* out,
                                    Rope const& rope,
                                    RowUnits const& units,
                                    float const* turns,
                                    std::int32_t u)
{
  constexpr auto to_float = [](In x) { return ElementTraits<In>::to_float(x); };
  constexpr auto to_out = [](float x) { return ElementTraits<Out>::from_float(x); };
  auto const turn = [&](std::int32_t pair) {
    return Rope::Turn{turns[pair], turns[rope.dims / 2 + pair]};
  };
  Run<In, W> x;
  Run<Out, W> done;
  if (u >= units.turned) {
    std::int32_t const at = rope.dims + (u - units.turned) * W;
    load_run(in + at, x);
    for (std::int32_t i = 0; i < W; ++i) {
      if constexpr (std::is_same_v<In, Out>) {
        done[i] = x[i];
      } else {
        done[i] = to_out(to_float(x[i]));
      }
    }
    store_run(out + at, done);
    return;
  }
  if (rope.style == RopeStyle::pairs && W > 1) {
    load_run(in + u * W, x);
    for (std::int32_t i = 0; i + 1 < W; i += 2) {
      float a = to_float(x[i]);
      float b = to_float(x[i + 1]);
      Rope::apply(turn((u * W + i) / 2), a, b);
      done[i] = to_out(a);
      done[i + 1] = to_out(b);
    }
    store_run(out + u * W, done);
    return;
  }
  bool const halves = rope.style == RopeStyle::halves;
  std::int32_t const first = halves ? u * W : 2 * u;
  std::int32_t const second = halves ? first + rope.dims / 2 : first + 1;
  Run<In, W> y;
  Run<Out, W> done_too;
  load_run(in + first, x);
  load_run(in + second, y);
  for (std::int32_t i = 0; i < W; ++i) {
    float a = to_float(x[i]);
    float b = to_float(y[i]);
    Rope::apply(turn(u * W + i), a, b);
    done[i] = to_out(a);
    done_too[i] = to_out(b);
  }
  store_run(out + first, done);
  store_run(out + second, done_too);
}

}  // namespace kvcache::inline v0_1::detail
