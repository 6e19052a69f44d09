"""The SSD tier: entries survive a restart; a damaged, full, missing or killed one costs hits only.

PLATEAU_LONG=1 damages a thousand files and kills twenty times."""

import contextlib
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import threading
import time

import pytest

from conftest import FEW_PAGES, GOLDEN, MODEL, PROGRAM, TOP, Server, case_fields, ends_well, until

PAGE = 32
LONG = os.environ.get("PLATEAU_LONG")


@contextlib.contextmanager
def serving_from(directory, *options, kind=Server, **more):
    s = kind("--ssd-dir", str(directory), *options, **more)
    with ends_well(s):
        yield s


def ssd(server):
    return server.status()["caches"]["ssd"]


def prompt_of(number, count=200):
    draw = random.Random(number)
    return [draw.randrange(300, 4000) for _ in range(count)]


def answer(server, prompt, **fields):
    """Tokens of the answer, and how many of the prompt were found."""
    reply = server.complete(prompt, max_tokens=6, temperature=0, ignore_eos=True, return_token_ids=True, **fields)
    assert reply.status_code == 200, reply.text
    body = reply.json()
    return body["choices"][0]["token_ids"], body["usage"]["prompt_tokens_details"]["cached_tokens"]


def wait_written(server, files):
    """Waits until the files that idle engines hand in are on disk."""

    def all_written():
        """the files are written"""
        s = server.status()
        n = s["caches"]["ssd"]
        left = [m["cache"]["unstored"] for m in s["models"] if m["state"] == "ready"]
        return n["writes"] >= files and not any(left) and n["queued_writes"] == 0 and n["staging_used_bytes"] == 0

    until(all_written, every=0.05)


def usage(directory):
    """Returns du's figure."""
    total = directory.stat().st_blocks * 512
    for root, folders, files in os.walk(directory):
        for name in folders + files:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(root, name)).st_blocks * 512
    return total


def entries(directory):
    return sorted(p for p in directory.glob("?/?/*") if len(p.name) == 65)


def cache(*arguments):
    got = subprocess.run([PROGRAM, "cache", *map(str, arguments), "--json"], capture_output=True, text=True)
    return got.returncode, json.loads(got.stdout) if got.stdout else got.stderr


@pytest.mark.smoke
def test_a_restart_finds_what_was_written_and_says_the_same(tmp_path):
    directory = tmp_path / "ssd"
    prompt = prompt_of(1, 1000)
    whole = 999 // PAGE * PAGE
    with serving_from(directory) as s:
        said, found = answer(s, prompt)
        assert found == 0
        wait_written(s, whole // PAGE + 1)
        # Gone from memory, it comes from disk.
        assert s.http.post("/api/hot-cache/clear").json()["failed"] == []
        reply = s.complete(prompt, max_tokens=6, temperature=0, ignore_eos=True, include_timings=True, return_token_ids=True).json()
        assert reply["choices"][0]["token_ids"] == said
        assert reply["usage"]["timings"]["cached_tokens"] == {"device": 0, "host": 0, "pinned": 0, "ssd": whole}
        assert s.metrics()['plateau_cache_hit_tokens_total{model_name="canary",tier="ssd"}'] == whole
    with serving_from(directory) as s:
        assert ssd(s)["pages"] >= whole // PAGE
        assert answer(s, prompt) == (said, whole)
        assert answer(s, prompt) == (said, whole)
        n = ssd(s)
        assert (n["state"], n["hit_tokens"], n["reads"]) == ("on", whole, whole // PAGE + 1)
        metrics = s.metrics()
        assert metrics['plateau_cache_hits_total{model_name="canary",tier="ssd"}'] == 1
        assert metrics["plateau_ssd_off"] == 0
        assert metrics["plateau_ssd_bytes"] == usage(directory)
        assert [a for a in s.memory()["accounts"][0]["children"] if a["name"] == "ssd staging"]


def test_the_reference_answers_come_from_disk_too(tmp_path):
    for _ in range(2):
        with serving_from(tmp_path) as s:
            for case in GOLDEN["cases"][:12]:
                reply = s.post("/v1/chat/completions", **case_fields(case))
                assert reply.json()["choices"][0]["token_ids"] == case["greedy_ids"]


def test_nobody_finds_what_another_key_wrote(tmp_path):
    prompt = prompt_of(2)
    keys = ("--api-key", "one", "--api-key", "two", "--admin-key", "all")
    as_of = lambda key: {"headers": {"Authorization": f"Bearer {key}"}}
    ask = lambda s, key: s.http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1}, **as_of(key))
    cached = lambda reply: reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    with serving_from(tmp_path, *keys, key="all") as s:
        assert cached(ask(s, "one")) == 0
        wait_written(s, 6)
    with serving_from(tmp_path, *keys[2:], *keys[:2], key="all") as s:
        assert cached(ask(s, "two")) == 0
        assert cached(ask(s, "one")) == 192


def test_a_key_that_floods_the_tier_evicts_no_prefix_of_another(tmp_path):
    """Not with its files, and not with a restart before."""
    keys = ("--api-key", "one", "--api-key", "two", "--admin-key", "all", "--ssd-limit", "16M", "--host-cache", "2M")

    def ask(s, key, number):
        body = {"prompt": prompt_of(number, 400), "max_tokens": 1}
        reply = s.http.post("/v1/completions", json=body, headers={"Authorization": f"Bearer {key}"})
        assert reply.status_code == 200, reply.text
        return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    def flood(s, first):
        evicted = ssd(s)["evictions"]
        for number in range(first, first + 12):
            ask(s, "two", number)
            until(lambda: ssd(s)["queued_writes"] == 0)
        assert ssd(s)["evictions"] > evicted

    with serving_from(tmp_path, *keys, key="all") as s:
        assert ask(s, "one", 1) == 0
        wait_written(s, 13)
        flood(s, 1000)
        assert ask(s, "one", 1) == 384
    with serving_from(tmp_path, *keys, key="all") as s:
        assert ask(s, "one", 1) == 384
        flood(s, 2000)
        assert ask(s, "one", 1) == 384
        assert ssd(s)["hit_tokens"] == 2 * 384


def damage(path, draw):
    size = path.stat().st_size
    at = draw.randrange(size)
    with open(path, "r+b") as f:
        kind = draw.randrange(4)
        if kind == 0:
            f.truncate(at)
        elif kind == 1:
            f.truncate(size + 1 + at)
        else:
            f.seek(at)
            old = f.read(1)[0]
            f.seek(at)
            f.write(bytes([old ^ (1 + draw.randrange(255))]))


def test_damaged_files_are_misses_and_change_no_token(tmp_path):
    prompts = [prompt_of(10 + i, 330) for i in range(120 if LONG else 6)]
    draw = random.Random(3)
    with serving_from(tmp_path) as s:
        said = [answer(s, p)[0] for p in prompts]
        wait_written(s, len(prompts) * 10)
    files = entries(tmp_path)
    harmed = draw.sample(files, 1000 if LONG else 40)
    for path in harmed:
        damage(path, draw)
    status, report = cache("verify", tmp_path)
    assert (status, report["inconsistent"]) == (1, len(harmed))
    with serving_from(tmp_path) as s:
        for p, tokens in zip(prompts, said):
            assert answer(s, p)[0] == tokens
        assert ssd(s)["corrupt"] > 0
    # Damaged entries that no request read are still on disk; gc removes them.
    assert cache("gc", tmp_path)[0] == 0
    assert cache("verify", tmp_path)[0] == 0


def test_du_never_exceeds_the_limit(tmp_path):
    limit = 4 << 20
    most, over = [0], []
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            # A file that goes while the others are counted, and the one it made room for, are both in the
            # sum: look again.
            now = min(usage(tmp_path) for _ in range(3))
            most[0] = max(most[0], now)
            if now > limit:
                over.append(now)
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with serving_from(tmp_path, "--ssd-limit", limit, "--ssd-staging", "4M", "--host-cache", "4M") as s:
            for i in range(40 if LONG else 12):
                answer(s, prompt_of(100 + i, 400))
            until(lambda: ssd(s)["evictions"] > 0)
    finally:
        stop.set()
        watcher.join()
    assert not over and most[0] > limit / 2
    assert cache("verify", tmp_path)[0] == 0
    # A smaller one holds from the start on.
    status, report = cache("gc", tmp_path, "--ssd-limit", "4M")
    assert status == 0 and report["failed"] == 0


@contextlib.contextmanager
def small_file_system(directory, size):
    got = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], capture_output=True)
    if got.returncode != 0:
        pytest.skip("this user mounts no tmpfs: " + got.stderr.decode().strip())
    try:
        yield
    finally:
        subprocess.run(["umount", directory], check=True)


def test_a_full_file_system_costs_hits_only(tmp_path):
    prompts = [prompt_of(200 + i, 400) for i in range(6)]
    with serving_from(tmp_path / "large") as s:
        said = [answer(s, p)[0] for p in prompts]
    small = tmp_path / "small"
    small.mkdir()
    with small_file_system(small, "2m"), serving_from(small) as s:
        (small / "others").write_bytes(bytes(1 << 20))
        assert [answer(s, p)[0] for p in prompts[:3]] == said[:3]
        until(lambda: ssd(s)["writes"] > 0)
        with contextlib.suppress(OSError):
            (small / "more").write_bytes(bytes(2 << 20))
        assert [answer(s, p)[0] for p in prompts[3:]] == said[3:]
        until(lambda: ssd(s)["drops"] > 0)
        assert [answer(s, p)[0] for p in prompts] == said
        n = ssd(s)
        assert n["state"] == "on" and n["drops"] > 0
        assert s.http.get("/health").status_code == 200
    assert usage(small) < 1 << 20


def test_killed_at_any_time_it_leaves_no_inconsistent_file(tmp_path):
    draw = random.Random(5)
    for i in range(20 if LONG else 3):
        s = Server("--ssd-dir", str(tmp_path), "--ssd-limit", "24M", "--host-cache", "4M")
        try:
            stop = threading.Event()

            def load(first, s=s, stop=stop):
                with contextlib.suppress(Exception):
                    for k in range(1000):
                        if stop.is_set():
                            return
                        answer(s, prompt_of(first + k, 300))

            clients = [threading.Thread(target=load, args=(1000 * i + 300 * c,)) for c in range(3)]
            for c in clients:
                c.start()
            if i == 0:
                until(lambda s=s: ssd(s)["writes"] > 0, 60)
            time.sleep(0.3 + draw.random() * 1.5)
        finally:
            s.process.kill()
            s.process.wait()
            stop.set()
            for c in clients:
                c.join()
            s.http.close()
            s.process.stdin.close()
        status, report = cache("verify", tmp_path)
        assert (status, report["inconsistent"]) == (0, 0), report
    assert report["entries"] > 0
    with serving_from(tmp_path) as s:
        assert ssd(s)["state"] == "on"
        assert not list((tmp_path / "tmp").glob("*"))
        answer(s, prompt_of(1))


def test_clearing_says_how_much_came_back(tmp_path):
    with serving_from(tmp_path) as s:
        answer(s, prompt_of(1, 400))
        wait_written(s, 13)
        before = usage(tmp_path)
        got = s.http.post("/api/ssd-cache/clear").json()
        assert got == {"status": "ok", "entries": got["entries"], "bytes_reclaimed": before - usage(tmp_path), "failed": []}
        assert got["entries"] >= 13 and not entries(tmp_path)
        s.http.post("/api/hot-cache/clear")
        assert answer(s, prompt_of(1, 400))[1] == 0


def test_a_directory_that_cannot_be_made_ends_the_start(tmp_path):
    (tmp_path / "file").write_text("x")
    for directory, words in (("no/such", "No such file or directory"), ("file", "Not a directory"), ("file/below", "Not a directory")):
        with pytest.raises(RuntimeError, match=f"--ssd-dir {tmp_path / directory} cannot be made: {words}"):
            with serving_from(tmp_path / directory):
                pass


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o777])
def test_a_directory_that_all_users_may_write_to_is_logged(tmp_path, mode):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    with serving_from(shared) as s:
        told = any("event=ssd_dir_exposed" in line and str(shared) in line for line in s.lines)
    assert told == (mode == 0o777)


def test_a_directory_that_cannot_be_used_leaves_the_tier_off(tmp_path):
    with serving_from(tmp_path) as s, serving_from(tmp_path) as second:
        until(lambda: ssd(second)["state"] == "off")
        assert "another process" in ssd(second)["reason"]
        assert answer(second, prompt_of(1))[1] == 0
        assert answer(second, prompt_of(1))[1] == 192
        assert second.metrics()["plateau_ssd_off"] == 1
        assert second.http.post("/api/ssd-cache/clear").json()["status"] == "partial"
        assert cache("gc", tmp_path)[0] == 1
        assert ssd(s)["state"] == "on"


def test_without_a_directory_there_is_no_tier(server):
    assert server.status()["caches"]["ssd"] is None
    got = server.http.post("/api/ssd-cache/clear").json()
    assert got == {"status": "ok", "entries": 0, "bytes_reclaimed": 0, "failed": []}


def test_another_model_finds_nothing_of_the_first(tmp_path):
    """Another config.json beside equal weights makes another model."""
    other = tmp_path / "canary"
    other.mkdir()
    for f in pathlib.Path(MODEL).iterdir():
        (other / f.name).write_bytes(f.read_bytes() + b"\n" * (f.name == "config.json"))
    with serving_from(tmp_path / "ssd") as s:
        answer(s, prompt_of(1))
        wait_written(s, 6)
    command = [PROGRAM, "cache", "ls", str(tmp_path / "ssd"), "--json"]
    assert [m.get("model") for m in json.loads(subprocess.check_output(command))["models"]] == ["canary"]
    table = subprocess.check_output(command[:-1], text=True).splitlines()
    assert table[2].split()[0] == "model" and table[3].startswith("canary  "), table
    again = subprocess.Popen([PROGRAM, "serve", str(other), "--port", "0", "--ssd-dir", str(tmp_path / "ssd")],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        url = again.stdout.readline().split()[3].decode()
        client = __import__("httpx").Client(base_url=url, timeout=60)
        until(lambda: client.get("/health").status_code == 200)
        body = {"prompt": prompt_of(1), "max_tokens": 1}
        found = client.post("/v1/completions", json=body).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert found == 0
    finally:
        again.terminate()
        again.wait(20)
    found = json.loads(subprocess.check_output(command))["models"]
    assert {m.get("model") for m in found} == {"canary", None}, "a directory that plateau models does not list"
    other_row = next(m for m in found if "model" not in m)
    assert f"\n{other_row['fingerprint'][:12]}  " in subprocess.check_output(command[:-1], text=True)


def test_a_limit_of_file_size_is_a_full_disk(tmp_path):
    with serving_from(tmp_path) as s:
        hard = resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (4096, hard))  # less than a page in any form
        said, _ = answer(s, prompt_of(8, 500))

        def told():
            """the errors are counted"""
            return ssd(s)["errors"] > 0 and s.said("File too large")

        until(told, every=0.05)
        assert ssd(s)["writes"] == 0 and entries(tmp_path) == []
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        again, _ = answer(s, prompt_of(8, 500))
        assert again == said
        answer(s, prompt_of(9, 500))
        wait_written(s, 1)


def test_a_model_unloaded_and_loaded_again_finds_what_it_wrote(tmp_path):
    prompt = prompt_of(7, 500)
    with serving_from(tmp_path) as s:
        said, _ = answer(s, prompt)
        # At once: entries not written yet are handed over when the model is unloaded.
        reply = s.http.post("/v1/models/canary/unload")
        assert reply.status_code in (200, 202), reply.text
        until(lambda: s.http.get("/api/status").json()["models"][0]["state"] == "unloaded")
        assert answer(s, prompt) == (said, 499 // PAGE * PAGE)
        n = ssd(s)
        assert n["reads"] > 0 and n["drops"] == 0


# ---- sliding windows: pages in several groups, a file for each ----


class Windowed(Server):
    """Layers with a window of 16 tokens beside full attention; contexts of 256 tokens."""

    model = "gemma2"

    def arguments(self):
        return [str(TOP / "tests/golden/data" / self.model), FEW_PAGES]


class WindowedOss(Windowed):
    model = "gpt_oss"


def windowed_prompt(number, count=200):
    return [t % 80 for t in prompt_of(number, count)]


def of_windows(directory):
    return [p for p in entries(directory) if p.name[-1] in "wxy"]


# These models compute faster than a disk reads: only the first request after a start is sure to read.


@pytest.mark.parametrize("kind, device", [(Windowed, "cpu"), (WindowedOss, "fake:0")])
def test_a_windowed_model_continues_from_disk_with_the_same_tokens(tmp_path, kind, device):
    prompt, more = windowed_prompt(1), windowed_prompt(2, 30)
    with serving_from(tmp_path, "--host-cache", "0", "--device", device, kind=kind) as s:
        said, said_more = answer(s, prompt), answer(s, prompt + more)
    assert not entries(tmp_path) and said[1] == said_more[1] == 0
    with serving_from(tmp_path, "--device", device, kind=kind) as s:
        assert answer(s, prompt) == said
        wait_written(s, 7)
    # All pages of full attention, and of the window the one before the end.
    assert (len(entries(tmp_path)), len(of_windows(tmp_path))) == (7, 1)
    for tokens, reply in ((prompt, said), (prompt + more, said_more)):
        with serving_from(tmp_path, "--device", device, kind=kind) as s:
            assert answer(s, tokens) == (reply[0], 192)
            n = ssd(s)
            assert (n["reads"], n["hit_tokens"], n["read_misses"]) == (7, 192, 0)
    # A prompt that leaves the common prefix where no window was kept finds nothing on disk.
    with serving_from(tmp_path, "--device", device, kind=kind) as s:
        assert answer(s, prompt[:100] + more)[1] == 0


def test_files_that_one_group_lacks_cost_recomputation_only(tmp_path):
    prompt = windowed_prompt(20)
    draw = random.Random(8)
    unlink, harm_byte = lambda p: p.unlink(), lambda p: damage(p, draw)
    with serving_from(tmp_path, kind=Windowed) as s:
        said, _ = answer(s, prompt)
        wait_written(s, 7)
    assert cache("verify", tmp_path)[0] == 0
    for letter, harm in (("w", unlink), ("w", harm_byte), ("p", harm_byte)):
        harm(draw.choice([p for p in entries(tmp_path) if p.name[-1] == letter]))
        with serving_from(tmp_path, kind=Windowed) as s:
            assert answer(s, prompt) == (said, 0)
            # Missing files are written anew.
            wait_written(s, 1)
        assert cache("verify", tmp_path)[0] == 0
        with serving_from(tmp_path, kind=Windowed) as s:
            assert answer(s, prompt) == (said, 192)


def test_the_limit_counts_the_files_of_all_groups(tmp_path):
    with serving_from(tmp_path, "--ssd-limit", "4M", kind=Windowed) as s:
        for i in range(60):
            answer(s, windowed_prompt(100 + i, 230))
        until(lambda: ssd(s)["evictions"] > 0 and ssd(s)["queued_writes"] == 0)
        assert usage(tmp_path) <= 4 << 20 and ssd(s)["bytes"] == usage(tmp_path)


def test_copies_share_entries_and_namespaces_do_not(tmp_path):
    copy = shutil.copytree(MODEL, tmp_path / "canary", copy_function=shutil.copy)

    class Copied(Server):
        def arguments(self):
            return [str(copy)]

    entries, prompt = tmp_path / "ssd", prompt_of(77)
    with serving_from(entries) as s:
        wanted = answer(s, prompt)[0]
        wait_written(s, 1)
    for options, found in [((), True), (("--cache-namespace", "other"), False), (("--fingerprint", "ab" * 32), False)]:
        with serving_from(entries, *options, kind=Copied) as s:
            tokens, cached = answer(s, prompt)
            assert tokens == wanted and (cached > 0) == found, options
            wait_written(s, 0 if found else 1)
    with serving_from(entries, "--fingerprint", "ab" * 32) as s:
        assert answer(s, prompt)[1] > 0
    refused = subprocess.run([PROGRAM, "serve", str(copy), "--fingerprint", "abc"], capture_output=True, text=True)
    assert refused.returncode != 0 and "64 hexadecimal digits" in refused.stderr
    two = [PROGRAM, "serve", str(copy), str(MODEL), "--fingerprint", "ab" * 32]
    refused = subprocess.run(two, capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0 and "would share entries of the SSD tier" in refused.stderr
