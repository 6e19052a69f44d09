"""Tools for a chat template that knows none: Canary's weights with such a template, in all three dialects."""

import json

import pytest

from conftest import FEW_PAGES, MODEL, Server, events, serving

CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
# Roles in turns, and none of the system: as Gemma 2.
STRICT = ("{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
          "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
          "{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer"}},
          "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Of a city.", "parameters": SCHEMA, "strict": True}},
         {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}]
ASK = [{"role": "user", "content": "What is the weather in Bern?"}]


class Templated(Server):
    def __init__(self, where, template):
        where.mkdir()
        for file in MODEL.iterdir():
            if file.name != "chat_template.jinja":
                (where / file.name).symlink_to(file)
        (where / "chat_template.jinja").write_text(template)
        self.where = where
        super().__init__()

    def arguments(self):
        return [str(self.where), FEW_PAGES]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("generic") / "plain", CHATML, kind=Templated) as s:
        yield s


def is_weather(arguments):
    found = json.loads(arguments) if isinstance(arguments, str) else arguments
    return set(found) == {"city", "days"} and len(found["city"]) <= 8 and isinstance(found["days"], int)


def test_the_format_is_told(plain):
    told = plain.http.get("/model_info").json()["chat_format"]
    assert (told["tool_format"], told["tool_format_found_by"], told["shape"]) == ("generic", "table", "calls")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("seed", [1, 2])
def test_required_calls(plain, choice, parallel, seed):
    reply = plain.post("/v1/chat/completions", messages=ASK, tools=TOOLS, tool_choice=choice, parallel_tool_calls=parallel, max_tokens=400, temperature=1, seed=seed)
    assert reply.status_code == 200 and "x-ignored-fields" not in reply.headers, reply.text
    [found] = reply.json()["choices"]
    calls = found["message"]["tool_calls"]
    if found["finish_reason"] == "length":
        calls.pop()
    else:
        assert found["finish_reason"] == "tool_calls" and (parallel or len(calls) == 1)
    for call in calls:
        assert call["function"]["name"] == "weather" or choice == "required"
        if call["function"]["name"] == "weather":
            assert is_weather(call["function"]["arguments"])


def test_a_stream_has_the_same_call(plain):
    fields = {"tools": TOOLS[:1], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 200, "temperature": 0}
    whole = plain.post("/v1/chat/completions", messages=ASK, **fields).json()["choices"][0]["message"]["tool_calls"][0]["function"]
    pieces = [c["choices"][0]["delta"] for c in events(plain.post("/v1/chat/completions", messages=ASK, stream=True, **fields).text) if c != "[DONE]"]
    calls = [call["function"] for piece in pieces for call in piece.get("tool_calls", [])]
    assert calls[0]["name"] == whole["name"] and "".join(c.get("arguments", "") for c in calls) == whole["arguments"]
    assert not any(piece.get("content") for piece in pieces)


def test_messages_and_responses(plain):
    tool = {"name": "weather", "input_schema": SCHEMA, "strict": True}
    reply = plain.post("/v1/messages", model="plain", messages=ASK, tools=[tool], tool_choice={"type": "any", "disable_parallel_tool_use": True},
                       max_tokens=200, temperature=0).json()
    [use] = reply["content"]
    assert reply["stop_reason"] == "tool_use" and use["name"] == "weather" and is_weather(use["input"])
    back = [*ASK, {"role": "assistant", "content": reply["content"]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": "Rain"}]}]
    assert plain.post("/v1/messages", model="plain", messages=back, tools=[tool], max_tokens=5).status_code == 200
    reply = plain.post("/v1/responses", input="Weather?", store=False, tools=[{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}],
                       tool_choice="required", parallel_tool_calls=False, max_output_tokens=200, temperature=0).json()
    assert [item["type"] for item in reply["output"]] == ["function_call"] and is_weather(reply["output"][0]["arguments"])


CALLED = [*ASK, {"role": "assistant", "content": None, "tool_calls": [
    {"id": "1", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": "Bern", "days": 1})}},
    {"id": "2", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "Rain"}, {"role": "tool", "tool_call_id": "2", "content": "noon"},
    {"role": "user", "content": "And?"}]
CALLS = ('<tool_call>\n{"name": "weather", "arguments": {"city": "Bern", "days": 1}}\n</tool_call>\n'
         '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>')
RESULTS = "<tool_response>\nRain\n</tool_response>\n\n<tool_response>\nnoon\n</tool_response>\n\nAnd?"


def test_the_prompt(plain):
    prompt = plain.post("/apply-template", messages=CALLED, tools=TOOLS).json()["prompt"]
    head, tail = prompt.split("<|im_start|>user\n", 1)
    assert head.startswith("<|im_start|>system\n# Tools\n") and head.count('{"type": "function", ') == 2
    assert tail == (f"{ASK[0]['content']}<|im_end|>\n<|im_start|>assistant\n{CALLS}<|im_end|>\n<|im_start|>user\n{RESULTS}<|im_end|>\n"
                    "<|im_start|>assistant\n")
    without = plain.post("/apply-template", messages=CALLED).json()["prompt"]
    assert without == "<|im_start|>user\n" + tail
    lead = [{"role": "system", "content": "Be brief."}]
    assert plain.post("/apply-template", messages=lead + ASK, tools=TOOLS).json()["prompt"].startswith("<|im_start|>system\nBe brief.\n\n# Tools\n")


def test_the_next_turn_is_found_in_the_cache(plain):
    """The calls come back as the model wrote them."""
    fields = {"tools": TOOLS, "temperature": 0}
    first = plain.post("/v1/chat/completions", messages=ASK, tool_choice="required", parallel_tool_calls=False, max_tokens=200, **fields).json()
    message = first["choices"][0]["message"]
    back = [*ASK, message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "Rain"}]
    usage = plain.post("/v1/chat/completions", messages=back, max_tokens=2, **fields).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"] // 32 * 32 - 32


def test_a_choice_of_none_offers_no_tool(plain):
    assert "tool_calls" not in plain.post("/v1/chat/completions", messages=ASK, tools=TOOLS, tool_choice="none", max_tokens=20).json()["choices"][0]["message"]


def test_a_strict_template_gets_the_tools_in_the_first_turn(tmp_path):
    with serving(tmp_path / "strict", STRICT, kind=Templated) as s:
        prompt = s.post("/apply-template", messages=CALLED, tools=TOOLS).json()["prompt"]
        assert prompt.startswith("user: # Tools\n") and f"</tool_call>\n\n{ASK[0]['content']}\nassistant: {CALLS}\nuser: {RESULTS}\n" in prompt
        lead = [{"role": "system", "content": "Be brief."}]
        assert s.post("/apply-template", messages=lead + ASK, tools=TOOLS).json()["prompt"].startswith("user: Be brief.\n\n# Tools\n")
        # Without tools the template's own rule holds.
        assert s.post("/apply-template", messages=lead + ASK).status_code == 400
        calls = s.post("/v1/chat/completions", messages=ASK, tools=TOOLS[:1], tool_choice="required", parallel_tool_calls=False, max_tokens=200, temperature=0).json()
        assert is_weather(calls["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])
