"""plateau parse: raw output on standard input, one JSON object on standard output."""
import json
import os
import pathlib
import pty
import subprocess

import pytest

PROGRAM = os.environ["PLATEAU_PROGRAM"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
CANARY = ROOT / "models" / "canary"
TEMPLATES = pathlib.Path(os.environ.get("PLATEAU_TEMPLATES", ROOT.parent / "shared" / "templates"))

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}}}}]
CALL = "<tool_call>\n<function=f>\n<parameter=s>\n3\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>"


def run(text, *options, status=0):
    done = subprocess.run([PROGRAM, "parse", *map(str, options)], input=text.encode(), capture_output=True, timeout=60)
    assert done.returncode == status, done.stderr.decode()
    return json.loads(done.stdout) if status == 0 else done.stderr.decode()


@pytest.fixture
def tools(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return path


def test_reasoning_content_and_typed_arguments(tools):
    text = "<think>\nHm.\n</think>\n\nI look.\n\n" + CALL
    want = {"reasoning": "Hm.", "content": "I look.", "tool_calls": [{"name": "f", "arguments": {"s": "3", "n": 3}}]}
    assert run(text, "--template", CANARY, "--tools", tools) == want
    for chunk in (1, 2, 3, 7, 64):
        assert run(text, "--template", CANARY, "--tools", tools, "--chunk", chunk) == want


def test_without_a_schema_arguments_are_strings():
    assert run(CALL, "--template", CANARY)["tool_calls"][0]["arguments"] == {"s": "3", "n": "3"}


def test_an_empty_list_of_tools_makes_calls_text(tmp_path):
    path = tmp_path / "none.json"
    path.write_text("[]")
    out = run(CALL, "--template", CANARY, "--tools", path)
    assert out == {"reasoning": "", "content": CALL, "tool_calls": []}


def test_arguments_that_are_no_object_are_text():
    out = run('<tool_call>{"name": "f", "arguments": {broken}}</tool_call>', "--tool-format", "hermes")
    assert out["tool_calls"] == [{"name": "f", "arguments": "{broken}"}]


def test_names_override_the_template():
    text = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    out = run(text, "--template", CANARY, "--tool-format", "hermes", "--reasoning-format", "none")
    assert out == {"reasoning": "", "content": "", "tool_calls": [{"name": "f", "arguments": {}}]}
    assert run(text, "--tool-format", "none")["content"] == text


def test_mistakes_are_explained(tmp_path):
    assert "hermes" in run("", "--tool-format", "nothing", status=1)
    assert "think" in run("", "--tool-format", "hermes", "--reasoning-format", "nothing", status=1)
    assert "--template" in run("", status=2)
    assert "No such file" in run("", "--template", tmp_path / "absent", status=1)
    (tmp_path / "t").write_text("{{ 1")
    assert "chat template" in run("", "--template", tmp_path / "t", status=1)
    (tmp_path / "tools").write_text("{}")
    assert "list of tools" in run("", "--template", CANARY, "--tools", tmp_path / "tools", status=1)


def test_bytes_that_are_no_text_are_replaced():
    done = subprocess.run([PROGRAM, "parse", "--tool-format", "hermes", "--chunk", "1"], input=b"a\xff\xe2\x82",
                          capture_output=True, timeout=60)
    assert json.loads(done.stdout)["content"] == "a\ufffd\ufffd"


def test_control_characters_are_not_sent_to_a_terminal():
    """JSON escapes those of ASCII; the others are replaced there, and kept elsewhere."""
    master, slave = pty.openpty()
    text = "a\x9b31m\x7fb".encode()
    shown = subprocess.run([PROGRAM, "parse", "--tool-format", "hermes"], input=text, stdout=slave, stderr=subprocess.PIPE, timeout=60)
    os.close(slave)
    assert shown.returncode == 0, shown.stderr
    said = os.read(master, 4096).decode()
    os.close(master)
    assert json.loads(said)["content"] == "a\ufffd31m\x7fb" and "\x7f" not in said
    assert run(text.decode(), "--tool-format", "hermes")["content"] == "a\x9b31m\x7fb"


def test_the_format_is_described():
    out = run("", "--template", CANARY, "--describe")
    assert (out["tool_format"], out["tool_format_found_by"]) == ("qwen3_xml", "rendering")
    assert out["markers"]["call_begin"] == "<function="
    assert not out["prompt_opens_reasoning"]


# A reply of each of these templates, as its model writes it.
REPLIES = {
    "openai-gpt-oss-120b": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
                           "to=functions.f <|constrain|>json<|message|>{}<|call|>",
    "moonshotai-Kimi-K2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
                          "<|tool_call_end|><|tool_calls_section_end|>",
    "meetkai-functionary-medium-v3.2": "f\n{}",
    "LFM2.5-Instruct": "<|tool_call_start|>[f()]<|tool_call_end|>",
    "google-gemma-4-31B-it-interleaved": "<|tool_call>call:f{}<tool_call|>",
    "Mistral-Small-3.2-24B-Instruct-2506": "[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{}",
    "GLM-4.7-Flash": "Hm.</think><tool_call>f</tool_call>",
    "meta-llama-Llama-3.1-8B-Instruct": '{"name": "f", "parameters": {}}',
}


@pytest.mark.parametrize("name", REPLIES)
def test_other_peoples_templates(name, tools):
    path = TEMPLATES / f"{name}.jinja"
    if not path.exists():
        pytest.skip(f"no {path.name} in {TEMPLATES}; name the folder in PLATEAU_TEMPLATES")
    for chunk in (0, 1, 5):
        out = run(REPLIES[name], "--template", path, "--tools", tools, "--chunk", chunk)
        assert [(c["name"], c["arguments"]) for c in out["tool_calls"]] == [("f", {})]
        assert out["content"] == ""
