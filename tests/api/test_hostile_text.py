"""Generated texts: tokens decode to the text, a stream equals the whole reply, and long texts keep no chat
waiting."""

import json
import statistics
import threading
import time
import unicodedata

import httpx
import pytest

from conftest import events
from hostile import SANITIZED, answered, draws, post, unharmed

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<|vision_start|>", "<|image_pad|>"]
# Texts that tokenizers and templates may get wrong.
UNITS = ["a", "A", " ", "  ", "\n", "\r\n", "\t", "\0", "\x7f", "\u0085", "\u00a0", "\u2028", "\u3000", "\ufeff", "\ufffe", "\uffff", "\U0010ffff", "\u0301", "\u0323\u0301", "e\u0301",
         "\u00e9", "\uac00", "\u1100\u1161\u11a8", "\u0958", "\ufb01", "\u00df", "\u0130", "\u01c5", "\u202e", "\u200b", "\u200d", "\U0001f468\u200d\U0001f469", "\U0001f642",
         "\u4e2d", "\u0e33", "\u0915\u094d", "7", "007", "\u0661", "\u2167", "\u00bd", "'s", "'S", "\u2019re", "<", "|", "<|", "|>", "{{", "}}", "{%", "%}", "{#", "\\", "\"", "'",
         "'''", "[INST]", "<<SYS>>", "</s>", "\ud7ff", "\ue000", "\U000e0041", "_", "-", "...", "://", "@"]


def text_of(rng, count=30):
    runs = [rng.choice(UNITS) * rng.choice([1, 1, 1, 2, 3, 40]) for _ in range(rng.randint(1, count))]
    return "".join(runs)


def with_specials(rng):
    pieces = [text_of(rng, 5) if rng.random() < 0.5 else rng.choice(SPECIAL) for _ in range(rng.randint(1, 8))]
    cut = rng.choice(pieces)
    return "".join(pieces) + cut[:rng.randrange(len(cut) + 1)]


@pytest.mark.smoke
@pytest.mark.hostile
def test_there_and_back(server):
    """Detokenized, the ids of a text are the text in NFC; and so are the ids of any part of it that has
    whole characters."""
    with unharmed(server):
        for _, rng in draws("back", 250):
            text = text_of(rng)
            body = {"prompt": text, "add_special_tokens": False}
            ids = answered(post(server, "/tokenize", body), 200)[1]["tokens"]
            assert len(ids) > 0
            back = answered(post(server, "/detokenize", {"tokens": ids}), 200)[1]["prompt"]
            assert back == unicodedata.normalize("NFC", text), (text, back)


@pytest.mark.hostile
def test_ids_that_are_no_text(server):
    limit = 1 << 33
    with unharmed(server):
        for _, rng in draws("ids", 80):
            top = rng.choice([300, 8000, 8192, 9000, limit])
            ids = [rng.randrange(top) for _ in range(rng.randint(0, 60))]
            for path, body in [("/detokenize", {"tokens": ids}), ("/v1/completions", {"prompt": ids, "max_tokens": 1, "echo": False})]:
                status, body, _ = answered(post(server, path, body))
                if status == 200:
                    json.dumps(body).encode()
                elif ids:
                    assert max(ids) >= 2000, (ids, body)


@pytest.mark.hostile
def test_texts_and_special_tokens_in_a_chat(server):
    """The rendered text has the same tokens as the chat, and a stream equals the whole reply."""
    with unharmed(server):
        for _, rng in draws("chat", 16):
            role = rng.choice(["user", "system", "assistant"])
            messages = [{"role": role, "content": with_specials(rng)}, {"role": "user", "content": text_of(rng, 8)}]
            rendered = answered(post(server, "/apply-template", {"messages": messages}))
            counted = answered(post(server, "/tokenize", {"messages": messages}))
            fields = {"messages": messages, "max_tokens": 8, "temperature": 0, "return_token_ids": True, "ignore_eos": rng.random() < 0.5}
            if rng.random() < 0.5:
                fields["stop"] = rng.sample(["e", " ", "\n", "the", "\U0001f642"], 2)
            print(messages)
            whole = answered(post(server, "/v1/chat/completions", fields))
            if 400 in (rendered[0], counted[0], whole[0]):
                assert rendered[0] == counted[0] == whole[0], (rendered, counted, whole)
                continue
            again = post(server, "/tokenize", {"prompt": rendered[1]["prompt"], "add_special_tokens": False})
            assert again[1]["tokens"] == counted[1]["tokens"]
            choice = whole[1]["choices"][0]
            assert whole[1]["usage"]["prompt_tokens"] == counted[1]["count"]
            assert not any(s in (choice["message"]["content"] or "") for s in fields.get("stop", []))
            streamed = events(answered(post(server, "/v1/chat/completions", {**fields, "stream": True}), 200)[1].decode())
            assert streamed[-1] == "[DONE]"
            deltas = [c for e in streamed[:-1] for c in e["choices"]]
            assert "".join(c["delta"].get("content") or "" for c in deltas) == (choice["message"]["content"] or "")
            assert [i for c in deltas for i in c.get("token_ids") or []] == choice["token_ids"]


@pytest.mark.hostile
@pytest.mark.skipif(SANITIZED, reason="says how long requests wait")
def test_long_texts_of_any_kind_keep_no_chat_waiting(server):
    """Four megabytes of one unit, of several, or of random characters, from several clients at once."""
    statuses, waits, over = set(), [], threading.Event()

    def long_text(rng):
        unit = text_of(rng, rng.choice([1, 1, 3, 30])) if rng.random() < 0.8 else "".join(map(chr, (rng.randrange(32, 0xd800) for _ in range(20000))))
        return unit * ((4 << 20) // len(unit.encode()) + 1)

    def ask_again_and_again(texts):
        with httpx.Client(base_url=server.url, timeout=120) as c:
            for path, text in texts:
                if not over.is_set():
                    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 1} if "chat" in path else {"prompt": text, "max_tokens": 1}
                    statuses.add(c.post(path, json=body).status_code)

    with unharmed(server):
        server.chat(max_tokens=1)
        jobs = [[(rng.choice(["/tokenize", "/v1/completions", "/v1/chat/completions"]), long_text(rng)) for _ in range(3)] for _, rng in draws("long", 5)]
        others = [threading.Thread(target=ask_again_and_again, args=(texts,)) for texts in jobs]
        for t in others:
            t.start()
        try:
            while any(t.is_alive() for t in others) and len(waits) < 40:
                began = time.monotonic()
                assert server.chat(max_tokens=1).status_code == 200
                waits.append(time.monotonic() - began)
                time.sleep(0.05)
        finally:
            over.set()
            for t in others:
                t.join()
        assert statuses <= {200, 400, 413, 429}, statuses
        assert statistics.median(waits) < 1.5, waits
