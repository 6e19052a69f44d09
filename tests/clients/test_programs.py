"""Heavy programs, with PLATEAU_LONG=1: Claude Code, Codex, inspect-ai and lm-eval, from
requirements/programs.txt. Prompts of the first two have more tokens than the context of the starter model."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

from servers import ANSWER_S, SDK_KEY
from sdk import MKDIR, Order

LONG = os.environ.get("PLATEAU_LONG")
BOTH = pytest.mark.parametrize("model", ["canary", "smollm2"])


def needs(module):
    """Its folder; skips the test where it is not installed or not asked for."""
    spec = importlib.util.find_spec(module)
    if not LONG or not spec:
        pytest.skip("PLATEAU_LONG is not set" if not LONG else f"{module} is not installed")
    return pathlib.Path(spec.submodule_search_locations[0])


@pytest.fixture
def run(both, tmp_path):
    """Runs a program in a home of its own, which must end well and send a prompt. Returns its output."""
    def run(*command, **env):
        before = prompts(both)
        got = subprocess.run([str(c) for c in command], input="", capture_output=True, text=True, timeout=ANSWER_S,
                             cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path), **env})
        assert got.returncode == 0, got.stdout[-3000:] + got.stderr[-3000:]
        assert prompts(both) > before
        return got.stdout
    return run


def prompts(server):
    return sum(v for k, v in server.metrics().items() if k.startswith("vllm:prompt_tokens_total"))


@pytest.fixture
def claude(both, run):
    program = needs("claude_agent_sdk") / "_bundled/claude"
    env = dict(ANTHROPIC_BASE_URL=both.url, ANTHROPIC_AUTH_TOKEN=SDK_KEY, ANTHROPIC_MODEL="canary",
               ANTHROPIC_DEFAULT_OPUS_MODEL="canary", ANTHROPIC_DEFAULT_SONNET_MODEL="canary",
               ANTHROPIC_DEFAULT_HAIKU_MODEL="canary", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
               CLAUDE_CODE_MAX_CONTEXT_TOKENS="32768", DISABLE_AUTOUPDATER="1")
    return lambda *words: run(program, "-p", MKDIR, "--max-turns", "1", *words, **env)


def test_claude_code(claude):
    output = claude("--output-format", "stream-json", "--verbose", "--include-partial-messages")
    said = [json.loads(line) for line in output.splitlines()]
    deltas = [s for s in said if s["type"] == "stream_event" and s["event"]["type"] == "content_block_delta"]
    assert deltas and said[-1]["type"] == "result" and not said[-1]["is_error"]


@pytest.fixture
def codex(both, run, tmp_path):
    program = needs("codex_cli_bin") / "bin/codex"
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/config.toml").write_text(f"""model = "canary"
model_provider = "plateau"
model_context_window = 32768
[model_providers.plateau]
name = "Plateau"
base_url = "{both.url}/v1"
env_key = "LOCAL_KEY"
wire_api = "responses"
""")
    return lambda *words: run(program, "exec", "--skip-git-repo-check", "--json", *words, MKDIR, LOCAL_KEY=SDK_KEY,
                              CODEX_HOME=str(tmp_path / ".codex"))


def items(output, kind):
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert not [f for f in found if f["type"] in ("error", "turn.failed")], found
    return [f["item"] for f in found if f["type"] == "item.completed" and f["item"]["type"] == kind]


def test_codex(codex):
    assert items(codex(), "agent_message")


def test_codex_with_a_schema(codex, tmp_path):
    (tmp_path / "order.json").write_text(json.dumps({**Order.model_json_schema(), "additionalProperties": False}))
    assert Order.model_validate_json(items(codex("--output-schema", "order.json"), "agent_message")[-1]["text"])


INSPECT = '''
import sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

task = Task([Sample(input="What does mkdir do?", target="directory")], solver=generate(), scorer=includes())
(log,) = eval(task, model=sys.argv[1], model_base_url=sys.argv[2], display="none", max_tokens=60, temperature=0,
              log_dir="logs")
assert log.status == "success", log.error
print(log.samples[0].output.completion)
'''


@pytest.mark.parametrize("provider", ["openai-api/plateau", "openai"])
def test_inspect_ai(both, run, provider):
    needs("inspect_ai")
    said = run(sys.executable, "-c", INSPECT, f"{provider}/canary", both.url + "/v1",
               PLATEAU_API_KEY=SDK_KEY, OPENAI_API_KEY=SDK_KEY)
    assert "directory" in said


@BOTH
def test_lm_eval(both, run, model, tmp_path):
    needs("lm_eval")
    if model == "smollm2" and both.missing:
        pytest.skip(both.missing)
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in (
        {"question": "mkdir creates a", "choices": ["directory", "banana"], "answer": 0},
        {"question": "ls lists", "choices": ["trees", "files"], "answer": 1})))
    (tmp_path / "two.yaml").write_text(f"""task: two
dataset_path: json
dataset_kwargs:
  data_files: {{test: {tmp_path}/questions.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: answer
metric_list: [{{metric: acc}}]
""")
    said = run(sys.executable, "-m", "lm_eval", "--model", "local-completions", "--tasks", "two", "--include_path", tmp_path,
               "--output_path", "out", "--model_args",
               f"model={model},base_url={both.url}/v1/completions,tokenizer_backend=remote,auth_token={SDK_KEY}",
               OPENAI_API_KEY=SDK_KEY, HF_DATASETS_OFFLINE="1")
    assert "|two" in said
