#!/usr/bin/env python3
"""model_bench and the benches of llama.cpp and its relatives on the same shapes, in turns: one table.

    bench/peers.py NAME=FOLDER...      FOLDER holds llama-batched-bench and llama-bench, already built
    bench/peers.py --compute int16,int8 NAME=FOLDER...      one column for each of Plateau's modes

Weights are made up: mkmodel writes a checkpoint, gguf_shape a GGUF file of the same shapes. Forms of nearly
equal size stand beside each other: 8 bits in groups of 64 and Q8_0, 4 bits and Q4_0, bf16 in both. Each round
runs all programs on a model straight after one another. Figures are medians over rounds, and the ratio is
that of Plateau's first mode to the other's. A NAME that begins with `ik` repacks weights when it loads them
(-rtr).

Decode is 1 to 16 sequences, 512 tokens deep, all rows' tokens per second; prefill is one prompt. Plateau's
keys and values are f32 unless --options says otherwise, the others' f16. AMX is in use where the program's
own log names a buffer of AMX weights."""

import argparse
import csv
import dataclasses
import io
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import gguf_shape

TOP = pathlib.Path(__file__).resolve().parents[1]
GGUF_FORMS = {"8bit": "q8_0", "4bit": "q4_0", "bf16": "bf16"}
MODELS = "qwen3-0.6b-8bit,qwen3-0.6b-4bit,qwen3-0.6b-bf16,qwen3.5-2b-8bit,qwen3.5-2b-4bit"
ROWS = [1, 2, 4, 8, 16]
DEPTH = 512
CELLS = 1024  # tokens of a row: a context that is divided among the rows must hold the prompt in each part
LIMIT_S = 1200


@dataclasses.dataclass(frozen=True)
class Model:
    """SHAPE-FORM as mkmodel has them; SHAPE:LAYERS-FORM has fewer layers."""

    shape: str
    layers: int
    form: str

    @staticmethod
    def parse(name):
        found = re.fullmatch(r"(.+?)(?::(\d+))?-(8bit|4bit|bf16)", name)
        if not found:
            raise argparse.ArgumentTypeError(f"{name}: not SHAPE-FORM with a form of {', '.join(GGUF_FORMS)}")
        return Model(found[1], int(found[2] or 0), found[3])

    def name(self):
        return f"{self.shape}{f':{self.layers}' if self.layers else ''}-{self.form}"

    def file_name(self):
        return self.name().replace(":", "-")


def checkpoint(model, options):
    folder = options.work / model.file_name()
    if not (folder / "config.json").exists():
        layers = ["--layers", str(model.layers)] if model.layers else []
        command = [options.build / "mkmodel", "--out", folder, *layers, model.shape, model.form]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def gguf(model, options):
    path = options.work / f"{model.file_name()}.gguf"
    if not path.exists():
        gguf_shape.write(path, checkpoint(model, options), GGUF_FORMS[model.form])
    return path


# ---- programs ----


def run(command, threads, cores):
    """Returns the program's output, and whether it ended well. It has as many cores as threads."""
    keep = set(sorted(cores)[:threads])
    try:
        got = subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace", timeout=LIMIT_S,
                             preexec_fn=lambda: os.sched_setaffinity(0, keep))
    except subprocess.TimeoutExpired:
        print(f"not within {LIMIT_S} s: {command[0]}", file=sys.stderr)
        return "", ""
    if got.returncode != 0:
        print(f"{command[0]} ended with {got.returncode}: {got.stderr[-300:]}", file=sys.stderr)
    return got.stdout, got.stderr


def parse_model_bench(text):
    """{what: tokens/s}, and the share of reading for rows, of the multiply-adds' peak for prefill."""
    figures, shares = {}, {}
    for found in re.finditer(r"^ +(\d+) +[\d.]+ +([\d.]+) +(?:[\d.]+|-) +(?:(\d+)%|-)", text, re.MULTILINE):
        figures[f"{found[1]} rows"] = float(found[2])
        if found[3]:
            shares[f"{found[1]} rows"] = float(found[3])
    for found in re.finditer(r"prefill of (\d+) tokens: [\d.]+ s, ([\d.]+) tokens/s.*?(?:, (\d+)%|$)", text, re.MULTILINE):
        figures[f"prefill {found[1]}"] = float(found[2])
        if found[3]:
            shares[f"prefill {found[1]}"] = float(found[3])
    return figures, shares


def parse_batched_bench(text):
    """Its table begins with prompt, generated tokens and sequences; column 8 is the rate of decoding."""
    figures = {}
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if len(cells) >= 8 and cells[0] == str(DEPTH) and cells[2].isdigit():
            figures[f"{cells[2]} rows"] = float(cells[7])
    return figures


def parse_llama_bench(text):
    rows = csv.DictReader(io.StringIO(text[text.find("build_commit") :]))
    return {f"prefill {r['n_prompt']}": float(r["avg_ts"]) for r in rows if r.get("n_prompt", "0") != "0"}


def plateau(model, threads, mode, options):
    """Figures and shares; model_bench always decodes all of ROWS."""
    program, folder = options.build / "bench/run/model_bench", checkpoint(model, options)
    modes = ["--compute", mode, *options.options]
    out = run([program, "--decode", "--prefill", "--prompt", DEPTH, *modes, folder], threads, options.cores)[0]
    for tokens in options.prefill:
        if tokens != DEPTH:
            out += run([program, "--prefill", "--prompt", tokens, *modes, folder], threads, options.cores)[0]
    wanted = {f"{n} rows" for n in options.rows} | {f"prefill {n}" for n in options.prefill}
    return [{what: figure for what, figure in part.items() if what in wanted} for part in parse_model_bench(out)]


def peer(name, folder, model, threads, options):
    """Figures, and whether its log names AMX. Some of these programs print their table to standard error."""
    path, t = gguf(model, options), str(threads)
    again = name.startswith("ik")
    # A shared prompt is refused for positions in several sections: each sequence then reads its own.
    shared = [] if model.shape.startswith("qwen3.5") else ["-pps"]
    out, log = run([folder / "llama-batched-bench", "-m", path, "-c", max(options.rows) * CELLS, "-b", 2048, "-ub", 512, "-npp", DEPTH, "-ntg", 16,
                    "-npl", ",".join(map(str, options.rows)), *shared, "-t", t, "-tb", t, *(["-rtr"] if again else [])], threads, options.cores)
    figures = parse_batched_bench(out + log)
    prompts = ",".join(map(str, options.prefill))
    more = run([folder / "llama-bench", "-m", path, "-t", t, "-p", prompts, "-n", 0, "-r", 2, "-o", "csv", "-v",
                *(["-rtr", 1] if again else [])], threads, options.cores)
    return figures | parse_llama_bench(more[0]), has_amx(log + more[1])


def has_amx(text):
    return re.search(r"\bAMX\b.*buffer size", text) is not None


# ---- the table ----


def medians(samples):
    """{what: median} of a list of {what: figure}; a figure that a round lacks is left out."""
    keys = dict.fromkeys(k for s in samples for k in s)
    return {k: statistics.median(s[k] for s in samples if k in s) for k in keys}


def table(model, threads, ours, shares, others):
    """`ours` and `shares` are by Plateau's modes, `others` by the names of the programs."""
    modes, first = list(ours), next(iter(ours.values()))
    lines = [
        f"### {model}, {threads} threads",
        "",
        "| |" + "".join(f" plateau, {m} | of the machine |" for m in modes) + "".join(f" {n} | ratio |" for n in others),
        "|---|" + "---|---|" * (len(modes) + len(others)),
    ]
    for what in first:
        line = f"| {what} |"
        for m in modes:
            share = f"{shares[m][what]:.0f} %" if what in shares[m] else "-"
            line += f" {ours[m][what]:.1f} | {share} |" if what in ours[m] else " - | - |"
        for figures in others.values():
            theirs = figures.get(what)
            line += f" {theirs:.1f} | {first[what] / theirs:.2f} |" if theirs else " - | - |"
        lines.append(line)
    return "\n".join(lines)


def measure(model, threads, options):
    ours, shares = {m: [] for m in options.compute}, {m: [] for m in options.compute}
    others, amx = {n: [] for n in options.peers}, set()
    for _ in range(options.rounds):
        for mode in options.compute:
            figures, parts = plateau(model, threads, mode, options)
            ours[mode].append(figures)
            shares[mode].append(parts)
        for name, folder in options.peers.items():
            figures, used = peer(name, folder, model, threads, options)
            others[name].append(figures)
            amx |= {name} if used else set()
    by_name = lambda samples: {name: medians(s) for name, s in samples.items()}
    return by_name(ours), by_name(shares), by_name(others), sorted(amx)


def peer_folder(text):
    name, _, folder = text.partition("=")
    path = pathlib.Path(folder)
    for program in ("llama-batched-bench", "llama-bench"):
        if not folder or not os.access(path / program, os.X_OK):
            raise argparse.ArgumentTypeError(f"{text}: NAME=FOLDER, where FOLDER has {program}")
    return name, path


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = os.sched_getaffinity(0)
    numbers = lambda s: [int(n) for n in s.split(",")]
    p.add_argument("peers", nargs="+", type=peer_folder, metavar="NAME=FOLDER")
    p.add_argument("--models", type=lambda s: [Model.parse(m) for m in s.split(",")], default=MODELS, help=f"({MODELS})")
    p.add_argument("--threads", type=numbers, default=[len(cores)], help="one table for each (all cores)")
    p.add_argument("--rows", type=numbers, default=ROWS, help="sequences that decode together (1,2,4,8,16)")
    p.add_argument("--prefill", type=numbers, default=[512, 2048], help="tokens of the prompts (512,2048)")
    p.add_argument("--compute", type=lambda s: s.split(","), default=["auto"], help="modes of Plateau, each measured (auto)")
    p.add_argument("--options", type=str.split, default=[], help="more options of model_bench, in one argument")
    p.add_argument("--rounds", type=int, default=3, help="of everything (3)")
    p.add_argument("--build", type=pathlib.Path, default=TOP / "build", help="Plateau's build folder (build)")
    p.add_argument("--work", type=pathlib.Path, help="where made-up models are kept (BUILD/bench-models)")
    p.add_argument("--json", type=pathlib.Path, help="a file that gets the figures")
    options = p.parse_args()
    if max(options.threads) > len(cores):
        p.error(f"--threads: there are {len(cores)} cores")
    if unknown := set(options.rows) - set(ROWS):
        p.error(f"--rows: {min(unknown)} is none of {', '.join(map(str, ROWS))}")
    options.peers, options.cores = dict(options.peers), cores
    options.work = options.work or options.build / "bench-models"
    options.work.mkdir(parents=True, exist_ok=True)
    return options


def main():
    options, figures = arguments(), []
    for model in options.models:
        for threads in options.threads:
            ours, shares, others, amx = measure(model, threads, options)
            print(table(model.name(), threads, ours, shares, others), flush=True)
            print(f"\nAMX in use, by its own log: {', '.join(amx) or 'none'}\n", flush=True)
            figures.append({"model": model.name(), "threads": threads, "plateau": ours, "shares": shares, "others": others, "amx": amx})
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
