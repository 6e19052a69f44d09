"""plateau status, load, unload, clear, trim: what they say, and their exit status."""

import json
import os
import re
import subprocess
import tempfile

import pytest

from conftest import ADMIN_KEY, PROGRAM, Server, serving, until
from test_admin import write_keys
from test_listeners import Keyless, socket_of


def run(*words, env=None, stdout=subprocess.PIPE):
    got = subprocess.run([PROGRAM, *map(str, words)], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120,
                         env={**os.environ, **(env or {})})
    return got.returncode, got.stdout, got.stderr


@pytest.fixture
def alone():
    """A place in which no server's socket lies."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield {"PLATEAU_RUNTIME_DIR": folder}


@pytest.fixture(scope="module")
def told():
    with serving("--host-cache", "64M") as s:
        s.at = ["--socket", socket_of(s)]
        yield s


@pytest.mark.smoke
def test_status_shows_models_requests_and_memory(told):
    code, out, err = run("status", *told.at)
    assert (code, err) == (0, "")
    assert re.search(r"^server +\S+\.sock, up ", out, re.M) and re.search(r"^memory .* used, .* reserved of ", out, re.M)
    assert re.search(r"^canary +ready +[\d.]+ MiB", out, re.M) and "REQUEST" not in out
    with told.begin(stream=False):
        until(lambda: told.requests("decoding"))
        out = run("status", *told.at)[1]
        [request] = told.requests()
        assert re.search(rf"^{request['id']} +- +127\.0\.0\.1:\d+ +canary +decoding", out, re.M), out
    assert json.loads(run("status", "--json", *told.at)[1])["models"][0]["id"] == "canary"


@pytest.mark.smoke
def test_a_model_is_unloaded_and_loaded(told):
    code, out, _ = run("unload", "canary", *told.at)
    assert code == 0 and re.fullmatch(r"canary is unloaded: [\d.]+ MiB returned\n", out)
    assert re.search("^canary +unloaded", run("status", *told.at)[1], re.M)
    assert run("load", "canary", *told.at) == (0, "canary is loaded\n", "")
    with told.begin() as running:
        running.event()
        code, out, _ = run("unload", "canary", "--json", *told.at)
        assert code == 0 and json.loads(out)
        running.leave()
    told.wait_idle()
    assert run("load", "canary", *told.at)[0] == 0


@pytest.mark.smoke
def test_caches_are_cleared_and_memory_is_returned(told):
    told.complete("a b c d e f g " * 40, max_tokens=2)
    told.wait_idle()
    code, out, _ = run("clear", *told.at)
    assert code == 0 and re.fullmatch(r"prefix cache in memory: [\d.]+ [KMG]?i?B returned\n", out)
    assert told.status()["caches"]["host"]["bytes"] == 0
    assert run("trim", *told.at)[1].startswith("free memory: ")
    assert json.loads(run("trim", "--json", *told.at)[1])["failed"] == []
    assert run("clear", "ssd", *told.at)[0] == 0


@pytest.mark.smoke
@pytest.mark.parametrize("words, status, said", [
    (["load", "nobody"], 1, 'The model "nobody" does not exist'), (["load", "x y%"], 1, "does not exist"),
    (["load"], 2, "name a model"), (["unload"], 2, "name a model"), (["clear", "all"], 2, "memory or ssd"),
    (["trim", "x"], 2, "one argument too many"), (["status", "--port", "1"], 2, "--port is an option of serve"),
    (["status", "--url", "http://127.0.0.1:1"], 2, "two servers")])
def test_what_cannot_be_done_is_said(told, words, status, said):
    code, out, err = run(*words, *told.at)
    assert (code, out) == (status, "") and said in err and err.startswith("plateau: ")


@pytest.mark.smoke
def test_without_a_server(alone):
    code, _, err = run("status", env=alone)
    assert code == 1 and "no server runs here" in err
    assert run("status", "--socket", alone["PLATEAU_RUNTIME_DIR"] + "/none", env=alone)[2].startswith("plateau: no server answers at")
    assert run("status", "--url", "http://127.0.0.1:1", env=alone)[0] == 1


@pytest.mark.smoke
def test_a_runtime_directory_that_is_named_is_the_only_one(told, alone):
    other = {"RUNTIME_DIRECTORY": str(socket_of(told).parent)}
    for named in (alone, {"PLATEAU_RUNTIME_DIR": "relative"}):
        code, _, err = run("status", env={**other, **named})
        assert code == 1 and "no server runs here" in err


def test_the_only_server_is_found_and_with_two_they_are_named(alone):
    before = dict(os.environ)
    os.environ.update(alone)
    try:
        with serving(kind=Keyless) as one:
            assert run("trim")[0] == 0
            two = Server()
            code, _, err = run("trim")
            assert code == 1 and "2 servers run here" in err
            assert str(socket_of(one)) in err and str(socket_of(two)) in err
            assert run("trim", "--socket", socket_of(two))[0] == 0
            two.process.kill()  # its files belong to no process now
            two.wait()
            assert run("trim")[0] == 0
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.mark.smoke
def test_another_machines_server_is_asked_with_its_key(told, tmp_path):
    keys = write_keys(tmp_path / "keys", f"# mine\nroot {ADMIN_KEY}\n")
    for more, env in [(["--admin-key", ADMIN_KEY], {}), (["--admin-key-file", keys], {}), ([], {"PLATEAU_ADMIN_KEY": ADMIN_KEY})]:
        assert run("trim", "--url", told.url + "/", *more, env=env)[0] == 0
    code, _, err = run("trim", "--url", told.url)
    assert code == 1 and "admin key" in err
    code, _, err = run("trim", "--url", told.url, "--admin-key", "wrong")
    assert code == 1 and "status 401" in err and "wrong" not in err
    assert run("trim", "--url", told.url, "--admin-key", "two words")[0] == 2
    assert run("trim", "--url", "file:///etc/passwd")[0] == 1


@pytest.mark.smoke
def test_a_full_disk_is_said(told):
    with open("/dev/full", "w") as full:
        code, _, err = run("status", *told.at, stdout=full)
    assert code == 1 and "standard output" in err


@pytest.mark.smoke
@pytest.mark.parametrize("command", ["status", "load", "unload", "clear", "trim"])
def test_each_has_a_help(command):
    code, out, _ = run(command, "--help")
    assert code == 0 and f"Usage: plateau {command}" in out and "--socket" in out and "--url" in out
