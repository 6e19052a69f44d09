"""plateau generate from the command line: the bundled model's answers equal the reference's, and mistakes
get messages."""

import functools
import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PLATEAU_PROGRAM", str(ROOT / "build" / "plateau"))
GOLDEN = json.loads((ROOT / "tests/golden/data/canary-8bit/golden.json").read_text())
SINGLE = [c for c in GOLDEN["cases"] if len(c["messages"]) == 1 and not c["tools"]]


def run(*arguments, stdin=None):
    return subprocess.run(
        [PROGRAM, *arguments], input=stdin, capture_output=True, text=True, timeout=120
    )


def arguments_of(case):
    return ["--temperature", "0", "--model", str(ROOT / "models/canary")] + (
        ["--think"] if case["enable_thinking"] else []
    )


@pytest.mark.parametrize("index", range(len(SINGLE)))
def test_answers_are_the_references(index):
    case = SINGLE[index]
    got = run("generate", *arguments_of(case), case["messages"][0]["content"])
    assert got.returncode == 0, got.stderr
    assert got.stdout == case["greedy_text"] + "\n"


def test_the_models_own_sampling_holds_without_options(tmp_path):
    for file in (ROOT / "models/canary").iterdir():
        if file.name != "generation_config.json":
            (tmp_path / file.name).symlink_to(file)
    config = json.loads((ROOT / "models/canary/generation_config.json").read_text())
    config |= {"temperature": 2.0, "top_p": 1.0, "top_k": 1}
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    case = SINGLE[0]
    ask = ["generate", "--model", str(tmp_path), "--seed", "5", *(["--think"] if case["enable_thinking"] else [])]
    prompt = case["messages"][0]["content"]
    assert run(*ask, prompt).stdout == case["greedy_text"] + "\n"
    assert run(*ask, "--top-k", "1000", prompt).stdout != case["greedy_text"] + "\n"


IMAGES = ROOT / "tests/golden/data/canary-8bit/images"


@pytest.mark.parametrize("index", range(len(GOLDEN["vision"])))
def test_answers_about_images_are_the_references(index):
    case = GOLDEN["vision"][index]
    got = run("generate", "--temperature", "0", "--image", str(IMAGES / case["image"]), case["question"])
    assert got.returncode == 0, got.stderr
    assert got.stdout == case["greedy_text"] + "\n"


def test_a_image_may_be_a_file_by_any_name_and_several_keep_their_order(tmp_path):
    named = tmp_path / "a b%20\u00e9.png"
    named.write_bytes((IMAGES / "0.png").read_bytes())
    (tmp_path / "link.png").symlink_to(named)
    green = "A green triangle on a gray background.\n"
    ask = ["generate", "--temperature", "0"]
    for name in [str(named), f"'{named}'", str(tmp_path / "link.png"), named.as_uri()]:
        assert run(*ask, "--image", name, "What do you see?").stdout == green, name
    one, other = ["--image", str(IMAGES / "3.png")], ["--image", str(IMAGES / "7.png")]
    assert len({run(*ask, *both, "What do you see?").stdout for both in [one + other, other + one]}) == 2


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--image", "/nonexistent.png"], "/nonexistent.png: the file cannot be read: No such file or directory"),
        (["--image", "/dev/zero"], "/dev/zero: the path names no regular file"),
        (["--image", str(ROOT / "README.md")], "README.md: the image format is not supported"),
        (["--image", str(ROOT / "README.md"), "--max-media-bytes", "1K"], "at most 1024 are read (--max-media-bytes)"),
        (["--image", str(IMAGES / "0.png"), "--max-media-pixels", "1024"], "0.png: "),
        (["--image", "http://127.0.0.1:1/0.png"], "is at an address that is not public"),
        (["--image", str(IMAGES / "0.png"), "--max-image-pixels", "0"], "without its vision encoder (--max-image-pixels 0)"),
        (["--image", str(IMAGES / "0.png"), "--raw"], "--image needs the model's chat template"),
        (["--image", str(IMAGES / "0.png"), "--system", "<|image_pad|>"], 'has "<|image_pad|>" in it'),
        (["--image", str(IMAGES / "0.png"), "--max-model-len", "24"], "24 tokens (--max-model-len)"),
        (["--image", str(IMAGES / "0.png"), "--model", str(ROOT / "tests/golden/data/qwen3")], "has no tokenizer.json"),
    ],
)
def test_what_is_no_image_is_told(arguments, words):
    got = run("generate", *arguments, "What do you see?")
    assert got.returncode == 1 and got.stdout == ""
    assert words in got.stderr and got.stderr.count("\n") == 1 and ".." not in got.stderr


@pytest.mark.smoke
def test_a_rendered_prompt_gives_the_same_answer_from_standard_input():
    case = GOLDEN["cases"][15]  # offers tools, answers with a call
    got = run("generate", *arguments_of(case), "--raw", "-", stdin=case["rendered"])
    assert got.returncode == 0, got.stderr
    assert got.stdout == case["greedy_text"] + "\n"


@pytest.mark.smoke
def test_the_same_seed_gives_the_same_text():
    texts = {
        run("generate", "--raw", "--temperature", "2", "--seed", seed, "--max-tokens", "20", "a").stdout
        for seed in ["7", "7", "8"]
    }
    assert len(texts) == 2


@pytest.mark.smoke
@pytest.mark.parametrize(
    "arguments, status, words",
    [
        ([], 2, "PROMPT"),
        (["nonsense"], 2, "nonsense"),
        (["generate"], 2, "prompt is needed"),
        (["generate", "--max-tokens", "-1", "x"], 2, "--max-tokens"),
        (["generate", "--bogus", "x"], 2, "plateau generate --help"),
        (["generate", "--port", "1", "x"], 2, "--port is an option of serve"),
        (["generate", "-x"], 2, "-x"),
        (["serve", "--port", "65536"], 2, "--port 65536: a number from 0 to 65535"),
        (["generate", "--top-k", "1", "--top-k", "2", "x"], 2, "--top-k is given twice, with different values"),
        (["serve", "--temperature", "1"], 2, "--temperature is an option of generate"),
        (["generate", "a", "b"], 2, "one argument too many"),
        (["generate", "--model", "/nonexistent", "x"], 1, "/nonexistent"),
        (["generate", "--compute", "int9", "x"], 1, "int9"),
        (["generate", "--kv-dtype", "f16", "x"], 1, "--kv-dtype f16: auto, f32, bf16, int8, fp8 or int4"),
        (["generate", "--quant", "q7", "x"], 1, "--quant q7: none, q4, q5, q6 or q8"),
        (["generate", "--quant", "q4", "x"], 1, "the model's are mlx 8 bit g64"),
        (["generate", "--max-model-len", "99999999", "x"], 2, "--max-model-len"),
        (["generate", "--memory-limit", "16M", "x"], 1, "does not fit"),
    ],
)
def test_mistakes_are_told(arguments, status, words):
    got = run(*arguments)
    assert got.returncode == status
    assert words in got.stderr or not arguments
    assert got.stderr.strip()


def test_without_a_seed_each_run_draws_anew():
    texts = {run("generate", "--raw", "--temperature", "2", "--max-tokens", "20", "a").stdout for _ in range(3)}
    assert len(texts) == 3


def test_without_a_limit_an_answer_may_fill_the_context():
    got = run("generate", "--raw", "--ignore-eos", "--max-model-len", "64", "a")
    assert got.returncode == 0, got.stderr
    words = run("generate", "--raw", "--ignore-eos", "--max-model-len", "64", "--max-tokens", "5", "a")
    assert len(got.stdout) > len(words.stdout)


def test_a_prompt_longer_than_the_context_is_refused_with_the_limit():
    got = run("generate", "--max-model-len", "64", "word " * 100)
    assert got.returncode == 1
    assert "64 tokens" in got.stderr and "--max-model-len" in got.stderr


@pytest.mark.smoke
def test_version():
    assert re.fullmatch(r"plateau \d+\.\d+\.\d+ \((commit [0-9a-f]{10,}(-dirty)?, )?(gcc|clang) [\d.]+.*, kernels (ref|avx2|avx512), "
                        r"\d+ cores, (with|without) GPU kernels\)\n", run("--version").stdout)


COMMANDS = ["serve", "chat", "generate", "launch", "plan", "models", "pull", "cache", "status", "open", "bench", "load", "unload", "clear", "trim", "completion", "manual", "parse", "schema", "eval", "pack", "why"]


@functools.cache
def help_of(columns, *arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, env={**os.environ, "COLUMNS": columns}).stdout


def examples(text):
    """The commands of a help, each on one line, as the shell joins them."""
    section = re.search(r"^Examples:\n((?:  .*\n)+)", text, re.M).group(1)
    return section.replace(" \\\n      ", " ")


@pytest.mark.smoke
@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_no_line_of_help_is_wider_than_the_terminal(command):
    arguments = [command] if command else []
    for columns in 60, 72, 80, 100, 500:
        for which in "--help", "--help-all":
            assert max(map(len, help_of(str(columns), *arguments, which).splitlines())) <= min(columns, 100)
    if command:
        assert examples(help_of("60", command, "--help")) == examples(help_of("100", command, "--help"))


@pytest.mark.smoke
@pytest.mark.parametrize("command", [[], ["serve"], ["chat"], ["generate"]])
def test_help_uses_the_width_of_the_terminal(command):
    for columns, most in ("60", 60), ("80", 80), ("x", 100), ("500", 100):
        assert min(most, 95) - 15 < max(map(len, help_of(columns, *command, "--help").splitlines())) <= most
    assert help_of("1", *command, "--help") == help_of("40", *command, "--help")


@pytest.mark.smoke
def test_help_shows_the_usual_options_and_help_all_the_others():
    usual, whole = (set(re.findall(r"^  (--[a-z-]+)", run("serve", h).stdout, re.M)) for h in ("--help", "--help-all"))
    assert usual < whole and len(usual) <= 12 < 60 < len(whole)
    assert f"plateau serve --help-all lists all {len(whole)} options." in run("serve", "--help").stdout
    assert run("serve", "-h").stdout == run("serve", "--help").stdout
    # A short list is shown whole.
    assert run("schema", "--help").stdout == run("schema", "--help-all").stdout


@pytest.mark.smoke
def test_letters_of_usual_options():
    assert "/nowhere/model" in run("plan", "-m", "/nowhere/model").stderr
    assert "70000" in run("serve", "-p", "70000").stderr
    assert "-h, -m and -p" in run("serve", "-q").stderr


@pytest.mark.smoke
@pytest.mark.parametrize("command", [[], ["serve"], ["chat"], ["generate"]])
def test_help_is_grouped_and_fits_in_a_hundred_columns(command):
    got = run(*command, "--help")
    assert got.returncode == 0
    assert got.stdout == run("help", *command).stdout
    assert max(map(len, got.stdout.splitlines())) <= 100
    assert "Example" in got.stdout and "Usage: plateau" in got.stdout
    for word in ["serve", "chat", "generate"] if not command else ["Model and memory:", "[default: 0]", "--config"]:
        assert word in got.stdout


@pytest.mark.smoke
def test_the_manual_and_the_table_of_options_name_the_same_options():
    manual = (ROOT / "docs/command-line.md").read_text()
    helps = "".join(run(command, "--help-all").stdout for command in COMMANDS)
    flags = set(re.findall(r"^  (--[a-z-]+)", helps, re.M))
    assert len(flags) > 30
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", manual)) - {"--version"} == flags


def installed(at, checkout):
    """A copy of the program in at/bin, built as if in `checkout`."""
    program = pathlib.Path(PROGRAM).read_bytes()
    place = str(ROOT).encode() + b"\0"
    assert place in program
    other = str(checkout).encode()[: len(place) - 1]
    (at / "bin").mkdir()
    copy = at / "bin/plateau"
    copy.write_bytes(program.replace(place, other + b"\0" * (len(place) - len(other))))
    copy.chmod(0o755)
    return [str(copy), "generate", "--temperature", "0", "What does ls do?"]


def test_an_installed_program_finds_the_bundled_model_or_says_where_to_put_it(tmp_path):
    def answer(command):
        got = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return got.returncode, got.stdout or got.stderr

    found = (0, "ls(1) - list directory contents.\n")
    (tmp_path / "a").mkdir()
    assert answer(installed(tmp_path / "a", ROOT)) == found
    (tmp_path / "b").mkdir()
    lonely = installed(tmp_path / "b", "/n")
    status, words = answer(lonely)
    place = f"{tmp_path}/b/share/plateau/models/canary"
    assert status == 1 and words.endswith(f"copy models/canary of the checkout to {place}\n")
    (tmp_path / "b/share/plateau/models").mkdir(parents=True)
    pathlib.Path(place).symlink_to(ROOT / "models/canary")
    assert answer(lonely) == found
