"""warm-start: a prompt computed by a server that has nothing, and answered by the next process from the SSD
tier. Is reading five times faster?"""

import json
import pathlib
import random
import statistics
import tempfile
import time

from common import Report, Server


def ask(server, prompt):
    """Seconds to a short answer, its tokens, and how many of the prompt were found."""
    began = time.monotonic()
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    status, answer = server.post("/v1/completions", body)
    if status != 200:
        raise SystemExit(f"The prompt was refused: {status} {answer}")
    return time.monotonic() - began, answer["choices"][0]["token_ids"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def wait_written(server, files):
    end = time.monotonic() + 120
    while True:
        n = server.get("/api/status")["caches"]["ssd"]
        if n["writes"] >= files and n["queued_writes"] == 0 and n["staging_used_bytes"] == 0:
            return n
        if time.monotonic() > end:
            raise SystemExit(f"It was not written within 120 s: {json.dumps(n)}")
        time.sleep(0.05)


def run(options):
    report = Report("warm-start", options)
    rng = random.Random(options.seed)
    computed, read, wrong, found = [], [], 0, []
    with tempfile.TemporaryDirectory(dir=options.warm_dir) as folder:
        ssd = ("--ssd-dir", str(pathlib.Path(folder) / "ssd"))
        for _ in range(options.warm_repeats):
            with Server(options, *ssd) as cold:
                prompt = cold.ids(rng, options.warm_prompt)
                seconds, said, _ = ask(cold, prompt)
                computed.append(seconds)
                written = wait_written(cold, (options.warm_prompt - 1) // 32)
            with Server(options, *ssd) as warm:
                seconds, again, cached = ask(warm, prompt)
                read.append(seconds)
                found.append(cached)
                wrong += said != again
    ratio = statistics.median(computed) / statistics.median(read)
    report.figure("computed_s", computed, f"median {statistics.median(computed):.3f} of {len(computed)}, {options.warm_prompt} tokens")
    report.figure("read_s", read, f"median {statistics.median(read):.3f}, {min(found)} tokens of each from disk")
    report.figure("written_bytes", written["written_bytes"], f"{written['written_bytes'] / 2**20:.1f} MiB in {written['writes']} files for one prompt")
    report.figure("ratio", ratio, f"{ratio:.1f}")
    report.must("an answer from disk is at least 5 times faster than computed", ratio >= 5)
    report.must("the same tokens", wrong == 0)
    report.must("all whole pages were found", min(found) == (options.warm_prompt - 1) // 32 * 32)

    def draw(axes):
        axes.bar(["computed", "read after a restart"], [statistics.median(computed), statistics.median(read)])
        axes.set(ylabel="seconds to 4 tokens", title=f"{report.name}: {options.warm_prompt} tokens, {ratio:.1f} times faster")

    report.plot(draw)
    return report.done()
