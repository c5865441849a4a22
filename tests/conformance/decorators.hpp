#pragma once
/// \file
/// Decorators, as functions that wrap a transport. `counted` puts all ranks on one node.

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/any.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/counting.hpp>

#include <utility>

namespace zeropp_test {

struct plain {
    template <class T>
    static T wrap(T inner) {
        return inner;
    }
};

struct counted {
    template <class T>
    static auto wrap(T inner) {
        const zeropp::flat nodes(inner.size());
        return zeropp::counting<T, zeropp::flat>(std::move(inner), nodes);
    }
};

struct checking {
    template <class T>
    static auto wrap(T inner) {
        return zeropp::checked<T>(std::move(inner));
    }
};

/// A transport that is chosen at run time.
struct chosen {
    template <class T>
    static auto wrap(T inner) {
        return zeropp::any_transport<zeropp::host, zeropp::host_queue>(std::move(inner));
    }
};

template <class Outer, class Inner>
struct both {
    template <class T>
    static auto wrap(T inner) {
        return Outer::wrap(Inner::wrap(std::move(inner)));
    }
};

}  // namespace zeropp_test
