"""Generated bodies: every field with values of every kind, alone and together, and JSON that is too much
or none.

Each is answered: a refusal blames the client in the envelope, and the same question has the same answer
afterwards."""

import json
import re

import pytest

from conftest import TOP, serving
from hostile import answer_ids, answered, ask, draws, post, unharmed

TABLE = sorted({name for source in (TOP / "src/api").rglob("*.[ch]")
                for name in re.findall(r'\{\s*"(\w+)", (?:read|field)_', source.read_text())})
ROUTES = {
    "/v1/completions": {"prompt": [64, 271], "max_tokens": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "/v1/messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/responses": {"input": "a", "max_output_tokens": 1, "store": False},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [64]},
    "/apply-template": {"messages": [{"role": "user", "content": "a"}]},
}
# Values as they stand in the text: json.dumps() cannot write all of them.
SMALL = ["null", "true", "false", "0", "-0", "-1", "1", "2", "0.5", "-0.0", "1.0", "1e0", "1e-400", "1E+2", "9007199254740993", "2147483648", "-2147483649",
         "4294967296", "9223372036854775807", "-9223372036854775808", "0.1e-7", "3.5e38", "1.7976931348623157e308", '""', '"a"', '"0"', '"1"', '"true"', '"\\u0000"',
         '"a\\u0000b"', '"\\ud83d\\ude42"', '"\\u202e"', '"<|im_end|>"', '"../../x"', '"%s%n"', "[]", "[[]]", "[null]", "[0]", "[-1]", "[4294967296]", '[""]', '["a"]', '["a",1]',
         "[[1],[2]]", '[[1],"a"]', "{}", '{"a":null}', '{"":""}', '{"type":"text"}', '{"type":1}', '{"0":1}', '{"0":1e308}', '{"-1":1}', '{"99999999999999999999":1}']
# Not JSON, or JSON that we do not take: a number out of range, half a pair, no UTF-8, and more.
BROKEN = ["", "NaN", "-Infinity", "1e999", "-1e999", "18446744073709551616", "01", "+1", ".5", "1.", "0x1", "--1", "'a'", '"', '"a', '"\\x"', '"\\ud800"', '"\\udc00\\ud800"',
          '"\x01"', '"\xff"', '"\xed\xa0\x80"', '"\xf4\x90\x80\x80"', '"\xc0\x80"', "[", "[1", "[1,]", "[,]", "{", '{"a"', '{"a":}', '{a:1}', "{,}", "}", "]", "tru", "nul", "//", "1 2",
          '"\t"', '"\n"', "\x00", "\xef\xbb\xbf1"]
ALLOWED = (200, 400, 404, 413)  # 404: a model of that name
# With these a value may ask for as many tokens as the context has.
LENGTHS = {"max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens"}


@pytest.fixture(scope="module")
def brief():
    """A server whose answers are short, whatever their length may be: the usual one has 30720 tokens."""
    with serving("--max-model-len=256") as s:
        yield s


def large(rng):
    """A value that is much of one thing."""
    count = rng.choice([10, 300, 3000])
    return rng.choice([
        lambda: '"' + "ab" * count * 10 + '"', lambda: '"' + "\\u0041" * count + '"', lambda: "[" + ",".join(["1"] * count) + "]", lambda: "[" + ",".join(['"a"'] * count) + "]",
        lambda: "{" + ",".join(f'"{i}":{i}' for i in range(count)) + "}", lambda: "[" * count + "]" * count, lambda: '{"a":' * count + "1" + "}" * count,
        lambda: "9" * count, lambda: "0." + "3" * count, lambda: "1e" + "9" * count, lambda: "-" + "1" * count + "e-" + "1" * 5])()


def value(rng):
    draw = rng.random()
    if draw < 0.7:
        return rng.choice(SMALL)
    if draw < 0.85:
        return rng.choice(BROKEN)
    if draw < 0.93:
        return large(rng)
    inner = value(rng)
    return rng.choice([f"[{inner}]", f'{{"a":{inner}}}', f"[{inner},{inner}]", f'{{"type":{inner}}}', f'[{{"type":"text","text":{inner}}}]'])


def body_of(route, changes):
    """The route's usual fields with these as they stand, the last of a name or all of them."""
    fields = [(name, json.dumps(v)) for name, v in ROUTES[route].items() if name not in dict(changes)]
    return ("{" + ",".join(f'"{name}":{v}' for name, v in fields + changes) + "}").encode("latin-1")


def no_constant(name):
    raise ValueError(name)


def is_json(body):
    """Asks Python's reader, without the constants that JSON has not, and with a mark of the byte order."""
    try:
        json.loads(body.decode("utf-8-sig"), parse_constant=no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def try_fields(server, route, changes):
    body = body_of(route, changes)
    print(route, body[:400])
    got = answered(post(server, route, body), *ALLOWED)
    assert is_json(body) or got[0] in (400, 413), (body[:400], got)
    if route == "/v1/responses" and got[0] == 200:
        forget(server, got[1]["id"])
    return got


def forget(server, response_id):
    """Takes a response back that the server may have stored: `store` is one of the fields."""
    status, body, _ = ask(server, "DELETE", f"/v1/responses/{response_id}")
    assert status in (200, 404), body


@pytest.mark.smoke
@pytest.mark.hostile
def test_every_field_with_values_of_every_kind(server, brief):
    assert len(TABLE) > 60 and LENGTHS < set(TABLE)
    with unharmed(server), unharmed(brief):
        for number, rng in draws("each field", 2 * len(TABLE)):
            name = TABLE[number % len(TABLE)]
            for route in ROUTES if number < len(TABLE) else [rng.choice(list(ROUTES))]:
                try_fields(brief if name in LENGTHS else server, route, [(name, value(rng))])


@pytest.mark.smoke
@pytest.mark.hostile
def test_fields_together(server, brief):
    """Several fields, some of them twice, of any route."""
    with unharmed(server), unharmed(brief):
        for _, rng in draws("together", 250):
            names = [rng.choice(TABLE) for _ in range(rng.randint(2, 6))]
            if rng.random() < 0.3:
                names.append(rng.choice(["x", "", "\\u0000", "__proto__", "Model", "max_tokens ", "a" * 200, "\\ud83d\\ude42"]))
            changes = [(name, value(rng)) for name in names if name not in ("max_tokens", "max_completion_tokens", "n", "best_of", "ignore_eos", "min_tokens")]
            where = brief if LENGTHS & {name for name, _ in changes} else server
            status, body, _ = try_fields(where, rng.choice(list(ROUTES)), changes)
            if len({name for name, _ in changes}) < len(changes):
                assert status == 400, (status, body)


def shape(rng, depth=0):
    """A message, part, tool or call, with things where they do not belong."""
    kinds = ["role", "content", "type", "text", "image_url", "url", "video_url", "function", "name", "arguments", "tool_calls", "tool_call_id", "id", "reasoning_content",
             "refusal", "parameters", "description", "strict", "source", "data", "media_type", "thinking", "input", "tool_use_id", "is_error", "cache_control", "input_schema"]
    if depth > 4 or rng.random() < 0.35:
        return rng.choice([*SMALL, '"user"', '"assistant"', '"system"', '"tool"', '"developer"', '"function"', '"tool_use"', '"tool_result"', '"thinking"', '"document"', '"image"', '"base64"', '"bash_1"', '"text"', '"image_url"', '"{}"', '"{\\"a\\":1}"', '"data:,"',
                           '"file:///etc/passwd"', '"http://127.0.0.1:1/"'])
    if rng.random() < 0.3:
        return "[" + ",".join(shape(rng, depth + 1) for _ in range(rng.randrange(4))) + "]"
    names = rng.sample(kinds, rng.randint(1, 5))
    return "{" + ",".join(f'"{name}":{shape(rng, depth + 1)}' for name in names) + "}"


@pytest.mark.smoke
@pytest.mark.hostile
def test_messages_and_tools_of_every_shape(server):
    with unharmed(server):
        for _, rng in draws("shapes", 400):
            messages = [shape(rng) for _ in range(rng.randint(1, 3))]
            if rng.random() < 0.7:
                messages = [f'{{"role":{rng.choice(SMALL + ["user", "assistant", "tool", "system"])!r},"content":{m},"tool_calls":{shape(rng)}}}'.replace("'", '"')
                            if rng.random() < 0.3 else f'{{"role":"{rng.choice(["user", "assistant", "tool", "system"])}","content":{m}}}' for m in messages]
            changes = [("messages", "[" + ",".join(messages) + "]")]
            if rng.random() < 0.4:
                tool = rng.choice([shape(rng), f'{{"type":"function","function":{shape(rng)}}}', f'{{"type":"function","function":{{"name":"f","parameters":{shape(rng)}}}}}'])
                changes.append(("tools", f"[{tool}]"))
            if rng.random() < 0.2:
                changes.append(("chat_template_kwargs", shape(rng)))
            try_fields(server, rng.choice(["/v1/chat/completions", "/apply-template", "/tokenize", "/v1/messages", "/v1/messages/count_tokens"]), changes)


def item(rng):
    """An item of Responses: often one of its types, with members of any kind."""
    kinds = ["message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "local_shell_call",
             "local_shell_call_output", "item_reference", "web_search_call", "x"]
    names = ["role", "content", "id", "call_id", "name", "namespace", "arguments", "input", "output", "action", "summary", "encrypted_content", "status"]
    if rng.random() < 0.2:
        return shape(rng)
    members = [f'"{name}":{shape(rng, 2)}' for name in rng.sample(names, rng.randint(0, 6))]
    return "{" + ",".join([f'"type":"{rng.choice(kinds)}"', *members]) + "}"


@pytest.mark.smoke
@pytest.mark.hostile
def test_items_and_tools_of_responses(server):
    with unharmed(server):
        for _, rng in draws("items", 250):
            changes = [("input", "[" + ",".join(item(rng) for _ in range(rng.randint(1, 4))) + "]")]
            if rng.random() < 0.5:
                members = [f'"{name}":{shape(rng, 2)}' for name in rng.sample(["name", "parameters", "strict", "format", "tools", "description"], rng.randint(0, 4))]
                changes.append(("tools", "[{" + ",".join([f'"type":"{rng.choice(["function", "custom", "namespace", "web_search"])}"', *members]) + "}]"))
            for name in "tool_choice", "text", "reasoning", "include", "previous_response_id":
                if rng.random() < 0.15:
                    changes.append((name, shape(rng)))
            try_fields(server, "/v1/responses", changes)


@pytest.mark.smoke
@pytest.mark.hostile
def test_custom_tools_and_calls_of_chats(server):
    with unharmed(server):
        for _, rng in draws("custom", 200):
            form = rng.choice([shape(rng), '{"type":"text"}', f'{{"type":"grammar","grammar":{{"syntax":"{rng.choice(["lark", "regex", "x"])}","definition":{shape(rng, 3)}}}}}'])
            tool = rng.choice([shape(rng), f'{{"type":"custom","custom":{shape(rng)}}}', f'{{"type":"custom","custom":{{"name":"f","format":{form}}}}}'])
            call = rng.choice([shape(rng), f'{{"name":"f","input":{shape(rng, 3)}}}'])
            messages = f'[{{"role":"user","content":"a"}},{{"role":"assistant","tool_calls":[{{"id":"1","type":"custom","custom":{call}}}]}}]'
            changes = [("tools", f"[{tool}]")] + ([("messages", messages)] if rng.random() < 0.5 else [])
            if rng.random() < 0.3:
                changes.append(("tool_choice", rng.choice([shape(rng), '"required"', f'{{"type":"custom","custom":{shape(rng)}}}', '{"type":"custom","custom":{"name":"f"}}'])))
            try_fields(server, rng.choice(["/v1/chat/completions", "/apply-template", "/tokenize"]), changes)


def schema(rng, depth=0):
    """A schema whose keywords often have values of the kind that they want."""
    kinds = {"type": ['"object"', '"array"', '"string"', '"integer"', '["null","number"]'], "required": ['["a"]', '["a","b"]'], "minLength": ["0", "3"], "maxItems": ["2", "1e30"],
             "pattern": ['"^a+$"', '"(a|b)*a(a|b){9}"', '"(?=a)"'], "enum": ['[1,"a",null]', "[]"], "const": ["1", '"a"'], "minimum": ["1", "-1e300", "0.1"], "multipleOf": ["3", "1e-9"],
             "format": ['"date"', '"x"'], "$ref": ['"#"', '"#/$defs/a"', '"#/properties/a"', '"http://x/y"'], "uniqueItems": ["true"]}
    inner = ["items", "additionalProperties", "not", "if", "then", "contains", "propertyNames", "unevaluatedProperties"]
    members = []
    for name in rng.sample([*kinds, *inner, "properties", "patternProperties", "$defs", "anyOf", "oneOf", "allOf", "prefixItems"], rng.randint(0, 4)):
        if rng.random() < 0.1 or depth > 3:
            value = rng.choice(SMALL)
        elif name in kinds:
            value = rng.choice(kinds[name])
        elif name in inner:
            value = schema(rng, depth + 1)
        elif name in ("properties", "patternProperties", "$defs"):
            value = "{" + ",".join(f'"{key}":{schema(rng, depth + 1)}' for key in rng.sample("abc", rng.randint(0, 3))) + "}"
        else:
            value = "[" + ",".join(schema(rng, depth + 1) for _ in range(rng.randint(1, 3))) + "]"
        members.append(f'"{name}":{value}')
    return "{" + ",".join(members) + "}"


@pytest.mark.smoke
@pytest.mark.hostile
def test_schemas_of_every_shape(server):
    """Schemas of outputs and of strict tools, on each API; a complete output is JSON."""
    with unharmed(server):
        for _, rng in draws("schemas", 150):
            text = schema(rng)
            tool = f'"name":"f","strict":true,"parameters":{text}'
            route, changes = rng.choice([
                ("/v1/chat/completions", [("response_format", f'{{"type":"json_schema","json_schema":{{"name":"n","schema":{text}}}}}'), ("enable_thinking", "false")]),
                ("/v1/completions", [("guided_json", text)]),
                ("/v1/chat/completions", [("tools", f'[{{"type":"function","function":{{{tool}}}}}]'), ("tool_choice", '"required"')]),
                ("/v1/responses", [("tools", f'[{{"type":"function",{tool}}}]'), ("tool_choice", '"required"')]),
                ("/v1/responses", [("text", f'{{"format":{{"type":"json_schema","name":"n","schema":{text}}}}}')]),
                ("/v1/messages", [("output_config", f'{{"format":{{"type":"json_schema","schema":{text}}}}}')]),
                ("/v1/messages", [("tools", f'[{{"name":"f","strict":true,"input_schema":{text}}}]'), ("tool_choice", '{"type":"any"}')])])
            status, body, _ = try_fields(server, route, changes + ([("max_tokens", "12")] if "responses" not in route else []))
            choice = body["choices"][0] if status == 200 and "choices" in body else {}
            if choice.get("finish_reason") == "stop":
                json.loads(choice["text"] if "text" in choice else choice["message"]["content"])


@pytest.mark.hostile
def test_bodies_that_are_too_much_or_no_json(server):
    with unharmed(server):
        for _, rng in draws("too much", 16):
            count = rng.choice([1000, 100_000, 1_000_000])
            body = rng.choice([
                lambda: b"[" * count, lambda: b'{"a":' * (count // 10), lambda: b'{"prompt":' + b"[" * count + b"]" * count + b"}", lambda: rng.randbytes(count),
                lambda: b'{"prompt":"a",' + b" \r\n\t" * count + b'"max_tokens":1}', lambda: b'{"prompt":[' + b"1," * count + b"1]}",
                lambda: b'{"prompt":"a","max_tokens":1,"x":' + b"9" * count + b"}", lambda: b'{"prompt":"' + b"\\u00e9" * count + b'","max_tokens":1}',
                lambda: b"{" + b",".join(b'"k%d":0' % i for i in range(count // 10)) + b"}", lambda: b'{"' + b"k" * count + b'":1,"prompt":"a","max_tokens":1}',
                lambda: b'{"prompt":[' + b",".join([b'"a"'] * (count // 10)) + b'],"max_tokens":1,"n":4096}', lambda: b'{"prompt":"a"}' + b"\0" * count,
                lambda: json.dumps({"prompt": "a"}).encode("utf-16"), lambda: b"\xef\xbb\xbf" + json.dumps({"prompt": "a", "max_tokens": 1}).encode()])()
            print(count, body[:100])
            route = rng.choice(["/v1/completions", "/tokenize", "/v1/chat/completions", "/v1/messages", "/v1/responses"])
            got = answered(post(server, route, body), *ALLOWED)
            assert is_json(body) or got[0] in (400, 413), (body[:100], got)


@pytest.mark.hostile
def test_extremes_that_are_allowed_end_soon(server):
    """Sampling at the edges of its ranges: answered, and the same request samples the same tokens again."""
    edges = {"temperature": [0, 1e-300, 2, 1e-6], "top_p": [1e-6, 1], "min_p": [0, 0.999999], "top_k": [-1, 0, 1, 10**6], "repetition_penalty": [0.01, 100], "presence_penalty": [-2, 2],
             "frequency_penalty": [-2, 2], "seed": [0, -1, 2**63 - 1, -(2**63)], "logit_bias": [{"0": -100}, {"5": 100}, {}], "n": [1, 3], "stop": ["a", ["\n"] * 4, "\ud7ff"],
             "stop_token_ids": [[0], [2**32 - 1]], "min_tokens": [0, 5], "logprobs": [0, 1, 5], "prompt_logprobs": [0, 3], "priority": [-1000, 1000], "cache_salt": ["", "s" * 5000], "echo": [False]}
    with unharmed(server):
        for _, rng in draws("edges", 40):
            fields = {name: rng.choice(edges[name]) for name in rng.sample(list(edges), rng.randint(2, 7))}
            body = {"prompt": [64, 271, 1000], "max_tokens": 6, "return_token_ids": True, "seed": 7, **fields}
            print(body)
            got = answered(post(server, "/v1/completions", body))
            if got[0] == 200:
                again = post(server, "/v1/completions", body)
                assert [c["token_ids"] for c in again[1]["choices"]] == [c["token_ids"] for c in got[1]["choices"]]
        assert answer_ids(server)
