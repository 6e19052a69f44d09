#!/usr/bin/env python3
"""Prompts through HTTP: time to first token, prefill rate and gaps between tokens, beside model_bench's
prefill in the same run.

    bench/http_bench.py MODEL                          build/plateau serves MODEL; 1, 4 and 16 clients
    bench/http_bench.py MODEL --server 'NAME=COMMAND'  one more server; may be repeated
    bench/http_bench.py FILE.gguf --vocab 49152        a model that is one file

Each client streams one completion. The prompts are fresh random token ids, so that no server can reuse any;
decoding is greedy. All clients of a count begin at once, except that one client sends --repeats requests one
after another. Each round measures model_bench's prefill, then each server from its start to its end; figures
are medians over rounds, gaps are pooled. Memory is that of a server's process after its last burst: its own
pages, and those of files that it has mapped.

A COMMAND is started without a shell. It answers /health with 200 when it is ready and takes POST
/v1/completions with a prompt of token ids. It may contain {port}, {threads}, {clients} (the most at once),
{context} (tokens of one request) and {contexts} (tokens of all requests at once). MODEL and the default
server need --program and --model-bench, which are taken from build/."""

import argparse
import asyncio
import dataclasses
import http.client
import json
import os
import pathlib
import random
import re
import shlex
import socket
import statistics
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "bench/gates"))

from stats import quantile

PLATEAU = "{program} serve {model} --port {port} --threads {threads} --max-num-seqs {clients} --spec off --log-level warn"
READY_S = 300


# ---- one stream ----


def request(port, body):
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


class Stream(asyncio.Protocol):
    """Records bytes and times; nothing is parsed while servers are measured."""

    def __init__(self):
        self.parts = []
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data):
        self.parts.append((time.monotonic(), data))

    def connection_lost(self, _):
        self.over.set_result(None)


def token_times(parts):
    """When each token came: [(time, bytes)] of a reply to times. A token is an event with text or token ids
    in its choice."""
    times, rest = [], b""
    for at, data in parts:
        *events, rest = (rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            times += [at] * event_tokens(event)
    return times


def event_tokens(event):
    found = re.search(rb"^data: (\{.*)$", event, re.MULTILINE)
    if not found:
        return 0
    data = json.loads(found[1])
    if "error" in data:
        raise RuntimeError(f"a stream failed: {data['error']}")
    choice = (data.get("choices") or [{}])[0]
    return len(choice["token_ids"]) if choice.get("token_ids") else int(bool(choice.get("text")))


# ---- one burst ----


@dataclasses.dataclass
class Burst:
    """Times of each client's tokens, in seconds from the common start."""

    prompt: int
    streams: list

    def firsts(self):
        return [s[0] for s in self.streams]

    def gaps(self):
        return [b - a for s in self.streams for a, b in zip(s, s[1:])]

    def prefill_rate(self):
        """Prompt tokens per second until the last client has its first token."""
        return self.prompt * len(self.streams) / max(self.firsts())

    def output_rate(self):
        return sum(map(len, self.streams)) / max(s[-1] for s in self.streams)


async def burst(port, bodies):
    """Sends each body on its own connection, all at once. Returns each reply's parts and their times."""
    loop = asyncio.get_running_loop()
    streams = [(await loop.create_connection(Stream, "127.0.0.1", port))[1] for _ in bodies]
    texts = [request(port, b) for b in bodies]
    began = time.monotonic()
    for stream, text in zip(streams, texts):
        stream.transport.write(text)
    await asyncio.gather(*(s.over for s in streams))
    return [[(at - began, data) for at, data in s.parts] for s in streams]


def run_burst(port, options, rng, clients, prompt=None, answer=None):
    prompt, answer = prompt or options.prompt, answer or options.answer
    bodies = [
        json.dumps(
            {
                "prompt": [rng.randrange(options.vocab // 50, options.vocab - 300) for _ in range(prompt)],
                "max_tokens": answer,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "return_token_ids": True,
            }
        ).encode()
        for _ in range(clients)
    ]
    replies = asyncio.run(burst(port, bodies))
    streams = [token_times(parts) for parts in replies]
    for times, parts in zip(streams, replies):
        if len(times) < answer:
            end = b"".join(d for _, d in parts)[-400:]
            raise RuntimeError(f"{len(times)} tokens came where {answer} were asked for: {end!r}")
    return Burst(prompt, streams)


# ---- servers ----


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A started server, for a `with` block."""

    def __init__(self, command, options):
        self.port = free_port()
        context = options.prompt + options.answer + 32
        values = {
            "program": options.program,
            "model": options.model,
            "port": self.port,
            "threads": options.threads,
            "clients": max(options.clients),
            "context": context,
            "contexts": context * max(options.clients),
        }
        self.command = [part.format(**values) for part in shlex.split(command)]
        self.log = open(options.log, "ab") if options.log else subprocess.DEVNULL

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        end = time.monotonic() + READY_S
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise RuntimeError(f"the server did not get ready: {shlex.join(self.command)}")
            time.sleep(0.1)
        return self

    def _ready(self):
        ask = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            ask.request("GET", "/health")
            return ask.getresponse().status == 200
        except OSError:
            return False
        finally:
            ask.close()

    def memory(self):
        """(own, of files) in MiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        kib = dict(re.findall(r"^(Rss\w+|VmSwap):\s+(\d+) kB", status, re.MULTILINE))
        own = sum(int(kib[name]) for name in ("RssAnon", "RssShmem", "VmSwap"))
        return own / 1024, int(kib["RssFile"]) / 1024

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def measure(command, options, rng):
    """{clients: [Burst]} of a fresh server that has answered two requests before, and its memory."""
    with Server(command, options) as server:
        for _ in range(2):
            run_burst(server.port, options, rng, 1, answer=8)
        bursts = {
            clients: [run_burst(server.port, options, rng, clients) for _ in range(options.repeats if clients == 1 else 1)]
            for clients in options.clients
        }
        return bursts, server.memory()


def bench_rate(options):
    """model_bench's prefill of 512 tokens, in tokens/s."""
    out = subprocess.run([options.model_bench, "--prefill", options.model], capture_output=True, text=True, check=True).stdout
    return parse_bench(out)


def parse_bench(text):
    found = re.search(r"prefill of \d+ tokens: [\d.]+ s, ([\d.]+) tokens/s", text)
    if not found:
        raise RuntimeError(f"model_bench measured no prefill: {text}")
    return float(found[1])


# ---- the table ----


def row(name, clients, bursts, rate):
    """One line's figures: of several bursts the medians, of their gaps the quantiles."""
    middle = lambda values: statistics.median(list(values))
    gaps = [g * 1000 for b in bursts for g in b.gaps()] or [0.0]
    prefill = middle(b.prefill_rate() for b in bursts)
    return {
        "server": name,
        "clients": clients,
        "first_median_ms": middle(middle(b.firsts()) for b in bursts) * 1000,
        "first_last_ms": middle(max(b.firsts()) for b in bursts) * 1000,
        "prefill_tokens_s": prefill,
        "of_bench": prefill / rate,
        "gap_median_ms": quantile(gaps, 0.5),
        "gap_p99_ms": quantile(gaps, 0.99),
        "gap_longest_ms": max(gaps),
        "output_tokens_s": middle(b.output_rate() for b in bursts),
    }


HEAD = (
    "| clients | server | first token, ms: median | last | prefill, tokens/s | of model_bench "
    "| gap, ms: median | p99 | longest | tokens/s out |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def line(r):
    return (
        f"| {r['clients']} | {r['server']} | {r['first_median_ms']:.0f} | {r['first_last_ms']:.0f} | {r['prefill_tokens_s']:.0f} | {100 * r['of_bench']:.0f} % "
        f"| {r['gap_median_ms']:.1f} | {r['gap_p99_ms']:.1f} | {r['gap_longest_ms']:.1f} | {r['output_tokens_s']:.1f} |"
    )


def memory_line(name, samples):
    own, files = (statistics.median(s[i] for s in samples) for i in (0, 1))
    return f"memory of {name}: {own:.0f} MiB of its own, {files:.0f} MiB of files"


def table(seen, memory, rates, options):
    rate = statistics.median(rates)
    spread = f" ({min(rates):.0f} to {max(rates):.0f})" if len(rates) > 1 else ""
    rows = [row(name, clients, by[clients], rate) for clients in options.clients for name, by in seen.items()]
    print(f"prefill of model_bench: {rate:.0f} tokens/s{spread}; {options.threads} threads, prompts of {options.prompt} tokens, answers of {options.answer}")
    print(HEAD)
    for r in rows:
        print(line(r))
    print()
    for name, samples in memory.items():
        print(memory_line(name, samples))
    return {"bench_tokens_s": rates, "rows": rows, "memory_mib": memory}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", metavar="MODEL", help="the model's directory or GGUF file")
    p.add_argument("--server", action="append", default=[], metavar="NAME=COMMAND", help="one more server")
    p.add_argument("--program", default=str(TOP / "build/plateau"), help="the server that is measured (build/plateau)")
    p.add_argument("--model-bench", default=str(TOP / "build/bench/run/model_bench"), help="where prefill alone is measured (build/bench/run/model_bench)")
    p.add_argument("--clients", type=lambda s: [int(n) for n in s.split(",")], default=[1, 4, 16], help="at once (1,4,16)")
    p.add_argument("--prompt", type=int, default=512, help="tokens of each (512)")
    p.add_argument("--answer", type=int, default=48, help="tokens of each (48)")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each server (one per core)")
    p.add_argument("--vocab", type=int, help="tokens that prompts are drawn from (MODEL's vocabulary)")
    p.add_argument("--repeats", type=int, default=5, help="requests of one client, one after another (5)")
    p.add_argument("--rounds", type=int, default=3, help="of everything (3)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--log", help="a file that gets what the servers print")
    p.add_argument("--json", help="a file that gets the figures")
    options = p.parse_args()
    if not options.vocab:
        path = pathlib.Path(options.model) / "config.json"
        if not path.is_file():
            p.error("--vocab is needed for a MODEL without config.json")
        config = json.loads(path.read_text())
        options.vocab = (config.get("text_config") or config)["vocab_size"]
    return options


def main():
    options = arguments()
    servers = {"plateau": PLATEAU, **dict(s.split("=", 1) for s in options.server)}
    seen = {name: {clients: [] for clients in options.clients} for name in servers}
    memory = {name: [] for name in servers}
    rng, rates = random.Random(options.seed), []
    for _ in range(options.rounds):
        rates.append(bench_rate(options))
        for name, command in servers.items():
            by_clients, used = measure(command, options, rng)
            memory[name].append(used)
            for clients, bursts in by_clients.items():
                seen[name][clients] += bursts
                print(line(row(name, clients, bursts, rates[-1])), file=sys.stderr, flush=True)
    figures = table(seen, memory, rates, options)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
