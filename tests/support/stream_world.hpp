// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file Streams and events without a device. Nothing runs when it is asked for; all of it runs as late as it may: only when a
/// test says that a stream must have come to its end, and then of the other streams no more than that one waits for. Or a
/// test lets some of it run, a piece of one stream and then of another.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "support/random.hpp"

namespace kvcache_test {

class StreamWorld {
 public:
  /// A point of a stream: behind all that it was asked for before.
  struct Mark {
    void* stream = nullptr;
    std::uint64_t after = 0;
  };

  void ask(void* stream, std::function<void()> work)
  {
    streams_[stream].waiting.push_back({std::move(work), {}});
  }
  [[nodiscard]] Mark record(void* stream)
  {
    Stream const& s = streams_[stream];
    return {stream, s.done + s.waiting.size()};
  }
  /// What `stream` is asked for later runs behind the mark.
  void wait(void* stream, Mark mark) { streams_[stream].waiting.push_back({{}, mark}); }
  [[nodiscard]] bool passed(Mark mark) { return streams_[mark.stream].done >= mark.after; }
  /// Runs what the stream was asked for before the mark, and what that waits for.
  void finish(Mark mark)
  {
    while (!passed(mark)) {
      run_one(mark.stream);
    }
  }
  void finish(void* stream) { finish(record(stream)); }
  /// Runs a piece of some stream. False: there was none.
  bool run_some(Random& random)
  {
    std::size_t busy = 0;
    for (auto const& [stream, s] : streams_) {
      busy += s.waiting.empty() ? 0U : 1U;
    }
    if (busy == 0) {
      return false;
    }
    std::uint32_t pick = random.below(static_cast<std::uint32_t>(busy));
    for (auto& [stream, s] : streams_) {
      if (!s.waiting.empty() && pick-- == 0) {
        run_one(stream);
        break;
      }
    }
    return true;
  }
  void finish_all(Random& random)
  {
    while (run_some(random)) {
    }
  }

 private:
  struct Piece {
    std::function<void()> work;  // empty: waits for the mark
    Mark mark;
  };
  struct Stream {
    std::deque<Piece> waiting;
    std::uint64_t done = 0;
  };

  void run_one(void* stream)
  {
    Stream& s = streams_[stream];
    Piece const piece = std::move(s.waiting.front());
    s.waiting.pop_front();
    if (piece.work) {
      piece.work();
    } else if (piece.mark.stream != nullptr) {
      finish(piece.mark);
    }
    ++s.done;
  }

  std::map<void*, Stream> streams_;
};

}  // namespace kvcache_test
