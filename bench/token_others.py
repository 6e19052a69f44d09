#!/usr/bin/env python3
"""bench/token_others.py PROGRAM MODEL FILE [BYTES]: token_bench (PROGRAM) and the package `tokenizers`
tokenize the same text, in turns. Prints both times of each round, and their ratio. Fails where they make
different numbers of tokens."""
import os
import re
import statistics
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402

program, model, path, *rest = sys.argv[1:]
data = open(path, "rb").read()[:int(rest[0]) if rest else None]
while data and data[-1] & 0x80:
    data = data[:-1]
reference, text = tokenizers.Tokenizer.from_file(f"{model}/tokenizer.json"), data.decode()
ratios = []
for _ in range(5):
    out = subprocess.run([program, model, path, *rest], capture_output=True, text=True, check=True).stdout
    count, ours = int(re.search(r"(\d+) tokens", out)[1]), float(re.search(r"([\d.]+) ms", out)[1])
    runs = []
    for _ in range(9):
        began = time.perf_counter()
        ids = reference.encode(text, add_special_tokens=False).ids
        runs.append((time.perf_counter() - began) * 1000)
    assert len(ids) == count, (len(ids), count)
    theirs = statistics.median(runs)
    ratios.append(theirs / ours)
    print(f"{len(data)} bytes, {count} tokens: token_bench {ours:.2f} ms, "
          f"tokenizers {tokenizers.__version__} {theirs:.2f} ms, {ratios[-1]:.1f} times")
print(f"median {statistics.median(ratios):.1f} times")
