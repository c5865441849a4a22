#!/usr/bin/env bash
# Trains with PyTorch on 2 nodes x 2 ranks, network namespaces with shaped links, and on loopback: a GPT of 10 million
# parameters with FSDP2, HSDP, DDP and DeepSpeed, and a vision transformer, each with and without zeropp. Measures the time of a
# call from Python. Installs PyTorch and the package as tests/torch/run.sh does, for DeepSpeed with its --launchers. Needs root.
#
#   bench/torch/run.sh [--steps N] [--links LINKS] [--modes MODES] [--rounds N] [--build-dir DIR] [--results DIR]
#
#   --steps N         of each training (default: 40)
#   --links LINKS     which to measure, of "200mbit 1gbit loopback"; the results keep the others (default: all)
#   --modes MODES     which to measure, of "FSDP2 HSDP DDP DeepSpeed"; the results keep the others (default: all)
#   --rounds N        how often each training runs, in turns; the page has the run of the median (default: 1, and 5 on loopback)
#   --build-dir DIR   where the environment is, which is made once (default: build/torch)
#   --results DIR     where torch.md and the rest go (default: bench/results)
#
# The calls from Python are measured with the link loopback alone, over which they go.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value steps 40
value links "200mbit 1gbit loopback"
value modes "FSDP2 HSDP DDP DeepSpeed"
value rounds ''
folder build_dir "$root/build/torch"
folder results "$root/bench/results"
parse_options "$@"
for link in $links; do [[ $link =~ ^(200mbit|1gbit|loopback)$ ]] || options_wrong "--links: expected 200mbit, 1gbit or loopback, given $link"; done
for mode in $modes; do [[ $mode =~ ^(FSDP2|HSDP|DDP|DeepSpeed)$ ]] || options_wrong "--modes: expected FSDP2, HSDP, DDP or DeepSpeed, given $mode"; done
[[ $steps =~ ^[1-9][0-9]*$ ]] || options_wrong "--steps: expected a whole number, given $steps"
[[ $rounds =~ ^([1-9][0-9]*)?$ ]] || options_wrong "--rounds: expected a whole number, given $rounds"

require_packages iproute2 util-linux openmpi-bin python3 gnuplot-nox
launchers=()
[[ $modes != *DeepSpeed* ]] || launchers=(--launchers)
"$root/tests/torch/run.sh" --build-dir "$build_dir" --install "${launchers[@]}"
here=$root/bench/torch
python=$build_dir/venv/bin/python
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export OMP_NUM_THREADS=1
mkdir -p "$results"
read -ra wanted_links <<<"$links"
read -ra wanted_modes <<<"$modes"
command="bench/torch/run.sh --steps $steps"
[ "$links" = "200mbit 1gbit loopback" ] || command+=" --links \"$links\""
[ "$modes" = "FSDP2 HSDP DDP DeepSpeed" ] || command+=" --modes \"$modes\""
[ -z "$rounds" ] || command+=" --rounds $rounds"

# train LINKS TASK MODE PRESET [ARGUMENT...]
train() {
    local links=$1 task=$2 mode=$3 preset=$4 interfaces=() program
    shift 4
    echo "== $links, $task, $mode, $preset"
    program=("$root/examples/torch/train.py" --preset "${preset#exact, }" --layers 3 --steps "$steps" --json "$scratch/run.json" "$@")
    [ "$mode" = FSDP2 ] || program+=("--${mode,,}")
    [[ $preset != exact* ]] || program+=(--exact)
    if [ "$links" = loopback ]; then
        GLOO_SOCKET_IFNAME=lo "$python" -m torch.distributed.run --standalone --nproc-per-node 4 "${program[@]}"
    else
        "$root/bench/cluster/cluster.sh" run --nodes 2 --per-node 2 --rate "$links" --json "$scratch/links.json" -- \
            "$here/rank.sh" "$python" "${program[@]}"
        interfaces=("$scratch/links.json")
    fi
    "$python" "$here/report.py" keep "$scratch" "$command" "$links" "$task" "$mode" "$preset" "$scratch/run.json" \
        "${interfaces[@]}"
}

# In turns, so that a machine that becomes slower meanwhile slows all. The results of before stay until a link's runs have ended.
for link in "${wanted_links[@]}"; do
    presets=(none 16bit 8bit 6bit 4bit "exact, 16bit" "exact, 4bit")
    times=${rounds:-1}
    if [ "$link" = loopback ]; then
        presets=(none lossless)
        times=${rounds:-5}
    fi
    for _ in $(seq "$times"); do
        for mode in "${wanted_modes[@]}"; do
            [ "$link$mode" != loopbackHSDP ] || continue
            for preset in "${presets[@]}"; do
                [[ $preset != exact* || $mode = FSDP2 || $mode = HSDP ]] || continue
                train "$link" text "$mode" "$preset" --width 512 --batch 2
            done
        done
    done
    if [[ $link$modes = 200mbit*FSDP2* ]]; then
        for preset in none 8bit 4bit; do
            train 200mbit digits FSDP2 "$preset" --digits --width 256 --batch 4 --lr 0.001
        done
    fi
    if [ -e "$scratch/torch.json" ]; then "$python" "$here/report.py" take "$results" "$scratch"; fi
done
if [[ $links = *loopback* || ! -e $results/torch_overhead.md ]]; then
    GLOO_SOCKET_IFNAME=lo "$python" -m torch.distributed.run --standalone --nproc-per-node 2 "$here/overhead.py" >"$scratch/overhead.md"
    mv "$scratch/overhead.md" "$results/torch_overhead.md"
fi
"$python" "$here/report.py" page "$results"
cat "$results/torch.md"
