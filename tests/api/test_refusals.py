"""Known fields that are not supported are refused with a message, never ignored; a mistake is named with
its bounds."""

import re

import pytest

from conftest import events, refused

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def user(content):
    return [{"role": "user", "content": content}]


def ask(server, path, fields):
    body = {"messages": user("x")} if path == CHAT else {"prompt": "x"}
    return server.post(path, **{**body, "max_tokens": 1, **fields})


UNSUPPORTED = [
    (CHAT, {"response_format": {"type": "grammar", "grammar": "x"}}, "response_format.type"),
    (TEXT, {"structured_outputs": {"structural_tag": {"format": {"type": "any_tokens"}}}}, "structured_outputs.structural_tag"),
    (CHAT, {"messages": user([{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}])},
     "messages[0].content[0]"),
    (CHAT, {"messages": user([{"type": "file", "file": {"file_id": "x"}}])}, "messages[0].content[0]"),
    (CHAT, {"modalities": ["text", "audio"]}, "modalities"),
    (CHAT, {"audio": {"voice": "x", "format": "wav"}}, "audio"),
    (CHAT, {"functions": [{"name": "f"}]}, "functions"),
    (CHAT, {"function_call": "auto"}, "function_call"),
    (CHAT, {"web_search_options": {}}, "web_search_options"),
    (CHAT, {"chat_template": "{{ 1 }}"}, "chat_template"),
    (CHAT, {"documents": [{"text": "x"}]}, "documents"),
    (CHAT, {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    (CHAT, {"prompt": "x"}, "prompt"),
    (TEXT, {"messages": user("x")}, "messages"),
    (CHAT, {"echo": True}, "echo"),
    (TEXT, {"echo": True, "logprobs": 1, "stream": True}, "echo"),
    (TEXT, {"suffix": "x"}, "suffix"),
    (TEXT, {"best_of": 2}, "best_of"),
    (TEXT, {"prompt_embeds": "AAAA"}, "prompt_embeds"),
    (TEXT, {"stop": "x", "skip_special_tokens": False}, "skip_special_tokens"),
    *[(TEXT, {name: value}, name) for name, value in {
        "use_beam_search": True, "length_penalty": 0.5, "early_stopping": True, "bad_words": ["x"], "logits_processors": ["x"],
        "mm_processor_kwargs": {"a": 1}, "kv_transfer_params": {},
        "lora_path": "x", "return_tokens_as_token_ids": True, "spaces_between_special_tokens": False}.items()],
]


@pytest.mark.smoke
@pytest.mark.parametrize("path, fields, param", UNSUPPORTED, ids=lambda v: v if isinstance(v, str) else None)
def test_what_is_not_done_is_refused(server, path, fields, param):
    error = refused(ask(server, path, fields), 400, "unsupported_value")
    assert error["param"] == param and error["type"] == "invalid_request_error"
    assert re.split(r"[\[.]", param)[0] in error["message"]


WRONG = [
    (CHAT, {"continue_final_message": True, "messages": user("x") + [{"role": "assistant", "content": "y"}]},
     "continue_final_message", "add_generation_prompt"),
    (CHAT, {"continue_final_message": True, "add_generation_prompt": False, "messages": user("x")},
     "continue_final_message", "assistant"),
    (CHAT, {"temperature": 2.1}, "temperature", "from 0 to 2"),
    (CHAT, {"temperature": "1"}, "temperature", "number"),
    (CHAT, {"top_p": 0}, "top_p", "to 1"),
    (CHAT, {"top_k": 1.5}, "top_k", "integer"),
    (CHAT, {"min_p": 1}, "min_p", "0.99"),
    (CHAT, {"repetition_penalty": 0}, "repetition_penalty", "0.01"),
    (CHAT, {"presence_penalty": 3}, "presence_penalty", "from -2 to 2"),
    (CHAT, {"frequency_penalty": -3}, "frequency_penalty", "from -2 to 2"),
    (CHAT, {"max_tokens": 0}, "max_tokens", "at least 1"),
    (CHAT, {"max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens", "same"),
    (CHAT, {"min_tokens": 5}, "min_tokens", "max_tokens"),
    (CHAT, {"n": 0}, "n", "positive"),
    (CHAT, {"seed": 1.5}, "seed", "integer"),
    (CHAT, {"stream": "yes"}, "stream", "true or false"),
    (CHAT, {"stream_options": {"include_usage": True}}, "stream_options", "stream is true"),
    (CHAT, {"stream": True, "stream_options": {"include_usage": 1}}, "stream_options", "true or false"),
    (CHAT, {"top_logprobs": 2}, "top_logprobs", "logprobs"),
    (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs", "20"),
    (CHAT, {"logit_bias": {"1": 101}}, "logit_bias", "-100 to 100"),
    (CHAT, {"logit_bias": {"x": 1}}, "logit_bias", "token id"),
    (CHAT, {"logit_bias": {"99999": 1}}, "logit_bias", "8191"),
    (CHAT, {"stop_token_ids": [99999]}, "stop_token_ids", "8191"),
    (CHAT, {"priority": 1001}, "priority", "1000"),
    (CHAT, {"cache_salt": ""}, "cache_salt", "empty"),
    (CHAT, {"messages": []}, "messages", "at least one"),
    (CHAT, {"messages": None}, "messages", "missing"),
    (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, "messages[0]", "role"),
    (CHAT, {"messages": [{"role": "user"}]}, "messages[0]", "content"),
    (CHAT, {"messages": user(5)}, "messages[0]", "content"),
    (CHAT, {"messages": user([{"type": "text"}])}, "messages[0].content[0]", "text"),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}]},
     "messages[0]", "arguments"),
    (CHAT, {"tools": [{"type": "function", "function": {}}]}, "tools[0]", "name"),
    (CHAT, {"tools": [{**FUNCTION, "function": {**FUNCTION["function"], "strict": "yes"}}]}, "tools[0]", "strict"),
    (CHAT, {"messages": [{"role": "assistant", "refusal": 5}]}, "messages[0]", "refusal"),
    (CHAT, {"tools": {}}, "tools", "list"),
    (CHAT, {"tool_choice": "perhaps"}, "tool_choice", "auto"),
    (CHAT, {"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "messages"),
    (CHAT, {"reasoning_effort": 3}, "reasoning_effort", "string"),
    (TEXT, {"prompt": None}, "prompt", "missing"),
    (TEXT, {"prompt": ""}, "prompt", "prompt is empty"),
    (TEXT, {"prompt": []}, "prompt", "prompt is empty"),
    (TEXT, {"prompt": ["a", ""]}, "prompt", "prompt[1] is empty"),
    (TEXT, {"prompt": [[1], []]}, "prompt", "prompt[1] is empty"),
    (TEXT, {"prompt": [1, "a"]}, "prompt", "prompt[1]"),
    (TEXT, {"prompt": [[1], [-1]]}, "prompt", "token id"),
    (TEXT, {"prompt": [99999]}, "prompt", "8191"),
    (TEXT, {"logprobs": 21}, "logprobs", "20"),
    (TEXT, {"stop": [""]}, "stop", "stop"),
]


@pytest.mark.smoke
@pytest.mark.parametrize("path, fields, param, words", WRONG)
def test_what_is_wrong_is_told(server, path, fields, param, words):
    error = refused(ask(server, path, fields), 400, "invalid_value", words)
    assert error["param"] == param


@pytest.mark.smoke
@pytest.mark.parametrize("text, words", [
    (b"", "no body"),
    (b"nonsense", "line 1"),
    (b"[]", "JSON object"),
    (b'{"prompt": "a", "prompt": "b"}', "duplicate"),
    (b'{"prompt": "\xff"}', "0xff"),
    (b'{"prompt": "a"} more', "end of file"),
    (b'{"prompt": 1e999}', "real"),
])
def test_what_is_no_json_is_told(server, text, words):
    reply = server.http.post(TEXT, content=text, headers={"content-type": "application/json"})
    refused(reply, 400, "invalid_json", words)


@pytest.mark.smoke
@pytest.mark.parametrize("fields", [
    {"tool_choice": "auto"},
    {"tool_choice": "none", "tools": [FUNCTION]},
    {"response_format": {"type": "text"}},
    {"modalities": ["text"]},
    {"verbosity": "medium"},
    {"store": False},
    {"service_tier": "auto"},
    {"user": "u", "metadata": {"a": "b"}, "safety_identifier": "s", "prompt_cache_key": "k"},
    {"parallel_tool_calls": True},
    {"temperature": None, "stop": None, "tools": None, "response_format": None, "stream_options": None},
])
def test_what_asks_for_what_happens_anyway_is_taken(server, fields):
    assert ask(server, CHAT, fields).status_code == 200


@pytest.mark.smoke
def test_refusals_of_routes(server):
    refused(server.http.get("/v1/nothing"), 404, "not_found", "/v1/nothing")
    refused(server.http.get("/nowhere"), 404, "not_found")
    reply = server.http.get(CHAT)
    refused(reply, 405, "method_not_allowed", "POST")
    assert reply.headers["allow"] == "POST"
    refused(server.http.post("/v1/models", json={}), 405, "method_not_allowed", "GET")
    refused(server.post("/v1/models/canary/x/load"), 404, "model_not_found", "canary/x")


@pytest.mark.smoke
def test_a_message_quotes_nothing_harmful(server):
    """A client's text comes back as valid JSON, without its control characters."""
    error = refused(ask(server, CHAT, {"model": "a\"b\n\x07\u2028é" * 100}), 404, "model_not_found")
    assert all(c >= " " for c in error["message"]) and "é" in error["message"] and len(error["message"]) < 800


def test_a_refused_stream_is_no_stream(server):
    reply = ask(server, CHAT, {"stream": True, "temperature": 9})
    assert reply.headers["content-type"] == "application/json"
    refused(reply, 400, "invalid_value")
    assert events(ask(server, CHAT, {"stream": True}).text)[-1] == "[DONE]"
