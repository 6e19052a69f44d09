"""Generated files of models: damaged, replaced by a non-file, or with templates and patterns without an end.
A load ends with a message, other models are served, and afterwards the ledger is as before."""

import contextlib
import json
import os
import threading
import time

import pytest

from conftest import MODEL, TOP, Server, ends_well, refused
from hostile import answered, draws, post, unharmed
from hostile_files import changed_json, changed_weights, complete, copy_of, damaged, load, unload

SMALL = TOP / "tests/golden/data/qwen3"
WITH_TEXT = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json", "preprocessor_config.json"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A server that finds `ids`, which has no tokenizer, and `text`, whose files are changed, beside the
    bundled model that it serves."""
    top = tmp_path_factory.mktemp("hostile-models")
    for name, source in [("ids", SMALL), ("text", MODEL)]:
        copy_of(top / name, source)
    s = Server("--model-dir", top, "--load-timeout", 30, "--alias", "fields=ids")
    s.top = top
    with ends_well(s):
        for name in ("ids", "text"):
            assert s.http.post(f"/v1/models/{name}/load").status_code == 200
            assert s.http.post(f"/v1/models/{name}/unload").status_code == 200
        yield s


@contextlib.contextmanager
def others_served(server):
    """Common to all tests of this kind: the bundled model answers as before, and the other leaves nothing."""
    threads = len(os.listdir(f"/proc/{server.process.pid}/task"))
    with unharmed(server, model=MODEL.name):
        yield
    end = time.monotonic() + 20
    while len(os.listdir(f"/proc/{server.process.pid}/task")) > threads:
        assert time.monotonic() < end, "threads are left"
        time.sleep(0.1)


# ---- bytes ----


@pytest.mark.smoke
@pytest.mark.hostile
def test_damaged_weights_and_configurations(models):
    loaded = 0
    with others_served(models):
        for _, rng in draws("weights", 60):
            name = rng.choice(["model.safetensors", "model.safetensors", "config.json", "config.json", "generation_config.json"])
            file = copy_of(models.top / "ids", SMALL, name) / name
            data = file.read_bytes()
            if name == "model.safetensors":
                data = changed_weights(rng, data)
            else:
                data = changed_json(rng, data) if rng.random() < 0.8 else damaged(rng, data)
            file.write_bytes(data)
            if not load(models, "ids"):
                continue
            loaded += 1
            complete(models, "ids")
            unload(models, "ids")
    assert loaded > 0


@pytest.mark.hostile
def test_damaged_tokenizers_and_the_like(models):
    with others_served(models):
        for _, rng in draws("tokenizers", 8):
            name = rng.choice(WITH_TEXT)
            file = copy_of(models.top / "text", MODEL, name) / name
            data = file.read_bytes()
            file.write_bytes(changed_json(rng, data) if name.endswith(".json") and rng.random() < 0.7 else damaged(rng, data))
            if not load(models, "text"):
                continue
            for path, fields in [("/tokenize", {"prompt": "What does mkdir do? <|im_end|> \u00e9"}), ("/apply-template", {"messages": [{"role": "user", "content": "a"}]}),
                                 ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2})]:
                answered(post(models, path, {"model": "text", **fields}), 200, 400, 413)
            unload(models, "text")


# ---- templates ----


def expression(rng, depth=0):
    if depth > 4 or rng.random() < 0.3:
        return rng.choice(["messages", "m", "x", "'a'", "1", "0", "-1", "2147483647", "9223372036854775807", "1e308", "none", "true", "tools", "undefined_name", "[]", "{}", "messages[0]",
                           "messages[0].content", "messages[-5]", "loop", "loop.index", "range(10)", "'%s'", "'\\n' * 3", "namespace()", "raise_exception('x')", "strftime_now('%Y')"])
    a, b = expression(rng, depth + 1), expression(rng, depth + 1)
    return rng.choice([f"({a} + {b})", f"({a} ~ {b})", f"({a} * {b})", f"({a} in {b})", f"({a} == {b})", f"({a} ** {b})", f"({a} // {b})", f"({a} % {b})", f"{a}|{rng.choice(FILTERS)}",
                       f"[{a}, {b}]", f"{{'a': {a}, 'b': {b}}}", f"({a} if {b} else {a})", f"({a})[{b}]", f"({a})[{b}:{a}:{b}]", f"range({a})", f"({a} is {rng.choice(TESTS)})",
                       f"({a}).{rng.choice(METHODS)}", f"not {a}", f"({a} and {b})"])


FILTERS = ["tojson", "length", "join(',')", "upper", "trim", "list", "string", "int", "float", "reverse", "sort", "first", "last", "unique", "map('upper')", "selectattr('a')", "replace('a', 'aa' * 9)",
           "indent(99999)", "default('x')", "items", "dictsort", "batch(3)", "safe", "no_such_filter", "tojson(indent=4000)"]
TESTS = ["defined", "none", "string", "mapping", "sequence", "number", "iterable", "no_such_test"]
METHODS = ["split('')", "split('a')", "strip()", "items()", "keys()", "append(1)", "startswith('a')", "replace('a', x)", "join(messages)", "content", "__class__", "upper()", "format(1)", "no_such()"]


def template(rng, depth=0):
    pieces = []
    for _ in range(rng.randint(1, 3)):
        e = expression(rng)
        inner = template(rng, depth + 1) if depth < 4 else "{{ x }}"
        pieces.append(rng.choice([
            lambda: "{{ %s }}" % e, lambda: "{%% for m in %s %%}%s{%% endfor %%}" % (rng.choice([e, "range(100000)", "range(1000)", "messages", "'abc' * 9999"]), inner),
            lambda: "{%% if %s %%}%s{%% endif %%}" % (e, inner), lambda: "{%% set x = %s %%}" % rng.choice([e, "x ~ x", "'a' * 100000", "[x, x]", "'ab' ~ x"]),
            lambda: "{%% macro f(m) %%}%s{{ f(m) }}{%% endmacro %%}{{ f(%s) }}" % (inner, e), lambda: "{%% set ns = namespace(x='a') %%}{%% for i in range(60) %%}{%% set ns.x = ns.x ~ ns.x %%}%s{%% endfor %%}" % inner,
            lambda: "{% generation %}" + inner + "{% endgeneration %}", lambda: "{#" + inner, lambda: "{%- raw -%}" + inner + "{%- endraw -%}", lambda: "text " * rng.choice([1, 1000])])())
    return "".join(pieces)


@pytest.mark.hostile
def test_templates_without_an_end(models):
    """Each is refused, or renders, within its share of steps and of memory; the model goes as others do."""
    with others_served(models):
        for _, rng in draws("templates", 14):
            file = copy_of(models.top / "text", MODEL, "chat_template.jinja") / "chat_template.jinja"
            text = template(rng)
            file.write_text(text if rng.random() < 0.9 else damaged(rng, text.encode()).decode("latin-1"))
            print(text[:600])
            if not load(models, "text"):
                continue
            for messages in ([{"role": "user", "content": "a"}], [{"role": "user", "content": "x" * 3000}] * 30):
                began = time.monotonic()
                answered(post(models, "/apply-template", {"model": "text", "messages": messages}), 200, 400, 413)
                assert time.monotonic() - began < 60
            unload(models, "text")


# ---- non-files ----


def replaced(rng, file):
    """Replaces it by a non-file; work that precedes the removal of `file` happens at once."""
    aside = file.with_name("aside")
    kind = rng.randrange(9)
    if kind == 0:
        os.mkfifo(aside)
    elif kind == 1:
        aside.symlink_to(rng.choice(["/dev/zero", "/dev/full", "/dev/null", "/proc/self/mem", "/dev/tty", "."]))
    elif kind == 2:
        aside.symlink_to("aside")
    elif kind == 3:
        aside.symlink_to("nowhere")
    elif kind == 4:
        aside.write_bytes(b"")
    elif kind == 5:
        aside.write_bytes(rng.randbytes(1000))
    elif kind == 6:
        with open(aside, "wb") as f:
            f.truncate(1 << 40)
    if kind < 7:
        os.replace(aside, file)
    else:
        with contextlib.suppress(FileNotFoundError):
            file.unlink()
    if kind == 7:
        file.mkdir()


@pytest.mark.hostile
def test_what_is_no_file_or_stops_to_be_one_while_it_is_read(models):
    """Replaced before or at some moment of a load, which takes some tenths of a second."""
    names = [f.name for f in MODEL.iterdir() if f.suffix in (".json", ".safetensors", ".jinja")]
    whole = 0
    with others_served(models):
        for _, rng in draws("replaced", 10):
            name = rng.choice(names)
            file = copy_of(models.top / "text", MODEL, name) / name
            change = threading.Timer(rng.choice([0, rng.random() * 0.6]), replaced, (rng, file))
            change.start()
            if rng.random() < 0.5:
                change.join()
            # A request for it waits for the same load.
            waiting = threading.Thread(target=lambda: post(models, "/v1/completions", {"model": "text", "prompt": [1], "max_tokens": 1}))
            waiting.start()
            loaded = load(models, "text")
            waiting.join()
            change.join()
            whole += loaded
            assert models.complete([1, 2], model=MODEL.name, max_tokens=1).status_code == 200
            if loaded or any(m["id"] == "text" and m["state"] == "ready" for m in models.http.get("/v1/models").json()["data"]):
                unload(models, "text")
    print(whole, "were loaded")


@pytest.mark.hostile
@pytest.mark.parametrize("walk", ["ns.a == ns.b", "ns.a in [ns.b]", "[ns.a, ns.b]|sort", "ns.a|tojson", "ns.a", "{ns.a: 1}"])
@pytest.mark.parametrize("around", ["[ns.%s]", "(ns.%s,)", "{'k': ns.%s}"])
def test_a_template_that_nests_values_without_an_end(models, around, walk):
    with others_served(models):
        file = copy_of(models.top / "text", MODEL, "chat_template.jinja") / "chat_template.jinja"
        file.write_text("{% set ns = namespace(a=0, b=0) %}{% for i in range(50000) %}{% set ns.a = " + around % "a" + " %}{% set ns.b = " + around % "b" + " %}{% endfor %}{{ " + walk + " }}")
        assert load(models, "text")
        reply = models.http.post("/v1/chat/completions", json={"model": "text", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2})
        refused(reply, 400, "template_limit", "nests values deeper than 256")
        unload(models, "text")


# ---- patterns ----

PATTERNS = [r"\w*\w*\w*\w*\w*\w*!|\s+", "[a-z]?" * 30 + r"!|\s+", r"\w{1,50}\w{1,50}\w{1,50}\w{1,50}!|\s+", r"(?=\w*\w*\w*\w*!)\w+|\s+", r"(?:\w*|\d*)(?:\w*|\d*)(?:\w*|\d*)(?:\w*|\d*)!|\s+",
            "(?:a|[ab])" * 30 + r"!|\s+"]


@pytest.mark.hostile
@pytest.mark.parametrize("where", ["pre_tokenizer", "normalizer"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_tokenizer_whose_pattern_goes_back_and_forth(models, where, pattern):
    """The pattern is named; what it can read it reads."""
    with others_served(models):
        folder = copy_of(models.top / "text", MODEL, "tokenizer.json")
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        if where == "normalizer":
            tokenizer["normalizer"] = {"type": "Replace", "pattern": {"Regex": pattern}, "content": "x"}
        else:
            bytes_of = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
            tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, bytes_of]}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        assert load(models, "text")
        for path in ("/v1/completions", "/tokenize"):
            reply = models.http.post(path, json={"model": "text", "prompt": "a" * 2000 + " b"})
            refused(reply, 400, "tokenizer_limit", f'The tokenizer of the model "text" cannot take this prompt: the pattern "{pattern[:200]}')
            assert models.http.post(path, json={"model": "text", "prompt": "a b! " * 20}).status_code == 200
        unload(models, "text")
