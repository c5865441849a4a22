#pragma once

#include "settings.hpp"

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace plan {

/// Held-out loss above synchronous training in bf16, in percent, its standard error, and the size of the model that was
/// trained. Without a size there is no loss: the weights have the bits of training in bf16.
struct measured_loss {
    double percent = 0;
    double error = 0;
    double millions = 0;  // of parameters
};

/// A way to train, predicted.
struct option {
    std::string name;
    std::string topology = {};  // ", on two_level(2, 8)"; empty if there is no choice
    double sent;                // bytes that a node, or an island, sends to others in a step
    std::uint64_t memory;       // of a rank, in bytes
    double seconds;             // of a step, without overlap
    measured_loss loss = {};
    std::string measured_on = {};  // "2 nodes": where the loss was measured, if not on as many as planned
    bool in_budgets = true;        // false: the loss counts in no budget
};

/// The best option within a limit of loss.
struct recommendation {
    std::string head;  // the limit: "loss at most 1 %"
    std::vector<option>::const_iterator best;
};

/// Synchronous settings and, if given.islands is set, local steps, all with the formats and intervals that were
/// measured. ZeRO-3 is first, then exact differences. Others are sorted by loss; a loss below bf16's counts as 0. Of
/// equal losses, the option that sends more bytes is first.
std::vector<option> predict_options(const settings& given);

/// Best options that fit into memory: at no loss, within s.loss_budget, and at any loss. The step is at most a tenth
/// longer than the shortest allowed one; of such options, it is the first. `options.end()` if there is none. A loss is
/// within the budget if its mean and one standard error are together. The budget leaves out local steps that were
/// measured on fewer islands than planned. It leaves them out too if a larger model was measured on as many islands and
/// with as many steps, in other formats alone.
std::vector<recommendation> recommended(const settings& s, const std::vector<option>& options);

/// Prints the recommended settings as a row of a table, then all.
void print_recommendation(std::ostream& out, const settings& s);

}  // namespace plan
