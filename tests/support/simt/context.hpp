// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>

#include "support/simt/sanitizers.hpp"

#if defined(SIMT_BOOST_CONTEXT)
#include <boost/context/detail/fcontext.hpp>
#else
#include <ucontext.h>
#endif
#if defined(SIMT_ASAN)
#include <pthread.h>
#endif

/// \file A stack to run on and the switch from one to another: Boost.Context, or ucontext (two system calls a switch)
/// where the build has no Boost.

namespace simt {

/// A flow of control. One that is made with an entry lives on a stack of its own, above a page that no one may touch, and
/// its entry never returns; one that is made without is the thread that makes it.
class Context {
 public:
  using Entry = void (*)(void* argument);

  Context()
  {
#if defined(SIMT_ASAN)
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack_, &stack_bytes_);
    pthread_attr_destroy(&attributes);
#endif
  }
  /// `number` staggers the stacks, which would otherwise fight for the same sets of the caches.
  Context(Entry entry, void* argument, std::size_t number) : entry_(entry), argument_(argument)
  {
    auto const page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    mapped_ = own_bytes + page;
    mapping_ = ::mmap(
      nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping_ == MAP_FAILED) {
      throw std::bad_alloc();
    }
    ::mprotect(mapping_, page, PROT_NONE);
    stack_ = static_cast<std::byte*>(mapping_) + page;
    stack_bytes_ = own_bytes - number * 832 % 16384;
#if defined(SIMT_BOOST_CONTEXT)
    at_ = boost::context::detail::make_fcontext(
      static_cast<std::byte*>(stack_) + stack_bytes_, stack_bytes_, enter);
#else
    ::getcontext(&at_);
    at_.uc_stack.ss_sp = stack_;
    at_.uc_stack.ss_size = stack_bytes_;
    ::makecontext(&at_, enter, 0);
#endif
  }
  ~Context()
  {
    if (mapping_ != nullptr) {
      permit(stack_, stack_bytes_);
      ::munmap(mapping_, mapped_);
    }
  }
  Context(Context const&) = delete;
  Context& operator=(Context const&) = delete;

  /// Leaves this flow, which is the caller's, for `to`; returns when another switches back.
  void switch_to(Context& to)
  {
    arriving() = &to;
#if defined(SIMT_ASAN)
    __sanitizer_start_switch_fiber(&fake_stack_, to.stack_, to.stack_bytes_);
#endif
#if defined(SIMT_BOOST_CONTEXT)
    boost::context::detail::transfer_t const from =
      boost::context::detail::jump_fcontext(to.at_, this);
    static_cast<Context*>(from.data)->at_ = from.fctx;
#else
    ::swapcontext(&at_, &to.at_);
#endif
#if defined(SIMT_ASAN)
    __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
  }

 private:
  // Virtual memory: what a kernel does not use costs nothing. ASan's frames are large.
  static constexpr std::size_t own_bytes = std::size_t{256} << 10;

  static Context*& arriving()
  {
    static thread_local Context* context = nullptr;
    return context;
  }
  static void begin()
  {
#if defined(SIMT_ASAN)
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
    Context const& self = *arriving();
    self.entry_(self.argument_);
  }
#if defined(SIMT_BOOST_CONTEXT)
  static void enter(boost::context::detail::transfer_t from)
  {
    static_cast<Context*>(from.data)->at_ = from.fctx;
    begin();
  }
  boost::context::detail::fcontext_t at_ = nullptr;
#else
  static void enter() { begin(); }
  ucontext_t at_{};
#endif
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  void* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* mapping_ = nullptr;
  std::size_t mapped_ = 0;
#if defined(SIMT_ASAN)
  void* fake_stack_ = nullptr;
#endif
};

}  // namespace simt
