/// \file
/// What transports around others owe those inside.

#include <zeropp/transport/adaptor.hpp>

#include "conformance/watching.hpp"
#include "support/catch.hpp"
#include "support/fault_injecting.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/any.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/counting.hpp>

#include <memory>

using zeropp::host;
using zeropp_test::passes_on;
using zeropp_test::watching;

TEST_CASE("transports around others pass on what those inside have to hear of", "[transport][adaptor]") {
    passes_on("checked", [](watching w) { return zeropp::checked<watching>(w); });
    passes_on("counting", [](watching w) { return zeropp::counting(w, zeropp::flat(1)); });
    passes_on("any_transport", [](watching w) { return zeropp::any_transport<host, zeropp::host_queue>(w); });
    passes_on("any_transport, shared",
              [](watching w) { return zeropp::any_transport<host>(std::make_shared<watching>(w)); });
    passes_on("fault_injecting",
              [](watching w) { return zeropp_test::fault_injecting<watching>(w, zeropp_test::planned_fault{}); });
}
