#!/usr/bin/env python3
"""Holds the figures of README.md and of pages in docs to their sources: bench/results, and the plan in docs/start/planning.md.

measured.py [--write]

--write corrects the pages. Each sentence below stands once in its page, with line breaks anywhere. Exit status: 1 if a page has
other figures, or no longer has the sentence.
"""

import json
import pathlib
import re
import statistics
import sys

root = pathlib.Path(__file__).resolve().parents[2]
results = root / "bench/results"


def collective(what, quantizer):
    rows = json.loads((results / f"cluster_2x2_200mbit.{what}_chunks.json").read_text())["rows"]
    return next(row for row in rows if row["quantizer"] == quantizer)


def planned():
    """Rows of the plan: name to its numbers, of its first table (bytes) and its second (times)."""
    tables = ({}, {})
    for line in (root / "docs/start/planning.md").read_text().splitlines():
        cells = re.fullmatch(r"(\w+) +([-0-9.x% ]+)", line)
        if cells:
            table = tables[0] if cells[1] not in tables[0] else tables[1]
            table.setdefault(cells[1], [float(number) for number in re.findall(r"[0-9.]+", cells[2])])
    return tables


def torch(mode, formats):
    """Milliseconds of a step over 200 Mbit/s, and the difference of the held-out loss."""
    for line in (results / "torch.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[:4] == ["200 Mbit/s", "GPT", mode, formats]:
            return int(cells[4]), cells[-1]
    raise LookupError(f"torch.md has no row of {mode} in {formats}")


def losses(page):
    """Rows of each table of a study: setting to the reduction of bytes, and the difference of the held-out loss."""
    row = re.compile(r"^\| (.+?) \|.* \| ([\d.]+x) \|.*\| ([-+].*?) \|$", re.M)
    return [{name: (fewer, difference) for name, fewer, difference in row.findall(part)}
            for part in (results / page).read_text().split("\n## A larger model")]


def by_steps(page):
    """Rows of a study's table of lengths: number of steps to the difference of the held-out loss."""
    rows = re.findall(r"^\| (\d+) \|.*\| ([-+].*?) \| \d+ \|$", (results / page).read_text(), re.M)
    return {int(steps): difference for steps, difference in rows}


def of_studies():
    """Sentences on the studies of bench/pareto."""
    (small, larger), (largest,), (tuned,) = map(losses, ("pareto.md", "pareto_largest.md", "fine_tuning.md"))
    islands, control = "H=32, 4 bits", "1 island, H=32"
    twice = by_steps("pareto_largest.md")[4608]
    page = "docs/concepts/past_zeropp.md"
    rows = (("all of ZeRO++", "ZeRO++"), ("4 bits, 4 bits", "4+4"), ("2 bits, 2 bits", "2+2"),
            ("signs (`lloyd2:128:unbiased:h128`), three levels (`lloyd3:128:h128`)", "signs+three"),
            ("signs, three levels; 4 bits for gradients of embeddings and head", "by layer"))
    # In one piece, because --write knows rows by their words.
    yield page, " ".join(f"| {text} | {small[name][0]} | {small[name][1]} |" for text, name in rows)
    yield page, f"Error feedback on gradients of 2 bits has {small['2+2 feedback'][1]} in place of {small['2+2'][1]}."
    yield page, (f"[local steps](../primitives/outer_step.md) move {float(small[islands][0][:-1]):.0f} times fewer bytes than ZeRO-3, at "
                 f"{small[islands][1]}. Of 4.11 million parameters they had {largest[islands][1]}, and {twice} over twice the steps (")
    yield page, (f"There all of ZeRO++ costs {tuned['ZeRO++'][1]}, 4 bits {tuned['4+4'][1]}, 2 bits {tuned['2+2'][1]}, and by layer "
                 f"{tuned['by layer'][1]}. Local steps in 4 bits, every 32 steps on two islands, cost {tuned[islands][1]}.")
    yield page, f"its blocks learn at 0.8 of the rate. It has {small['slower blocks'][1]}."
    yield page, f"A model of 1.07 million parameters had {larger['by layer'][0]}, at {larger['by layer'][1]} ("
    yield page, f"One of 4.11 million had {largest['by layer'][0]}, at {largest['by layer'][1]} ("
    page = "docs/concepts/limits.md"
    for number, name in ("two", ""), ("Eight", "8 islands, "):
        yield page, f"{number} islands had " + "{}, {} and {}".format(*(small[f"{name}H={every}, 4 bits"][1] for every in (8, 32, 128)))
    yield page, (f"had {larger[islands][1]} on two islands every 32 steps. With the same outer optimizer, the small model's synchronous training "
                 f"had {small[control][1]}. Of 4.11 million parameters, two islands had {largest[islands][1]}, and synchronous training with "
                 f"this outer optimizer {largest[control][1]} (")
    yield page, f"Over twice the steps, two islands had {twice} ("
    yield "examples/torch/README.md", (f"[2 bits](../../bench/results/pareto.md) had {small['2+2 feedback'][1]} with it, and "
                                       f"{small['2+2'][1]} without.")
    yield "docs/primitives/outer_step.md", f"cost a model of 4.11 million parameters {largest[control][1]}, without islands"


def of_differences():
    """Sentences on the losses of bench/convergence and bench/recovery, which are differences to a baseline."""
    def differences(page):
        rows = re.findall(r"^\| ([^|]+?) \|.*?\| ([-+][\d.]+ % ± [\d.]+) \|", (results / page).read_text(), re.M)
        return {name.partition(" (")[0]: difference for name, difference in rows}

    of, page = differences("convergence.md"), "docs/cookbook/formats.md"
    yield page, f"| {of['int8']} | half the bytes, no tuning |"
    yield page, f"| {of['int8_int4_hadamard']} | the first choice for gradients |"
    yield page, f"| {of['int4']}; with error feedback {of['int4_feedback']} |"
    yield page, f"| {of['weight_differences']} (by 1.0.0,"
    yield page, f"| {of['fp8']} | rarely:"
    yield page, f"A control without rounding ends at {of['fp32']}, so"
    of = differences("recovery.md")
    yield "docs/cookbook/a_rank_has_died.md", (
        f"exact moments, {of['mirrored in bf16'][1:]} above a training without a failure. With lost moments it is "
        f"{of['moments lost'][1:]}.")


def sentences():
    """Pairs of a page and a sentence or a row of it."""
    ms = lambda contestant: f"{contestant['time_us'] / 1e3:.0f}"
    bytes_planned, times = planned()
    in_m = lambda name: f"{bytes_planned[name][4]:.2f}"
    model_gb = bytes_planned["zero3"][3] / bytes_planned["zero3"][4]
    rs4, ag8 = collective("reduce_scatter", "int8:256+int4:128"), collective("all_gather", "int8:256")

    fsdp, same_route, own = (torch("FSDP2", formats)[0] for formats in ("4bit", "16bit", "torch's own"))
    yield "README.md", (f"For 70 billion parameters on 48 nodes of 8: ZeRO-3 {in_m('zero3')}, all of ZeRO++ {in_m('zeropp')}, "
                        f"[past it](docs/concepts/past_zeropp.md) {in_m('differences')}, or {in_m('by_layer')} with precision "
                        "by layer.")
    yield "README.md", (f"4 bits are {rs4['ours_bf16']['speedup']:.1f} times as fast as our own 16 bits, which comes from the "
                        f"bits alone. They are {rs4['native_bf16']['speedup']:.1f} times as fast as MPI's")
    yield "README.md", f"a step of FSDP2 takes {fsdp} ms in 4 bits"
    yield "README.md", (f"That is {same_route / fsdp:.1f} times as fast as bf16 on the same route ({same_route} ms). It is "
                        f"{own / fsdp:.1f} times as fast as torch's own collectives over gloo in the same hpZ groups ({own} "
                        "ms).")
    exact = {name: list(runs.values())
             for name, runs in json.loads((results / "exact_bits.json").read_text())["trainings"].items()}
    mean = lambda name, key: statistics.mean(run[key] for run in exact[name])
    # In one piece, because --write knows rows by their words.
    yield "docs/primitives/quantized_update.md", " ".join(
        f"| {name.replace(' ', ', ', 1)} | {100 * mean(name, 'changed'):.1f} % | {mean(name, 'bits'):.2f} | {16 / mean(name, 'bits'):.1f}x |"
        for name in ("AdamW 0.001", "AdamW 0.0001", "Muon 0.001", "Muon 0.0001", "AdamW 1e-05 fine-tuning", "AdamW 3e-06 fine-tuning"))
    bits, size = mean("AdamW 0.0001", "bits"), exact["AdamW 0.0001"][0]["parameters"]
    yield "README.md", (f"They take {bits:.2f} bits a weight at a peak learning rate of 1e-4, {16 / bits:.1f} times fewer ({size / 1e6:.1f} "
                        "million parameters, whole trainings, `bench/torch/exact_bits.py`).")
    # The columns of times: four of communication, then the step and its speed-up, without overlap and with it.
    fast = lambda name: f"{times[name][5]:.1f}x to {times[name][7]:.1f}x"
    yield "README.md", (f"ZeRO-3 takes {times['zero3'][4] / 1e3:.1f} s a step. ZeRO++ is {fast('zeropp')} as fast, and [past "
                        f"it](docs/concepts/past_zeropp.md) {fast('differences')}.")
    of_regex = json.loads((results / "compile_time.json").read_text())["g++ 12"]["rows"]["all_gather"]["of_base"]
    yield "README.md", f"a program with one all-gather compiles in {of_regex:.2f} of the time of one with `<regex>`"
    yield "docs/concepts/measured.md", f"a program with an all-gather takes {of_regex:.2f} of one with `<regex>`"

    row = lambda name, text: f"| {text} | " + " | ".join(
        f"{bytes_planned[name][i] / model_gb:.2f}".replace("0.00", "0") for i in range(3)) + f" | **{in_m(name)}** |"
    yield "docs/index.md", row("zero3", "ZeRO-3")
    yield "docs/index.md", row("zeropp", "all of ZeRO++: 8 bits forward, none backward, 4-bit gradients")
    yield "docs/index.md", row("differences", "past it: 2-bit differences, 2-bit gradients")
    yield "docs/index.md", row("by_layer", "[by layer](concepts/past_zeropp.md#precision-by-layer): signs of differences; "
                                           "three-level gradients, 4 bits for embeddings and head")
    for text, r in ("all-gather, int8:256", ag8), ("reduce-scatter, int8:256 intra-node and int4:128 inter-node", rs4):
        yield "docs/index.md", (f"| {text}; native is MPI in bf16 | {ms(r['out_of_place'])} | {ms(r['ours_bf16'])} | "
                                f"{r['ours_bf16']['speedup']:.2f}x | {ms(r['native_bf16'])} | "
                                f"{r['native_bf16']['speedup']:.2f}x |")
    yield "docs/index.md", (f"`bench/torch/run.sh --steps 20`) | {fsdp} | {same_route} | {same_route / fsdp:.2f}x | {own} | "
                            f"{own / fsdp:.2f}x |")

    for what, name, quantizers in (("all_gather", "quantized_all_gather", ("int8:256", "int4:128")),
                                   ("reduce_scatter", "hierarchical_quantized_reduce_scatter",
                                    ("int8:256+int8:256", "int8:256+int4:128"))):
        for quantizer in quantizers:
            r = collective(what, quantizer)
            yield "docs/concepts/measured.md", (
                f"| `{name}`, 8 chunks | {quantizer} | {ms(r['out_of_place'])} ms | {ms(r['ours_bf16'])} ms | "
                f"{r['ours_bf16']['speedup']:.2f}x | {ms(r['native_bf16'])} ms | {r['native_bf16']['speedup']:.2f}x | "
                f"{r['bare_exchange']['ours_over_bare']:.2f} |")
    for text, mode, formats in ("FSDP2, 4 bits, same hpZ groups", "FSDP2", "4bit"), ("DDP, 8 bits", "DDP", "8bit"):
        a, b, c = torch(mode, formats)[0], torch(mode, "16bit")[0], torch(mode, "torch's own")[0]
        yield "docs/concepts/measured.md", f"| {text} | {a} ms | {b} ms | {b / a:.1f}x | {c} ms | {c / a:.1f}x |"
    three, ignored, as_nodes = json.loads((results / "sites_2x2x2_400mbit_50mbit.levels.json").read_text())["rows"]
    yield "docs/concepts/measured.md", (f"A reduce-scatter over three levels takes {ms(three)} ms, {three['ours_over_bare']:.2f} of "
                                        "a bare exchange of its messages between sites.")
    yield "docs/concepts/measured.md", (f"With sites ignored it takes {ignored['of_three_levels']:.2f} times as long, with each "
                                        f"site taken for a node {as_nodes['of_three_levels']:.2f} times.")
    gpt = {run["name"]: run["step_seconds_median"]
           for run in json.loads((results / "cluster_2x2_50mbit.zero3_gpt.json").read_text())["runs"]}
    alone = json.loads((results / "local.zero3_gpt.json").read_text())["runs"][0]["step_seconds_median"]
    yield "docs/concepts/measured.md", (f"a step takes {gpt['zero3'] * 1e3:.0f} ms with ZeRO-3 in bf16 (`bench/run.sh`). Of "
                                        f"that, {1 - alone / gpt['zero3']:.0%} is communication".replace("%", " %"))
    yield "docs/concepts/measured.md", (f"With all of ZeRO++ it takes {gpt['zeropp'] * 1e3:.0f} ms: "
                                        f"{gpt['zero3'] / gpt['zeropp']:.1f} times as many steps.")

    yield "examples/torch/README.md", (f"a step over 200 Mbit/s takes {torch('FSDP2', 'exact, 4bit')[0]} ms, in the preset \"4bit\" "
                                       f"{fsdp}")
    plain, bf16, four = (torch("DeepSpeed", formats)[0] for formats in ("DeepSpeed's own", "16bit", "4bit"))
    yield "examples/torch/README.md", (f"a step in the preset \"4bit\" takes {four} ms, in \"16bit\" {bf16}, by DeepSpeed's own "
                                       f"collectives with hpZ {plain}")
    yield from of_studies()
    yield from of_differences()
    formats = ("torch's own", "16bit", "8bit", "4bit")
    for text, mode in ("FSDP2", "FSDP2"), ("HSDP with `replicas`", "HSDP"), ("DDP", "DDP"):
        yield "docs/start/pytorch.md", f"| {text}, ms a step | " + " | ".join(str(torch(mode, f)[0]) for f in formats) + " |"
    for text, mode in (("FSDP2, held-out loss after the steps", "FSDP2"), ("HSDP, held-out loss", "HSDP"),
                       ("DDP, held-out loss", "DDP")):
        yield "docs/start/pytorch.md", (f"| {text}, against torch's own | | "
                                        + " | ".join(torch(mode, f)[1] for f in formats[1:]) + " |")


def wrong(page, text, sentence):
    """What is wrong with the text of a page, and the text with the right figures; None if nothing is."""
    words = sentence.split()
    if sentence in " ".join(text.split()):
        return None
    other_figures = [re.sub(r"(\\?[-+])?\d+(\\\.\d+)?", lambda _: r"[-+]?\d+(?:\.\d+)?", re.escape(word)) for word in words]
    found = re.search(r"(\s+)".join(other_figures), text)
    if not found:
        return f"{page} no longer has this sentence, with any figures: {sentence}", text
    right = words[0] + "".join(space + word for space, word in zip(found.groups(), words[1:]))
    return f"{page}:\n  has      {' '.join(found[0].split())}\n  measured {sentence}", text.replace(found[0], right)


def main():
    pages, problems = {}, []
    for page, sentence in sentences():
        text = pages.setdefault(page, (root / page).read_text())
        problem = wrong(page, text, sentence)
        if problem:
            problems.append(problem[0])
            pages[page] = problem[1]
            continue
        # The check can fail: any digit, changed, is found and put right.
        for digit in re.finditer(r"\d", sentence):
            other = sentence[:digit.start()] + str((int(digit[0]) + 1) % 10) + sentence[digit.end():]
            problem = wrong(page, f"before {other} after", sentence)
            assert problem and problem[1] == f"before {sentence} after", (problem, sentence)
    print("\n".join(problems))
    if "--write" in sys.argv:
        for page, text in pages.items():
            (root / page).write_text(text)
    elif problems:
        sys.exit(f"{len(problems)} figures are not their source's: tests/readme/measured.py --write corrects them")


if __name__ == "__main__":
    main()
