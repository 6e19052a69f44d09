"""others: another process takes nearly all of a GPU's memory for a while. Running requests wait and get the
tokens that they always get, new ones are served or refused in words, and afterwards all is as before."""

import collections
import concurrent.futures
import http.client
import json
import pathlib
import subprocess
import sys
import time

from common import Report, Server, accounts, mib
from domains import RECORDED
from driver import APART, Driver, seconds_until

STREAMS, PROMPT, EACH_S = 16, 500, 0.5


def ask(port, body):
    """Status, header and text of a completion, on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=400)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read().decode()
    finally:
        connection.close()


def tokens(port, i, count):
    """The tokens of the i-th stream; a text: why it failed."""
    status, _, text = ask(port, {"prompt": [100 + i] * PROMPT, "max_tokens": count, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "stream": True})
    events = [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data: {")]
    errors = [e["error"]["message"] for e in events if "error" in e]
    if status != 200 or errors:
        return errors[0] if errors else f"{status} {text}"
    return [t for e in events for c in e["choices"] for t in c.get("token_ids") or []]


def all_tokens(server, pool, options):
    return [pool.submit(tokens, server.port, i, options.others_tokens) for i in range(STREAMS)]


def new_requests(server, seconds):
    """Answers to requests that come one after the other, and those that are neither tokens nor a 503 in
    words."""
    found, wrong, end = collections.Counter(), [], time.monotonic() + seconds
    while time.monotonic() < end:
        status, headers, text = ask(server.port, {"prompt": [7] * 200, "max_tokens": 4})
        found[status] += 1
        in_words = status == 503 and headers.get("retry-after") and "Other programs hold" in text
        wrong += [] if status == 200 or in_words else [f"{status} {text}"]
        time.sleep(EACH_S)
    return found, wrong


def held(server):
    """Bytes that each account holds at rest without cached prefixes. Steps are recorded as they come."""
    server.wait_idle()
    server.clear_cache()
    time.sleep(1)
    return {path: a["reserved_bytes"] for path, a in accounts(server.get("/api/memory")).items() if a["name"] != "recorded steps"}


def used_without_records(server, driver):
    """Bytes that the driver has in use, less those of recorded steps, as the account has them."""
    found = accounts(server.get("/api/memory"))
    return driver.used() - sum(a["reserved_bytes"] for path, a in found.items() if path.startswith("cuda:") and path.endswith(RECORDED))


def taken(report, options, server, pool, want):
    """Streams while the other process has the memory; new requests beside them."""
    running = all_tokens(server, pool, options)
    time.sleep(1)
    other = subprocess.Popen([sys.executable, str(pathlib.Path(__file__).with_name("taking.py")), options.device.partition(":")[2], str(options.others_left)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        report.figure("taken", other.stdout.readline().decode().strip())
        waiting = sum(not r.done() for r in running)
        found, wrong = new_requests(server, options.others_seconds)
    finally:
        other.stdin.close()
        other.wait(60)
    got = [r.result() for r in running]
    bad = [g if isinstance(g, str) else "other tokens" for g, w in zip(got, want) if g != w]
    report.figure("new_requests", dict(found), ", ".join(f"{n} of {status}" for status, n in sorted(found.items())))
    report.must(f"{waiting} of {STREAMS} streams ran when the memory was taken, and all ended as in calm {bad[:2] or ''}", waiting > 0 and not bad)
    report.must(f"new requests are served, or get 503 with Retry-After and the driver's figures {wrong[:2] or ''}", not wrong)


def run(options):
    if not (options.device or "").startswith("cuda:"):
        raise SystemExit("others: give it --device cuda:N.")
    report, driver = Report("others", options), Driver(options.device)
    length = PROMPT + options.others_tokens + 64
    with Server(options, f"--max-num-seqs={STREAMS}", f"--max-model-len={length}", "--max-image-pixels=0", "--spec=off") as server:
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            want = [r.result() for r in all_tokens(server, pool, options)]
            if any(isinstance(w, str) for w in want):
                raise SystemExit(f"A stream failed in calm: {want}")
            before, used = held(server), used_without_records(server, driver)
            taken(report, options, server, pool, want)
            again = [r.result() for r in all_tokens(server, pool, options)]
        report.must("the same tokens after it", again == want)
        differ = {path: n for path, n in held(server).items() if before.get(path) != n}
        report.must(f"the accounts hold what they held {differ or ''}", not differ)
        back = seconds_until(lambda: abs(used_without_records(server, driver) - used) <= APART, 10)
        report.must(f"and the driver's figure without recorded steps is that of before ({mib(used)}, now {mib(used_without_records(server, driver))})", back is not None)
    return report.done()
