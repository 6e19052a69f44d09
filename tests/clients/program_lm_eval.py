"""lm-evaluation-harness, with the server's tokenizer."""

import json
import sys

from sdk import ENDLESS, LONG, MKDIR

PACKAGE = "lm-eval"
OVERFLOW = "maximum context length"
LACKS = {"stream": "it reads whole replies", "tools": "its tasks have none", "structured": "its tasks have no schemas"}
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


def overflow(at):
    """It cuts prompts to max_length, its own belief in the context."""
    return at.run(*command(at, TEXT, [{"question": LONG}], max_length=10**6), env=env(at), status=(1,), errors=True)


def cancel(at):
    at.leave(*command(at, ENDLESS_TEXT, [{"question": MKDIR}], max_length=10**6), env=env(at), ready=lambda _: at.server.requests("decoding"))
