// The only header that includes CAF: one spelling for CAF 0.17 and CAF 1.x.
#pragma once
#include <algorithm>
#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <cereal/cereal.hpp>
#include <chrono>
#include <concepts>
#include <functional>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// CAF 1.1.0 defines CAF_VERSION as 0100, an octal number; CAF_MAJOR_VERSION is right in both.
#if CAF_MAJOR_VERSION >= 1
#define TROUPE_CAF_OLD 0
#elif CAF_VERSION >= 1706 && CAF_VERSION < 1800
#define TROUPE_CAF_OLD 1
#else
#error "this CAF is neither 0.17 nor 1.x"
#endif

// CAF 0.17 also takes any free serialize(x, value) for its own (Boost style) and prefers it to inspect: without this
// limit it would call the function written for cereal.
template <class A>
concept cereal_archive =
    std::is_base_of_v<cereal::detail::OutputArchiveBase, A> || std::is_base_of_v<cereal::detail::InputArchiveBase, A>;

// TROUPE_FIELDS(type, a, b): one list of fields serves CAF's inspect and cereal's serialize.
#define TROUPE_PARENS ()
#define TROUPE_EXPAND(...) TROUPE_EXPAND1(TROUPE_EXPAND1(TROUPE_EXPAND1(TROUPE_EXPAND1(__VA_ARGS__))))
#define TROUPE_EXPAND1(...) TROUPE_EXPAND2(TROUPE_EXPAND2(TROUPE_EXPAND2(TROUPE_EXPAND2(__VA_ARGS__))))
#define TROUPE_EXPAND2(...) __VA_ARGS__
#define TROUPE_EACH(m, ...) __VA_OPT__(TROUPE_EXPAND(TROUPE_EACH1(m, __VA_ARGS__)))
#define TROUPE_EACH1(m, x, ...) m(x) __VA_OPT__(, TROUPE_EACH2 TROUPE_PARENS(m, __VA_ARGS__))
#define TROUPE_EACH2() TROUPE_EACH1
#define TROUPE_MEMBER(x) self.x
#define TROUPE_NAMED_MEMBER(x) f.field(#x, self.x)
#if TROUPE_CAF_OLD
#define TROUPE_FIELDS(type, ...)                                                                                       \
  template <class Inspector> typename Inspector::result_type inspect(Inspector& f, [[maybe_unused]] type& self) {      \
    return f(caf::meta::type_name(#type) __VA_OPT__(, TROUPE_EACH(TROUPE_MEMBER, __VA_ARGS__)));                       \
  }                                                                                                                    \
  template <cereal_archive Archive> void serialize([[maybe_unused]] Archive& ar, [[maybe_unused]] type& self) {        \
    __VA_OPT__(ar(TROUPE_EACH(TROUPE_MEMBER, __VA_ARGS__));)                                                           \
  }
#else
#define TROUPE_FIELDS(type, ...)                                                                                       \
  template <class Inspector> bool inspect(Inspector& f, [[maybe_unused]] type& self) {                                 \
    return f.object(self).fields(__VA_OPT__(TROUPE_EACH(TROUPE_NAMED_MEMBER, __VA_ARGS__)));                           \
  }                                                                                                                    \
  template <cereal_archive Archive> void serialize([[maybe_unused]] Archive& ar, [[maybe_unused]] type& self) {        \
    __VA_OPT__(ar(TROUPE_EACH(TROUPE_MEMBER, __VA_ARGS__));)                                                           \
  }
#endif

namespace troupe {

#if TROUPE_CAF_OLD
template <class In, class Out> struct answers_impl { using type = typename caf::replies_to<In>::template with<Out>; };
template <class In> struct answers_impl<In, void> { using type = caf::reacts_to<In>; };
template <class In, class Out = void> using answers = typename answers_impl<In, Out>::type;
#else
template <class In, class Out = void> using answers = caf::result<Out>(In);
#endif

template <class Self, class Handle, class... Ts> void tell(Self* self, const Handle& to, Ts&&... xs) {
#if TROUPE_CAF_OLD
  self->send(to, std::forward<Ts>(xs)...);
#else
  self->mail(std::forward<Ts>(xs)...).send(to);
#endif
}
// As if `from` had sent it: what it is answered goes there. Keeps the order of what this thread sends.
template <class From, class Handle, class T> void tell_as(const From& from, const Handle& to, T&& x) {
#if TROUPE_CAF_OLD
  caf::send_as(from, to, std::forward<T>(x));
#else
  caf::actor_cast<caf::strong_actor_ptr>(to)->enqueue(
      caf::make_mailbox_element(caf::actor_cast<caf::strong_actor_ptr>(from), caf::make_message_id(),
                                std::forward<T>(x)),
      nullptr);
#endif
}
template <class Handle, class... Ts> void tell_from_outside(const Handle& to, Ts&&... xs) {
#if TROUPE_CAF_OLD
  caf::anon_send(to, std::forward<Ts>(xs)...);
#else
  caf::anon_mail(std::forward<Ts>(xs)...).send(to);
#endif
}
// A request always has a finite time limit: no overload takes caf::infinite.
template <class Self, class Handle, class... Ts>
auto ask(Self* self, const Handle& to, std::chrono::milliseconds limit, Ts&&... xs) {
#if TROUPE_CAF_OLD
  return self->request(to, caf::duration{limit}, std::forward<Ts>(xs)...);
#else
  return self->mail(std::forward<Ts>(xs)...).request(to, limit);
#endif
}
template <class Self, class... Ts> void tell_later(Self* self, std::chrono::milliseconds delay, Ts&&... xs) {
#if TROUPE_CAF_OLD
  self->delayed_send(self, delay, std::forward<Ts>(xs)...);
#else
  self->mail(std::forward<Ts>(xs)...).delay(delay).send(self);
#endif
}
// One callback per watched actor; on 0.17 the actor's single down handler is filled once and looks the callback up. A
// callback may watch and unwatch others.
#if TROUPE_CAF_OLD
struct watch_list {
  using callback = std::function<void(const caf::error&)>;
  std::vector<std::pair<caf::actor_addr, callback>> entries;
  bool handled = false; // the handler is there
};
template <class Self, class Handle, class F> void watch(Self* self, watch_list& list, const Handle& h, F f) {
  if (!std::exchange(list.handled, true)) // never again: it may be running
    self->set_down_handler([&list](caf::down_msg& d) {
      const auto others = [&](const auto& e) { return e.first != d.source; };
      const auto ended = std::stable_partition(list.entries.begin(), list.entries.end(), others);
      const decltype(list.entries) calls(std::make_move_iterator(ended), std::make_move_iterator(list.entries.end()));
      list.entries.erase(ended, list.entries.end());
      for (const auto& [who, call] : calls)
        call(d.reason);
    });
  list.entries.emplace_back(h.address(), std::move(f));
  self->monitor(h);
}
// Needed when the watcher ends before the watched: who is watched remembers every watcher, ended or not (C17).
template <class Self, class Handle> void unwatch(Self* self, watch_list& list, const Handle& h) {
  self->demonitor(h.address());
  std::erase_if(list.entries, [&](const auto& e) { return e.first == h.address(); });
}
#else
struct watch_list {
  std::vector<std::pair<caf::actor_addr, caf::disposable>> entries;
};
template <class Self, class Handle, class F> void watch(Self* self, watch_list& list, const Handle& h, F f) {
  list.entries.emplace_back(h.address(), self->monitor(h, std::move(f)));
}
template <class Self, class Handle> void unwatch(Self*, watch_list& list, const Handle& h) {
  std::erase_if(list.entries, [&](auto& e) {
    if (e.first != h.address())
      return false;
    e.second.dispose();
    return true;
  });
}
#endif

template <class Self> auto& state_of(Self* self) {
#if TROUPE_CAF_OLD
  return self->state;
#else
  return self->state();
#endif
}
inline std::string text(caf::actor_system& sys, const caf::error& e) {
#if TROUPE_CAF_OLD
  return sys.render(e);
#else
  (void)sys;
  return to_string(e);
#endif
}

} // namespace troupe
