"""Sessions on SSD: what stays on disk until a deadline, what is refused, and what ends them."""

import pytest

from conftest import serving, until
from test_ssd import serving_from, ssd
from test_leases import CHAT, LONG, SESSIONS, cache, cached_of, clear, post, press

SSD = {"tier": "ssd", "ttl": "30m"}


def body_of(text):
    """A prompt whose last whole page ends before the template's words for the answer."""
    return {"messages": [{"role": "user", "content": text + LONG + "So be it. " * 4}]}


def found(server, body):
    """Tokens that the next turn of the conversation finds."""
    turns = body["messages"] + [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And now?"}]
    return cached_of(post(server, CHAT, messages=turns, max_tokens=1))


def seen(server, session):
    reply = server.http.get(f"{SESSIONS}/{session['id']}")
    assert reply.status_code == 200, reply.text
    return reply.json()


def wait_stored(server, session):
    """Until the SSD tier has all of it, and memory none of it for the session."""
    until(lambda: (s := seen(server, session))["stored_bytes"] == s["bytes"] > 0)
    until(lambda: cache(server)["session_bytes"] == 0)
    return seen(server, session)


def clear_ssd(server):
    reply = server.http.post("/api/ssd-cache/clear")
    assert reply.status_code == 200, reply.text
    return reply.json()


def end(server, session):
    assert server.http.delete(f"{SESSIONS}/{session['id']}").json()["deleted"] is True


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """A prefix cache for a few prompts, and a disk for some more."""
    with serving_from(tmp_path_factory.mktemp("ssd"), "--host-cache", "12M", "--ssd-limit", "64M") as s:
        yield s
        assert ssd(s)["sessions"] == ssd(s)["session_bytes"] == 0


def test_a_session_on_ssd_is_found_again_until_it_ends(disk):
    body = body_of("On disk. ")
    made = post(disk, SESSIONS, **body, **SSD, follow=False).json()
    assert made["tier"] == "ssd" and made["tokens"] > 100 and made["bytes"] > 0
    assert wait_stored(disk, made)["tokens"] == made["tokens"]
    assert ssd(disk)["sessions"] == 1 and ssd(disk)["session_bytes"] >= made["bytes"]
    for i in range(20):
        press(disk)
        clear(disk)
        if clear_ssd(disk)["entries_kept"] > 0 and ssd(disk)["evictions"] + i > 1:
            break
    assert found(disk, body) >= made["tokens"]
    end(disk, made)
    until(lambda: ssd(disk)["session_bytes"] == 0)
    clear(disk)
    assert "entries_kept" not in clear_ssd(disk)
    assert found(disk, body) == 0


def test_it_moves_with_the_end_of_its_chain(disk):
    made = post(disk, SESSIONS, **body_of("It moves. "), **SSD).json()
    wait_stored(disk, made)
    clear(disk)
    turns = body_of("It moves. ")["messages"] + [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": LONG}]
    reply = post(disk, CHAT, messages=turns, max_tokens=2)
    assert cached_of(reply) >= made["tokens"]
    until(lambda: seen(disk, made)["tokens"] > made["tokens"] + 100)
    now = wait_stored(disk, made)
    assert now["bytes"] > made["bytes"]
    clear(disk)
    clear_ssd(disk)
    assert found(disk, {"messages": turns}) > made["tokens"] + 100
    now = wait_stored(disk, made)
    # A request that names it promises its bytes first.
    longer = turns + [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": LONG * 2}]
    post(disk, CHAT, messages=longer, max_tokens=2, session=made["id"])
    until(lambda: seen(disk, made)["tokens"] > now["tokens"] + 100)
    wait_stored(disk, made)
    end(disk, made)


def test_what_memory_refuses_fits_on_ssd(disk):
    body = body_of(LONG * 12)
    refused = disk.http.post(SESSIONS, json={"model": "canary", **body})
    assert refused.status_code == 507 and 'It fits on SSD: "tier": "ssd".' in refused.text.replace('\\"', '"')
    made = post(disk, SESSIONS, **body, **SSD).json()
    wait_stored(disk, made)
    press(disk)
    clear(disk)
    assert found(disk, body) >= made["tokens"]
    end(disk, made)


def test_an_unload_says_what_it_breaks(disk):
    made = post(disk, SESSIONS, **body_of("Unloaded. "), **SSD).json()
    wait_stored(disk, made)
    path = "/v1/models/canary/unload"
    refused = disk.http.post(path)
    assert refused.status_code == 409 and "holds 1 session" in refused.text
    gone = disk.http.post(path, json={"force": True}).json()
    assert gone["sessions_ended"] == 1 and gone["session_tokens"] == made["tokens"]
    assert gone["session_bytes"] >= made["bytes"]
    assert ssd(disk)["sessions"] == ssd(disk)["session_bytes"] == 0
    assert disk.http.post("/v1/models/canary/load").status_code == 200
    assert disk.http.get(f"{SESSIONS}/{made['id']}").status_code == 404
    # Its files are as any others.
    assert found(disk, body_of("Unloaded. ")) >= made["tokens"]


def test_a_restart_ends_it_and_leaves_its_files(tmp_path):
    with serving_from(tmp_path, "--host-cache", "12M") as s:
        made = post(s, SESSIONS, **body_of("Again. "), **SSD).json()
        wait_stored(s, made)
    with serving_from(tmp_path, "--host-cache", "12M") as s:
        assert s.http.get(f"{SESSIONS}/{made['id']}").status_code == 404
        assert found(s, body_of("Again. ")) >= made["tokens"]


@pytest.mark.parametrize("limit", ["4M", None])
def test_what_does_not_fit_on_ssd_is_507_in_words(tmp_path, limit):
    arguments = ("--ssd-dir", tmp_path, "--ssd-limit", limit) if limit else ()
    with serving("--host-cache", "64M", *arguments) as s:
        reply = s.http.post(SESSIONS, json={"model": "canary", **body_of(LONG), **SSD})
        assert reply.status_code == 507, reply.text
        message = reply.json()["error"]["message"]
        assert ("half of --ssd-limit" in message and 'It fits in memory: "tier": "memory".' in message) if limit else "--ssd-dir" in message
        made = post(s, SESSIONS, **body_of(LONG), tier="memory").json()
        assert made["tier"] == "memory"
        end(s, made)
        assert s.http.post(SESSIONS, json={"model": "canary", **body_of(""), "tier": "tape"}).status_code == 400
