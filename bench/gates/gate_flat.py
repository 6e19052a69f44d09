"""flat: one generation of thousands of tokens takes no more than the pages of those tokens."""

import random

from common import MIB, Report, Sampler, Server, mib, stream

UNIT = 2 * MIB


def run(options):
    report = Report("flat", options)
    with Server(options) as server:
        body = {"prompt": server.ids(random.Random(options.seed), 64), "max_tokens": options.generate, "ignore_eos": True}
        stream(server.port, "/v1/completions", {**body, "max_tokens": 64})
        server.wait_idle()
        server.clear_cache()
        with Sampler(server, 0.05) as sampler:
            timed = stream(server.port, "/v1/completions", body)
    # The first page and the states of the row are there after a few steps.
    rows = [row for row in sampler.rows if row["pools"] > 0][2:]
    if len(rows) < 2:
        raise SystemExit(f"flat: {timed.tokens} tokens were over before memory was looked at often enough; ask for more (--generate)")
    grown = max(row["own"] for row in rows) - rows[0]["own"]
    pages = max(row["pools"] for row in rows) - rows[0]["pools"]
    beside = [row["own"] - row["pools"] for row in rows]
    report.figure("tokens", timed.tokens, f"{timed.tokens} in {timed.ended:.1f} s")
    report.figure("own_bytes_grown", grown, f"{mib(grown)} of own memory, {mib(pages)} of it units for pages")
    report.figure("beside_pages", max(beside) - min(beside), f"{mib(max(beside) - min(beside))} between least and most own memory beside pages")
    report.must("no more than the pages of its tokens, and 1 MiB", grown <= pages + MIB)
    report.must("own memory beside pages is flat within 1 MiB and the unit that is being committed", max(beside) - min(beside) <= MIB + UNIT)

    def draw(axes):
        axes.plot(sampler.column("s"), [b / MIB for b in sampler.column("own")], lw=0.9, label="own memory")
        axes.plot(sampler.column("s"), [b / MIB for b in sampler.column("pools")], lw=0.9, label="pages and states")
        axes.set(xlabel="seconds", ylabel="MiB", ylim=(0, None), title=f"{report.name}: {timed.tokens} tokens in one generation")
        axes.legend(frameon=False)

    report.plot(draw)
    return report.done()
