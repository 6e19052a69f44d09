#!/usr/bin/env python3
"""The release gates: each starts a server, loads it, prints figures and what must hold, and writes NAME.png
and NAME.json.

    bench/gates/gate.py soak jitter               with the bundled model
    bench/gates/gate.py --model DIR return        with another one
    bench/gates/gate.py tabs                      open browser tabs for an hour; only when named
    bench/gates/gate.py --device cuda:0 gpu       beside the driver's figures; only when named
    bench/gates/gate.py --device cuda:0 others    while another process has the GPU's memory; only when named
    bench/gates/gate.py --device fake:0 --memory-limit 1G --device-memory-limit 66M soak return models
                                                  with two domains of memory, each judged; less load

The exit status is 0 when everything held."""

import argparse
import importlib
import pathlib
import sys

GATES = ("soak", "return", "flat", "jitter", "agent", "agents", "fairness", "tenants", "trim-cost", "warm-start", "load-gap", "models", "images", "draft", "busy")
NAMED = ("tabs", "gpu", "others")  # only when named: an hour, and a browser; an NVIDIA GPU
# Instead, with --device-memory-limit: loads for which 64 MiB beside the machine's memory suffice.
ON_A_DEVICE = {"longest": 256, "soak_batch": 4, "load": 4, "prompt": 1024}
TOP = pathlib.Path(__file__).resolve().parents[2]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("gates", nargs="*", metavar="GATE", help=f"{', '.join(GATES)}; all of them when none is named. Also {', '.join(NAMED)}")
    p.add_argument("--model", default=str(TOP / "models/canary"), help="the model's directory (the bundled one)")
    p.add_argument("--program", default=str(TOP / "build/plateau"), help="what is measured (build/plateau)")
    p.add_argument("--out", default=str(TOP / "build/gates"), help="where plots and figures go (build/gates)")
    p.add_argument("--label", help="in the names of plots; the model's by default")
    p.add_argument("--device", help="what computes, as of `plateau serve`; its memory is a domain of its own")
    p.add_argument("--memory-limit", help="ceiling of the machine's memory; models: room for one model, or with a device all of it")
    p.add_argument("--device-memory-limit", help="ceiling of the device's memory; models: room for one model")
    p.add_argument("--serve", action="append", default=[], metavar="OPTION", help="one more option of `plateau serve`; may be repeated")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--requests", type=int, default=100000, help="soak: how many (100000)")
    p.add_argument("--clients", type=int, default=16, help="soak: at once (16)")
    p.add_argument("--longest", type=int, default=1024, help="soak: tokens of the longest prompt (1024)")
    p.add_argument("--soak-cache", default="16M", help="soak: --host-cache, small enough to be full when warm (16M)")
    p.add_argument("--soak-batch", type=int, help="soak: --max-num-seqs (as the server has it)")
    p.add_argument("--load", type=int, default=8, help="return: requests at once (8)")
    p.add_argument("--prompt", type=int, default=2048, help="return: tokens of each (2048)")
    p.add_argument("--generate", type=int, default=4000, help="flat: tokens (4000)")
    p.add_argument("--repeats", type=int, default=300, help="jitter: identical prompts (300)")
    p.add_argument("--jitter-prompt", type=int, default=512, help="jitter: tokens of the prompt (512)")
    p.add_argument("--turns", type=int, default=30, help="agent: of the session (30)")
    p.add_argument("--uncached", action=argparse.BooleanOptionalAction, default=True, help="agent: also without a cache, to compare")
    p.add_argument("--agents-turns", type=int, default=100, help="agents: turns of each session (100)")
    p.add_argument("--agents-requests", type=int, default=4000, help="agents: turns of the agents at once (4000: a day of one)")
    p.add_argument("--agents-tools", type=int, default=40, help="agents: of each (40)")
    p.add_argument("--agents-both", action=argparse.BooleanOptionalAction, default=True, help="agents: alone both without and with thinking")
    p.add_argument("--agents-rests", type=int, default=12, help="agents: how often they rest, to compare the memory (12)")
    p.add_argument("--agents-at-once", type=int, default=4, help="agents: at once (4)")
    p.add_argument("--agents-cache", default="1G", help="agents: --host-cache, room for the sessions at once (1G)")
    p.add_argument("--long-prompt", type=int, default=16384, help="fairness: tokens (16384)")
    p.add_argument("--crowd", type=int, default=100, help="tenants: per cent of 120 requests, 100 streams, 600 connections and 8 large texts (100)")
    p.add_argument("--pairs", type=int, default=40, help="trim-cost: bursts with and without (40)")
    p.add_argument("--burst-tokens", type=int, default=384, help="trim-cost: tokens of each of 8 replies (384)")
    p.add_argument("--warm-prompt", type=int, default=4096, help="warm-start: tokens (4096)")
    p.add_argument("--warm-repeats", type=int, default=3, help="warm-start: prompts, each on two fresh servers (3)")
    p.add_argument("--warm-dir", help="warm-start: where its files go for the time being (the system's temporary folder)")
    p.add_argument("--gap-shape", default="qwen3-0.6b", help="load-gap: the shape that build/mkmodel makes up and that loads (qwen3-0.6b)")
    p.add_argument("--gap-form", default="bf16", help="load-gap: its weights (bf16: 1137 MiB)")
    p.add_argument("--gap-loads", type=int, default=5, help="load-gap: how many times (5)")
    p.add_argument("--cycles", type=int, default=200, help="models: loads, uses and unloads (200)")
    p.add_argument("--looks", type=int, default=10000, help="images: requests; 0: none (10000)")
    p.add_argument("--lookers", type=int, default=8, help="images: clients at once (8)")
    p.add_argument("--video-frames", type=int, default=64, help="images: of the video that is asked about beside them (64)")
    p.add_argument("--gap-images", type=int, default=4, help="images: large ones beside a stream, each way; 0: none (4)")
    p.add_argument("--gap-edge", type=int, default=2048, help="images: pixels of their edge (2048)")
    p.add_argument("--busy-pairs", type=int, default=12, help="busy: windows with competitors (12)")
    p.add_argument("--busy-window", type=float, default=3, help="busy: seconds of each window (3)")
    p.add_argument("--gpu-shape", default="qwen3-8b", help="gpu: the shape that build/mkmodel makes up (qwen3-8b)")
    p.add_argument("--gpu-form", default="4bit", help="gpu: its weights (4bit)")
    p.add_argument("--gpu-models", help="gpu: folder that keeps it, and has it already the next time (a temporary one)")
    p.add_argument("--gpu-prompts", type=int, default=20, help="gpu: of each length (20)")
    p.add_argument("--gpu-cycles", type=int, default=100, help="gpu: loads and unloads of the model (100)")
    p.add_argument("--gpu-idle", type=float, default=30, help="gpu: seconds of rest (30)")
    p.add_argument("--others-seconds", type=float, default=30, help="others: that the other process has the memory (30)")
    p.add_argument("--others-left", type=int, default=49, help="others: MiB that it leaves (49)")
    p.add_argument("--others-tokens", type=int, default=3000, help="others: of each of 16 streams (3000)")
    p.add_argument("--draft-steps", type=int, default=10000, help="draft: steps with drafts of one generation (10000)")
    p.add_argument("--draft-tokens", type=int, default=10000, help="draft: tokens that are drawn with temperature and seed (10000)")
    p.add_argument("--draft-batch", type=int, default=512, help="draft: tokens of each of eight at once (512)")
    p.add_argument("--tabs", type=int, default=4, help="tabs: how many (4)")
    p.add_argument("--tabs-seconds", type=float, default=3600, help="tabs: for how long (3600)")
    if p.parse_args().device_memory_limit:
        p.set_defaults(**ON_A_DEVICE)
    return p.parse_args()


def main():
    options = arguments()
    unknown = [g for g in options.gates if g not in GATES + NAMED]
    if unknown:
        sys.exit(f"There is no gate {unknown[0]}; there are {', '.join(GATES + NAMED)}.")
    kept = [importlib.import_module("gate_" + g.replace("-", "_")).run(options) for g in options.gates or GATES]
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
