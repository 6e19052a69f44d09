"""lm-evaluation-harness, with the server's tokenizer."""

import json
import sys

from sdk import ENDLESS, EXTRACT, LONG, MKDIR, Order

PACKAGE = "lm-eval"
OVERFLOW = "maximum context length"
LACKS = {"stream": "it reads whole replies", "tools": "it takes the content of a reply, and drops calls"}
QUESTIONS = [{"question": "mkdir creates a", "choices": ["directory", "banana"], "answer": 0},
             {"question": "ls lists", "choices": ["trees", "files"], "answer": 1}]
CHOICE = """output_type: multiple_choice
doc_to_choice: choices
doc_to_target: answer
metric_list: [{metric: acc}]
"""
TEXT = """output_type: generate_until
doc_to_target: "directory"
metric_list: [{metric: exact_match}]
"""
SCHEMA = {"type": "json_schema", "json_schema": {"name": "order", "schema": Order.model_json_schema()}}
ORDER_TEXT = TEXT + f"generation_kwargs: {json.dumps({'max_gen_toks': 200, 'until': [], 'response_format': SCHEMA})}\n"
ENDLESS_TEXT = TEXT + f"generation_kwargs: {{max_gen_toks: {ENDLESS}, until: [never], ignore_eos: true}}\n"


def command(at, kind=CHOICE, questions=QUESTIONS, **more):
    (at.home / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
    (at.home / "own.yaml").write_text(f"""task: own
dataset_path: json
dataset_kwargs:
  data_files: {{test: {at.home}/questions.jsonl}}
test_split: test
doc_to_text: "{{{{question}}}}"
{kind}""")
    arguments = {"model": at.model, "base_url": at.base + "/completions", "tokenizer_backend": "remote", "auth_token": at.key,
                 "max_retries": 1, **more}
    return (sys.executable, "-m", "lm_eval", "--model", "local-completions", "--tasks", "own", "--include_path", at.home,
            "--output_path", "out", "--model_args", ",".join(f"{k}={v}" for k, v in arguments.items()))


def env(at):
    return dict(OPENAI_API_KEY=at.key, HF_DATASETS_OFFLINE="1")


def hello(at):
    said = at.run(*command(at), env=env(at))
    assert "|own" in said
    return said


def structured(at):
    """Its tasks send fields of the server, and its log has the reply."""
    at.run(*command(at, ORDER_TEXT, [{"question": EXTRACT}]), "--log_samples", env=env(at))
    (log,) = at.home.glob("out/*/samples_own_*.jsonl")
    return Order.model_validate_json(json.loads(log.read_text())["resps"][0][0])


def overflow(at):
    """It cuts prompts to max_length, its own belief in the context."""
    return at.run(*command(at, TEXT, [{"question": LONG}], max_length=10**6), env=env(at), status=(1,), errors=True)


def cancel(at):
    at.leave(*command(at, ENDLESS_TEXT, [{"question": MKDIR}], max_length=10**6), env=env(at), ready=lambda _: at.server.requests("decoding"))
