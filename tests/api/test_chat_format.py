"""The chat format of a loaded model: what /model_info says of it, names that override it, and history."""
import os
import subprocess

import pytest

PROGRAM = os.environ["PLATEAU_PROGRAM"]


def test_model_info_says_what_was_found(server):
    found = server.http.get("/model_info").json()["chat_format"]
    assert (found["tool_format"], found["tool_format_found_by"]) == ("qwen3_xml", "rendering")
    assert found["reasoning_format"] == "think"
    assert found["markers"]["section_begin"].strip() == "<tool_call>"


def test_an_unknown_name_stops_the_start():
    done = subprocess.run([PROGRAM, "serve", "--port", "0", "--tool-format", "hermse"], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode != 0
    assert 'no tool format "hermse"' in done.stderr and "hermes" in done.stderr


@pytest.mark.parametrize("arguments", ["{", "twelve", "[1]"])
def test_arguments_that_are_no_json_do_not_fail_a_request(server, model, arguments):
    body = {"model": model, "messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]},
        {"role": "tool", "tool_call_id": "1", "content": "no"}]}
    reply = server.http.post("/v1/chat/completions", json=body | {"max_tokens": 1})
    assert reply.status_code == 200, reply.text
    assert arguments in server.http.post("/apply-template", json=body).json()["prompt"]
