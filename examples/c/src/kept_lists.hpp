#pragma once

#include <zeropp_c.h>

#include <zeropp/core/view.hpp>
#include <zeropp/layout/tensor_list.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace zeropp_c {

/// Lists of earlier calls on tensors of T: a call with the addresses and sizes of one makes no other.
template <class T, class Space>
class kept_lists {
public:
    using list = zeropp::tensor_list<T, Space>;

    /// The list of `count` tensors, of this rank's shards if `sliced`. If there is none, keeps make(), a list.
    template <class Make>
    std::shared_ptr<const list> of(const zeropp_tensor* tensors, std::size_t count, bool sliced, Make make) {
        std::vector<std::uintptr_t> key{sliced ? std::uintptr_t{1} : 0};
        key.reserve(1 + 3 * count);
        for (std::size_t t = 0; t != count; ++t) {
            key.insert(key.end(), {zeropp::detail::address_of(static_cast<const T*>(tensors[t].data)),
                                   tensors[t].elements, tensors[t].row});
        }
        if (const auto found = lists_.find(key); found != lists_.end()) return found->second;
        // Some programs' tensors never come again.
        if (numbers_ > most_numbers) lists_.clear(), numbers_ = 0;
        auto made = std::make_shared<const list>(make());
        numbers_ += key.size();
        lists_.emplace(std::move(key), made);
        return made;
    }

private:
    static constexpr std::size_t most_numbers = std::size_t{1} << 17;

    std::map<std::vector<std::uintptr_t>, std::shared_ptr<const list>> lists_;
    std::size_t numbers_ = 0;
};

}  // namespace zeropp_c
