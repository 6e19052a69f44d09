"""Damage to the files of a model, for the tests of the hostile suite."""

import json
import shutil
import struct

from hostile import answered, post


def copy_of(where, source, *own):
    """Links to the files of a model, except for files of its own."""
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    for f in source.iterdir():
        if f.name in own:
            shutil.copy(f, where / f.name)
        elif f.name != "golden.json":
            (where / f.name).symlink_to(f.resolve())
    return where


def load(server, name):
    """Whether it could be loaded; otherwise the error has a reason."""
    reply = server.http.post(f"/v1/models/{name}/load", timeout=120)
    if reply.status_code != 200:
        error = reply.json()["error"]
        assert reply.status_code in (404, 409, 503, 507) and len(error["message"]) > 20, reply.text
        assert "\n" not in error["message"] and "\0" not in error["message"], error
    return reply.status_code == 200


def unload(server, name):
    assert server.http.post(f"/v1/models/{name}/unload").status_code in (200, 202)


def complete(server, name):
    """A model whose files are damaged answers, or refuses with a reason."""
    fields = {"model": name, "prompt": [1, 2, 3], "max_tokens": 2, "temperature": 0}
    answered(post(server, "/v1/completions", fields, weights_damaged=True), 200, 400, 413, 500, 503)


def damaged(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(data) + 1)
        piece = rng.choice([b"", b"\0", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"[" * 2000, b"}", b'"', b"9" * 30, b"-1", b"null", b"1e999", b"\\ud800", b",", b"\xff"])
        data[at:at + rng.choice([0, 1, 8, len(piece)])] = piece
    return bytes(data[:rng.randrange(len(data) + 1)]) if rng.random() < 0.2 else bytes(data)


def changed_json(rng, text):
    """A value somewhere in it is another."""
    root = json.loads(text)
    at, key = root, None
    while isinstance(at, (dict, list)) and len(at) > 0 and (key is None or rng.random() < 0.8):
        parent, key = at, rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
        at = parent[key]
    parent[key] = rng.choice([None, True, 0, -1, 1, 2**31, 2**63 - 1, -2**63, 1e308, 0.5, "", "x", "\0", "x" * 5000, [], [[]], {}, {"a": {}}, [1] * 3000, [None], at, [at], {"a": at},
                              at * 2 if isinstance(at, (int, str)) and not isinstance(at, bool) else at])
    if isinstance(parent, dict) and rng.random() < 0.2:
        del parent[key]
    return json.dumps(root).encode()


def changed_weights(rng, data):
    count = struct.unpack("<Q", data[:8])[0]
    head, body = data[8:8 + count], data[8 + count:]
    kind = rng.randrange(6)
    if kind == 0:
        return data[:int(len(data) * rng.random() ** 2)]
    if kind == 1:
        return struct.pack("<Q", rng.choice([0, 1, count - 1, count + 1, len(data), 2**31, 2**63, 2**64 - 1])) + data[8:]
    if kind == 2:
        head = damaged(rng, head)
    if kind == 3:
        body = body[:rng.randrange(len(body))] + rng.randbytes(rng.choice([0, 100]))
    if kind >= 4:
        tensors = json.loads(head)
        name, other = rng.choice([n for n in tensors if n != "__metadata__"]), rng.choice([n for n in tensors if n != "__metadata__"])
        t = tensors[name]
        begin, end = t["data_offsets"]
        rng.choice([
            lambda: t.update(shape=rng.choice([[], [0], [2**32, 2**32], [-1], t["shape"][::-1], t["shape"] * 3, [1] * 40, [1.5], "x", None])),
            lambda: t.update(dtype=rng.choice(["F64", "I8", "BF16", "F32", "BOOL", "U32", "", 7, None])),
            lambda: t.update(data_offsets=rng.choice([[begin, end + 2], [end, begin], [begin, 2**63], [-2, end], [begin + 1, end + 1], tensors[other]["data_offsets"], [0], None])),
            lambda: tensors.update({other: t}), lambda: tensors.pop(name), lambda: tensors.update({"x" * 5000: t}), lambda: tensors.update(__metadata__=[1])])()
        head = json.dumps(tensors).encode()
    return struct.pack("<Q", len(head)) + head + body
