"""Constrained output: every field of every route, behind reasoning, in streams, under load, and refused.

Outputs are drawn at temperature 1 with a new seed in each run; PLATEAU_SEED=n replays one."""
import concurrent.futures
import contextlib
import json
import os
import random
import re
import time

import pydantic
import pytest

from conftest import account, account_bytes, events, refused, serving, settled, until

SEED = int(os.environ.get("PLATEAU_SEED", random.randrange(1 << 30)))
RANDOM = random.Random(SEED)
CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
ASK = [{"role": "user", "content": "What does mkdir do?"}]

PAGE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{1,6}$"},
        "section": {"type": "integer", "minimum": 1, "maximum": 8},
        "kind": {"enum": ["command", "call", None, 7]},
        "flags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
        "more": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/more"}]},
    },
    "required": ["name", "section", "kind", "flags"],
    "additionalProperties": False,
    "$defs": {"more": {"type": "object", "properties": {"deep": {"const": "yes"}}, "required": ["deep"],
                       "additionalProperties": False}},
}


def check_page(text):
    v = json.loads(text)
    assert set(v) - {"more"} == {"name", "section", "kind", "flags"}, text
    assert re.fullmatch("[a-z]{1,6}", v["name"]) and v["section"] in range(1, 9), text
    assert v["kind"] in ("command", "call", None, 7), text
    assert 1 <= len(v["flags"]) <= 3 and all(isinstance(x, bool) for x in v["flags"]), text
    assert v.get("more") in (None, {"deep": "yes"}), text


def check_object(text):
    assert isinstance(json.loads(text), dict)


GBNF = 'root ::= "<" [a-c]{1,9} ">" item{1,3}\nitem ::= " " ("x" | "yy")'
LARK = 'start: "<" LETTERS ">" item~1..3\nitem: " " ("x" | "yy")\nLETTERS: /[a-c]{1,9}/'
GUIDANCE = "%llguidance {}\n\n" + LARK.replace("\nitem:", "\nitem[capture]:")
SPACED = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
WITHIN = 'start: body "\\n" page\nbody[suffix=">"]: /(?s:.{0,9})/\npage: %json ' + json.dumps({**PAGE, "x-guidance": SPACED}, indent=2)
NAMED = {"name": "page", "schema": PAGE}


def check_within(text):
    """Checks compact JSON, and JSON as Python spaces it."""
    page = text[text.index(">\n") + 2:]
    check_page(page)
    assert ">" not in text[:text.index(">\n")] and page == json.dumps(json.loads(page), ensure_ascii=False), text


def check_items(text):
    assert re.fullmatch(r"<[a-c]+>( (x|yy)){1,3}", text), text


def check_colour(text):
    assert text in ("red", "green", "a\"b"), text


def check_code(text):
    assert re.fullmatch(r"[A-F]{2}-\d{3}", text), text


TAG = {"type": "tag", "begin": "<a>", "content": {"type": "regex", "pattern": "[a-c]{1,4}"}, "end": "</a>"}
TAGS = {"type": "structural_tag", "format": {"type": "sequence", "elements": [
    {"type": "const_string", "value": "The tags: "},
    {"type": "tags_with_separator", "tags": [TAG, {**TAG, "begin": "<b>", "end": "</b>"}], "separator": ", ", "at_least_one": True,
     "stop_after_first": True},
    {"type": "repeat", "min": 0, "max": 2, "content": {"type": "const_string", "value": ", "}},
    {"type": "const_string", "value": "."}]}}
# The first tag begins the output, so that it certainly has one.
TRIGGERED = {"type": "structural_tag", "format": {
    "type": "triggered_tags", "triggers": ["<f="], "at_least_one": True, "stop_after_first": True, "tags": [
        {"begin": "<f=one>", "content": {"type": "json_schema", "json_schema": PAGE}, "end": "</f>"},
        {"begin": "<f=two>", "content": {"type": "const_string", "value": "x"}, "end": "</f>"}]}}
OLDER = {"type": "structural_tag", "triggers": ["<f="], "structures": [
    {"begin": "<f=one>", "schema": {"enum": ["five", "six"]}, "end": "</f>"}]}


def check_tags(text):
    assert re.fullmatch(r"The tags: <(a|b)>[a-c]{1,4}</\1>(, ){0,2}\.", text), text


def check_triggered(text):
    assert text == "<f=two>x</f>" or (text.startswith("<f=one>") and text.endswith("</f>")), text
    if "one" in text[:7]:
        check_page(text[7:-4])


COLOURS = ["red", "green", "a\"b"]
FIELDS = {
    "json_schema": ({"response_format": {"type": "json_schema", "json_schema": NAMED}}, check_page),
    "strict": ({"response_format": {"type": "json_schema", "json_schema": {**NAMED, "strict": True, "description": "d"}}},
               check_page),
    "schema beside the type": ({"response_format": {"type": "json_schema", "schema": PAGE}}, check_page),
    "json_object with schema": ({"response_format": {"type": "json_object", "schema": PAGE}}, check_page),
    "structured_outputs.json": ({"structured_outputs": {"json": PAGE}}, check_page),
    "structured_outputs.json as text": ({"structured_outputs": {"json": json.dumps(PAGE)}}, check_page),
    "structured_outputs.regex": ({"structured_outputs": {"regex": r"[A-F]{2}-\d{3}"}}, check_code),
    "structured_outputs.choice": ({"structured_outputs": {"choice": COLOURS}}, check_colour),
    "structured_outputs.grammar": ({"structured_outputs": {"grammar": GBNF}}, check_items),
    "a Lark grammar": ({"structured_outputs": {"grammar": LARK}}, check_items),
    "a schema within a grammar": ({"structured_outputs": {"grammar": WITHIN}}, check_within),
    "a structural tag": ({"response_format": TAGS}, check_tags),
    "structured_outputs.structural_tag": ({"structured_outputs": {"structural_tag": TRIGGERED}}, check_triggered),
    "structured_outputs.structural_tag as text": ({"structured_outputs": {"structural_tag": json.dumps(TAGS)}}, check_tags),
    "guided_json": ({"guided_json": PAGE}, check_page),
    "guided_regex": ({"guided_regex": r"[A-F]{2}-\d{3}"}, check_code),
    "guided_choice": ({"guided_choice": COLOURS}, check_colour),
    "guided_grammar": ({"guided_grammar": GBNF}, check_items),
    "grammar": ({"grammar": GBNF}, check_items),
    "json_schema of llama-server": ({"json_schema": PAGE}, check_page),
    "regex of SGLang": ({"regex": r"[A-F]{2}-\d{3}"}, check_code),
    "ebnf of SGLang": ({"ebnf": GBNF}, check_items),
    "json_object with value": ({"response_format": {"type": "json_object", "value": PAGE}}, check_page),
    "regex with value": ({"response_format": {"type": "regex", "value": r"[A-F]{2}-\d{3}"}}, check_code),
    "two equal names": ({"guided_grammar": GUIDANCE, "structured_outputs": {"grammar": GUIDANCE}}, check_items),
}
OBJECTS = {
    "json_object": {"response_format": {"type": "json_object"}},
    "structured_outputs.json_object": {"structured_outputs": {"json_object": True}},
}


def drawn(**fields):
    seed = RANDOM.randrange(1 << 31)
    return {"temperature": 1, "top_p": 1, "max_tokens": 900, "seed": seed, "enable_thinking": False, **fields}


def chat(server, **fields):
    return server.chat(ASK[0]["content"], **drawn(**fields))


def content(reply):
    """Returns the content of the only choice, which is complete."""
    assert reply.status_code == 200, reply.text
    choice = reply.json()["choices"][0]
    assert choice["finish_reason"] == "stop", (SEED, choice)
    return choice["message"]["content"] if "message" in choice else choice["text"]


@pytest.mark.smoke
@pytest.mark.parametrize("name", FIELDS)
def test_every_field_holds_in_chats(server, name):
    fields, check = FIELDS[name]
    check(content(chat(server, **fields)))


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_holds_in_completions(server, name):
    fields, check = FIELDS[name]
    wish = drawn(**fields)
    del wish["enable_thinking"]
    check(content(server.complete("The page: ", **wish)))


@pytest.mark.parametrize("name", OBJECTS)
def test_any_object(server, name):
    """A small model may write on until max_tokens; what is complete is an object."""
    for _ in range(4):
        choice = chat(server, **OBJECTS[name]).json()["choices"][0]
        if choice["finish_reason"] == "stop":
            check_object(choice["message"]["content"])
        else:
            assert choice["finish_reason"] == "length" and choice["message"]["content"].lstrip()[0] == "{"


def test_tags_within_any_text(server):
    """vLLM's older form: text, and each tag as its schema says. A model that writes none has written text."""
    for _ in range(3):
        reply = chat(server, response_format=OLDER, max_tokens=60)
        assert reply.status_code == 200, reply.text
        text = reply.json()["choices"][0]["message"]["content"] or ""
        for part in text.split("<f=")[1:]:
            assert re.match('one>"(five|six)"</f>', part) or reply.json()["choices"][0]["finish_reason"] == "length", text


def test_a_tag_behind_text(server):
    """The older form has text first as well: a newer one that begins with it certainly reaches the tag."""
    part = {"type": "tag", "begin": "<f=one>", "content": {"type": "json_schema", "json_schema": {"enum": ["five", "six"]}}, "end": "</f>"}
    whole = {"type": "sequence", "elements": [{"type": "const_string", "value": "So: "}, part]}
    reply = content(chat(server, response_format={"type": "structural_tag", "format": whole}))
    assert reply in ("So: <f=one>\"five\"</f>", "So: <f=one>\"six\"</f>")


def test_a_tag_may_be_an_added_token(server):
    """<think> is one token of Canary's vocabulary: ordinary text never matches it."""
    tag = {"type": "tag", "begin": "<think>", "content": {"type": "regex", "pattern": "[a-c]{3}"}, "end": "</think>"}
    reply = server.complete("The page: ", **{k: v for k, v in drawn(
        structured_outputs={"structural_tag": {"format": tag}}, return_token_ids=True).items() if k != "enable_thinking"})
    text, ids = content(reply), reply.json()["choices"][0]["token_ids"]
    assert re.fullmatch(r"<think>[a-c]{3}</think>", text) and len(ids) <= 6, (text, ids)


def test_backends_are_named_as_ignored(server):
    reply = chat(server, guided_choice=COLOURS, guided_decoding_backend="xgrammar", guided_whitespace_pattern=" ?")
    assert reply.headers["x-ignored-fields"] == "guided_decoding_backend, guided_whitespace_pattern"
    reply = chat(server, structured_outputs={"choice": COLOURS, "disable_any_whitespace": True, "regex": None})
    assert reply.headers["x-ignored-fields"] == "structured_outputs.disable_any_whitespace"


# ---- delivery ----


def pieces(reply, index=0):
    assert reply.status_code == 200, reply.text
    found, end = "", None
    for event in events(reply.text)[:-1]:
        assert "error" not in event, event
        for choice in event["choices"]:
            if choice["index"] == index:
                found += choice["delta"].get("content") or ""
                end = choice["finish_reason"] or end
    return found, end


@pytest.mark.smoke
def test_streams_say_the_same(server):
    fields = drawn(guided_json=PAGE)
    whole = content(server.chat("hi", **fields))
    assert pieces(server.chat("hi", stream=True, **fields)) == (whole, "stop")
    check_page(whole)


def test_each_choice_has_its_own_state(server):
    for stream in (False, True):
        reply = chat(server, guided_json=PAGE, n=3, stream=stream)
        if stream:
            texts = [pieces(reply, i)[0] for i in range(3)]
        else:
            texts = [c["message"]["content"] for c in reply.json()["choices"]]
        assert len(set(texts)) > 1
        for text in texts:
            check_page(text)


def test_a_stop_string_ends_it_earlier(server):
    fields = drawn(guided_regex="[a-c]{3}END[a-c]{3}", stop=["END"])
    assert re.fullmatch("[a-c]{3}", content(server.chat("hi", **fields)))
    text, end = pieces(server.chat("hi", stream=True, **fields))
    assert re.fullmatch("[a-c]{3}", text) and end == "stop"


def test_the_grammar_decides_where_the_output_ends(server):
    """Before min_tokens, and with ignore_eos too."""
    check_colour(content(chat(server, guided_choice=COLOURS, ignore_eos=True)))
    check_colour(content(chat(server, guided_choice=COLOURS, ignore_eos=True, min_tokens=200)))
    choice = chat(server, guided_regex="[a-c]{400}", max_tokens=5).json()["choices"][0]
    assert choice["finish_reason"] == "length" and re.fullmatch("[a-c]+", choice["message"]["content"])


def test_drafts_change_no_token(server):
    for _ in range(3):
        fields = drawn(guided_json=PAGE, return_token_ids=True)
        one, other = (server.chat("hi", speculative=s, **fields).json()["choices"][0] for s in (True, False))
        assert one["token_ids"] == other["token_ids"]


def test_logprobs_are_of_the_model(server):
    """Values equal those without the grammar: tokens that it forbids stay in the distribution."""
    fields = {"temperature": 0, "max_tokens": 1, "logprobs": 5}
    free = server.complete("mkdir - ", **fields).json()["choices"][0]["logprobs"]
    first, second = list(free["top_logprobs"][0].items())[:2]
    pattern = {"guided_choice": [second[0]]}
    held = server.complete("mkdir - ", **fields, **pattern).json()["choices"][0]["logprobs"]
    assert held["tokens"][0] == second[0] and held["token_logprobs"][0] == pytest.approx(second[1], abs=1e-6)
    assert held["top_logprobs"][0][first[0]] == pytest.approx(first[1], abs=1e-6)


# ---- reasoning ----


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["json_schema", "guided_choice", "grammar"])
def test_reasoning_comes_first(server, name):
    fields, check = FIELDS[name]
    reply = chat(server, enable_thinking=True, **fields)
    check(content(reply))
    message, usage = reply.json()["choices"][0]["message"], reply.json()["usage"]
    assert message["reasoning_content"] and usage["completion_tokens_details"]["reasoning_tokens"] > 0
    assert "reasoning_content" not in chat(server, reasoning_effort="none", enable_thinking=None,
                                           **fields).json()["choices"][0]["message"]


def test_reasoning_is_streamed_before_it(server):
    reply = chat(server, enable_thinking=True, stream=True, **FIELDS["json_schema"][0])
    kinds = [next(iter(d)) for e in events(reply.text)[:-1] if e["choices"]
             for d in [{k: v for k, v in e["choices"][0]["delta"].items() if v and k != "role"}] if d]
    turn = kinds.index("content")
    assert turn > 0 and set(kinds[:turn]) == {"reasoning_content"} and set(kinds[turn:]) == {"content"}
    check_page(pieces(reply)[0])


# ---- the other dialects, and clients ----


def messages(server, **fields):
    return server.post(MESSAGES, model="canary", messages=ASK, max_tokens=1500, temperature=1,
                       seed=RANDOM.randrange(1 << 31), **fields)


@pytest.mark.smoke
def test_messages(server):
    config = {"format": {"type": "json_schema", "schema": PAGE}}
    for fields in ({"output_config": config}, {"output_format": config["format"]}):
        reply = messages(server, **fields).json()
        assert reply["stop_reason"] == "end_turn" and len(reply["content"]) == 1
        check_page(reply["content"][0]["text"])
    reply = messages(server, output_config=config, thinking={"type": "enabled", "budget_tokens": 1024}).json()
    assert [b["type"] for b in reply["content"]] == ["thinking", "text"]
    check_page(reply["content"][1]["text"])


def test_messages_refuse_a_format_for_a_prefill(server):
    reply = server.post(MESSAGES, model="canary", max_tokens=9, messages=[*ASK, {"role": "assistant", "content": "{"}],
                        output_config={"format": {"type": "json_schema", "schema": PAGE}})
    assert reply.status_code == 400 and "output_config.format" in reply.json()["error"]["message"]


def responses(server, **fields):
    return server.post(RESPONSES, model="canary", input="What does mkdir do?", max_output_tokens=900, store=False,
                       temperature=1, seed=RANDOM.randrange(1 << 31), **fields)


@pytest.mark.smoke
def test_responses(server):
    form = {"type": "json_schema", "name": "page", "strict": True, "schema": PAGE}
    reply = responses(server, text={"format": form}, enable_thinking=False).json()
    assert reply["text"]["format"] == form and reply["status"] == "completed"
    check_page(reply["output"][-1]["content"][0]["text"])
    reply = responses(server, text={"format": form}, reasoning={"effort": "high"}, stream=True)
    done = [e for e in events(reply.text) if e["type"] == "response.completed"][0]["response"]
    assert [item["type"] for item in done["output"]] == ["reasoning", "message"]
    check_page(done["output"][1]["content"][0]["text"])
    assert done["text"]["format"] == form
    reply = responses(server, text={"format": {"type": "json_object"}}, enable_thinking=False).json()
    assert reply["text"]["format"] == {"type": "json_object"}


class Step(pydantic.BaseModel):
    done: bool
    colour: str = pydantic.Field(pattern="^(red|green)$")


class Plan(pydantic.BaseModel):
    steps: list[Step] = pydantic.Field(min_length=1, max_length=2)
    kind: int = pydantic.Field(ge=0, le=9)


def test_the_official_clients_parse(server, client, model):
    more = {"extra_body": {"enable_thinking": False}, "temperature": 1}
    reply = client.chat.completions.parse(model=model, messages=ASK, response_format=Plan, max_tokens=900, **more)
    assert isinstance(reply.choices[0].message.parsed, Plan)
    reply = client.responses.parse(model=model, input="hi", text_format=Plan, max_output_tokens=900, store=False, **more)
    assert isinstance(reply.output_parsed, Plan)


# ---- refusals ----

REFUSED = [
    ({"guided_json": {"type": "array", "contains": {"type": "null"}}}, "guided_json", ["#", "contains"]),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {
        "type": "object", "properties": {"a": {"items": {"$ref": "http://x/y"}}}}}}},
     "response_format.json_schema.schema", ["#/properties/a/items", "$ref"]),
    ({"structured_outputs": {"structural_tag": {"format": {"type": "or", "elements": [{"type": "any_tokens"}]}}}},
     "structured_outputs.structural_tag", ["format.elements[0]", "any_tokens"]),
    ({"response_format": {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": {}, "any_order": True}}},
     "response_format", ["any_order"]),
    ({"allowed_token_ids": [5], "guided_choice": ["a"]}, "allowed_token_ids", ["guided_choice"]),
]


@pytest.mark.smoke
@pytest.mark.parametrize("fields, param, words", REFUSED, ids=lambda v: v if isinstance(v, str) else None)
def test_what_is_not_supported_is_named(server, fields, param, words):
    assert refused(chat(server, **fields), 400, "unsupported_value", *words)["param"] == param


WRONG = [
    ({"guided_json": {"type": "sound"}}, "guided_json", ["#", "type"]),
    ({"guided_json": "{"}, "guided_json", ["is not JSON"]),
    ({"guided_regex": "(?=a)b"}, "guided_regex", ["look-ahead"]),
    ({"guided_json": {"type": "object", "required": "a"}}, "guided_json", ["required"]),
    ({"guided_json": {"allOf": [{"type": "null"}, {"type": "string"}]}}, "guided_json", ["guided_json"]),
    ({"guided_regex": "(a"}, "guided_regex", ["guided_regex"]),
    ({"guided_choice": []}, "guided_choice", ["at least one"]),
    ({"guided_choice": ["a", 5]}, "guided_choice", ["element 1"]),
    ({"grammar": "root ::= a"}, "grammar", ["line 1"]),
    ({"structured_outputs": {"structural_tag": "{"}}, "structured_outputs.structural_tag", ["is not JSON"]),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag", ["format"]),
    ({"structured_outputs": {"structural_tag": 5}}, "structured_outputs.structural_tag", ["object"]),
    ({"response_format": {"type": "structural_tag", "structures": []}}, "response_format", ["structures"]),
    ({"response_format": {"type": "structural_tag"}}, "response_format", ["format", "structures"]),
    ({"response_format": {**TAGS, "format": 5}, "guided_regex": "a"}, "guided_regex", ["response_format"]),
    ({"structured_outputs": {"grammar": "start: missing"}}, "structured_outputs.grammar", ["missing"]),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}, "response_format.json_schema", ["schema"]),
    ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex", ["response_format", "guided_regex"]),
    ({"structured_outputs": {"json": {}, "choice": ["a"]}}, "structured_outputs.choice", ["structured_outputs.json"]),
    ({"json_schema": {}, "grammar": 'root ::= "a"'}, "grammar", ["json_schema", "grammar"]),
]


@pytest.mark.parametrize("fields, param, words", WRONG, ids=lambda v: v if isinstance(v, str) else None)
def test_what_is_wrong_is_named(server, fields, param, words):
    error = refused(chat(server, **fields), 400, "invalid_value", *words)
    assert error["param"] == param


def test_an_output_that_is_too_complex_ends_with_an_error(server):
    fields = {"grammar": 'root ::= (root | "a"){1,40} | "b" root "b"', "max_tokens": 1900, "min_tokens": 1900}
    refused(chat(server, **fields), 400, "grammar_too_complex", "tokens")
    last = events(chat(server, stream=True, **fields).text)[-1]
    assert last != "[DONE]" and last["error"]["code"] == "grammar_too_complex"


def test_an_object_may_have_two_thousand_optional_names(server):
    """Each joined with a number, whose digits have a limit."""
    members = {f"name_of_member_{i}": {"type": "integer"} for i in range(2000)}
    schema = {"type": "object", "properties": members, "required": ["name_of_member_1999"]}
    got = chat(server, max_tokens=60, temperature=1.2, seed=1,
               response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
    assert got.status_code == 200, got.text


# ---- load and hostile sources ----


def test_the_memory_of_constrained_streams_is_accounted():
    """The blocks of 30 jobs are mapped, not taken from the allocator."""
    with serving() as server, contextlib.ExitStack() as stack:
        for n in range(30):
            stack.enter_context(server.begin(structured_outputs={"regex": "[a-z ]{%d,}" % (50000 + n % 8)}))
        until(lambda: account(server.memory(), "requests")["used_bytes"] > 48 << 20)
        memory = server.memory()
        if memory["system"]["heap_bytes"] > 0:
            assert abs(memory["unaccounted_bytes"]) <= 32 << 20, memory["unaccounted_bytes"]


def test_many_schemas_at_once(server):
    def one(i):
        schema = {"type": "object", "properties": {f"k{i}": {"enum": [f"v{i}", i]}}, "required": [f"k{i}"],
                  "additionalProperties": False}
        fields = {"temperature": 1, "max_tokens": 400, "enable_thinking": False, "guided_json": schema, "seed": SEED + i}
        return json.loads(content(server.chat("hi", **fields)))

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        for i, found in enumerate(pool.map(one, range(50))):
            assert found in ({f"k{i}": f"v{i}"}, {f"k{i}": i})


def nested(depth):
    schema = {"type": "null"}
    for i in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]} if i % 2 else {"anyOf": [schema, {"const": i}]}
    return schema


HOSTILE = {
    "deep": {"guided_json": nested(24)},
    "deep text": {"guided_json": "[" * 100000},
    "deep text of objects": {"guided_json": '{"not":' * 3000 + "{}" + "}" * 3000},
    "a long enum": {"guided_json": {"enum": [f"value {i}" for i in range(9000)]}},
    "too long an enum": {"guided_json": {"enum": list(range(20000))}},
    "many properties": {"guided_json": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(1900)}}},
    "combinations": {"guided_json": {"allOf": [{"anyOf": [{"type": "object", "properties": {f"p{i}{j}": {"const": j}}}
                                                          for j in range(9)]} for i in range(9)]}},
    "a circle": {"guided_json": {"$ref": "#"}},
    "recursion": {"guided_json": {"type": "array", "items": {"$ref": "#"}, "minItems": 2}},
    "a regex that explodes": {"guided_regex": "(((a{1,1000}){1,1000}){1,1000}){1,1000}"},
    "nested counters": {"guided_regex": "((a|b){1,500}c?){500}(?:x|y){0,900}"},
    "a late letter": {"guided_regex": "(a|b)*a(a|b){900}"},
    "many classes": {"guided_regex": "|".join(f"[a-z]{{{i}}}[^a-{c}]\\w+" for i, c in enumerate("bcdefghijk" * 30, 1))},
    "many choices": {"guided_choice": [f"{i:x}" * (i % 9 + 1) for i in range(10000)]},
    "too many choices": {"guided_choice": ["a"] * 20000},
    "many rules": {"grammar": "root ::= r0\n" + "\n".join(f'r{i} ::= "a" r{i + 1} | "b" r{i // 2}' for i in range(5000)) + '\nr5000 ::= "c"'},
    "left recursion": {"grammar": 'root ::= root root root | ""'},
    "deep groups": {"grammar": "root ::= " + "(" * 5000 + '"a"' + ")" * 5000},
    "a pattern within": {"guided_json": {"type": "string", "pattern": "^(([a-z]+)+)+$", "minLength": 9000, "maxLength": 90000}},
    "long items": {"guided_json": {"type": "array", "items": {"type": "array", "minItems": 900, "items": {"type": "null"}}, "minItems": 900}},
    "empty": {"guided_json": {"type": "object", "required": ["a"], "properties": {"a": False}}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sources_are_answered(server, name):
    began = time.monotonic()
    reply = chat(server, max_tokens=40, **HOSTILE[name])
    assert reply.status_code in (200, 400), reply.text
    assert time.monotonic() - began < 30
    if reply.status_code == 400:
        assert reply.json()["error"]["message"]
    check_colour(content(chat(server, guided_choice=COLOURS)))


def test_nothing_is_left_behind():
    """Requests end, are refused, and leave in the middle."""
    with serving("--max-num-seqs", 8) as s:
        before = account_bytes(s.memory())
        for _ in range(3):
            with s.begin(guided_regex="[a-z]{1000}[a-z]{1000}[a-z]{1000}", n=2) as open_one:
                open_one.event()
            with s.begin(guided_json=PAGE, stream=False):
                pass
        chat(s, guided_regex="(?=a)")
        chat(s, grammar='root ::= (root | "a"){1,40} | "b" root "b"', max_tokens=1900, min_tokens=1900)
        running = s.begin(guided_regex="[a-z]{1000}[a-z]{1000}[a-z]{1000}", stream=False)
        with running:
            until(lambda: s.requests("decoding"))
            s.http.delete("/v1/requests/" + s.requests("decoding")[0]["id"])
            until(lambda: not s.requests())
        assert account(s.memory(), "grammars")["used_bytes"] > 0
        after = settled(s)
        names = [n for n in before if n.endswith("/grammars")]
        assert names and all(after[n] == before[n] for n in names)


def test_without_a_cache_of_grammars_it_is_refused():
    with serving("--grammar-cache", 0) as s:
        refused(chat(s, guided_choice=COLOURS), 400, "unsupported_value", "guided_choice", "--grammar-cache")
        assert s.complete("a", max_tokens=2).status_code == 200


# ---- integers beyond 64 bits ----

WIDE = 2 ** 64 - 1


@pytest.mark.parametrize("schema, values", [
    ({"const": WIDE}, {WIDE}), ({"enum": [WIDE, -2**63 - 1]}, {WIDE, -2**63 - 1}), ({"enum": [7]}, {7}),
    ({"type": "integer", "minimum": WIDE, "maximum": WIDE}, {WIDE})])
def test_wide_integers_keep_their_digits(server, schema, values):
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    value = json.loads(server.chat(response_format=form, max_tokens=60, temperature=0).json()["choices"][0]["message"]["content"])
    assert type(value) is int and value in values
    tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {
        "type": "object", "properties": {"o": {"type": "object", "properties": {"n": schema}, "required": ["n"],
                                               "additionalProperties": False}},
        "required": ["o"], "additionalProperties": False}}}
    message = server.chat(tools=[tool], tool_choice="required", max_tokens=90, temperature=0).json()["choices"][0]["message"]
    [call] = message["tool_calls"]
    assert json.loads(call["function"]["arguments"])["o"]["n"] in values


# ---- patterns that clients' libraries write ----

@pytest.mark.parametrize("pattern", [
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"])
def test_look_ahead_of_zod_and_pydantic(server, pattern):
    schema = {"type": "array", "items": {"type": "string", "pattern": pattern, "maxLength": 12}, "minItems": 4, "maxItems": 4}
    reply = server.chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
                        max_tokens=400, temperature=1, seed=SEED)
    values = json.loads(reply.json()["choices"][0]["message"]["content"])
    assert len(values) == 4 and all(re.search(pattern, v) for v in values), values
