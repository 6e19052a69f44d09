"""plateau chat, as a person at a terminal and as a script use it; and what a load says while it lasts."""

import errno
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import httpx
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PLATEAU_PROGRAM", str(ROOT / "build" / "plateau"))
LIVE = "I live in London."
WHERE = "Where do I live?"
LONDON = "You live in London."
CHSH = "chsh(1) - change login shell."
CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"
PASTE = "\x1b[200~%s\x1b[201~"
WAIT_S = 30


def environment(folder, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLATEAU_") and k != "NO_COLOR"}
    return {**env, "TERM": "xterm", "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": str(folder),
            "PLATEAU_RUNTIME_DIR": str(folder), **more}


class Terminal:
    """A program on a terminal of its own. `seen` is everything it wrote, `shown` the same without escape
    sequences."""

    def __init__(self, folder, *arguments, program=PROGRAM, **more):
        argv = [program, *map(str, arguments)]
        try:
            self.child, self.fd = pty.fork()
        except OSError as error:
            pytest.skip(f"this system gives out no terminals: {error}")
        if self.child == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 300, 0, 0))
            os.execve(argv[0], argv, environment(folder, **more))
        self.seen, self.at, self.status = "", 0, None
        self.bytes = b""

    def _read(self, seconds):
        """More of its output; False at its end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            block = os.read(self.fd, 65536)
        except OSError as e:
            assert e.errno == errno.EIO
            return False
        self.bytes += block
        self.seen = self.bytes.decode(errors="ignore")
        return bool(block)

    @property
    def shown(self):
        return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", self.seen).replace("\r", "")

    def wait_for(self, text):
        """Until `text` is shown after the text of the previous wait. Long lines break between words."""
        until = time.monotonic() + WAIT_S
        words = re.compile("[ \n]".join(map(re.escape, text.split(" "))))
        while not (found := words.search(self.shown, self.at)):
            assert time.monotonic() < until, f"no {text!r} in {self.shown[self.at:]!r}"
            assert self._read(0.1) or words.search(self.shown, self.at), f"ended without {text!r}: {self.shown!r}"
        self.at = found.end()

    def type(self, text):
        os.write(self.fd, text.encode())

    def say(self, line, answer):
        self.type(line + "\r")
        self.wait_for(line.splitlines()[-1])
        self.wait_for(answer + "\n")
        self.wait_for("> ")

    def end(self):
        """Its exit status, once it has ended; all of its output has been read then."""
        until = time.monotonic() + WAIT_S
        while self._read(0.1):
            assert time.monotonic() < until, f"it does not end: {self.shown[-200:]!r}"
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        return self.status

    def close(self):
        if self.status is None:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
        os.close(self.fd)


@pytest.fixture
def terminal(tmp_path):
    opened = []

    def open_one(*arguments, **more):
        t = Terminal(tmp_path, *arguments, **more)
        opened.append(t)
        return t

    yield open_one
    for t in opened:
        t.close()


@pytest.fixture
def chat(terminal):
    """A conversation whose prompt is there."""

    def open_chat(*arguments, temperature="0", **more):
        t = terminal("chat", "--temperature", temperature, *arguments, **more)
        t.wait_for("/help lists commands.")
        t.wait_for("> ")
        return t

    return open_chat


def script(tmp_path, lines, *arguments):
    return subprocess.run(
        [PROGRAM, "chat", "--temperature", "0", *arguments],
        input=lines if isinstance(lines, bytes) else lines.encode(),
        capture_output=True,
        timeout=120,
        env=environment(tmp_path),
    )


def saved(t, path):
    t.say(f"/save {path}", f"messages are in {path}.]")
    return json.loads(path.read_text())["messages"]


# --- a conversation at a terminal ---


@pytest.mark.smoke
def test_a_turn_and_ctrl_d(chat):
    t = chat()
    t.say("What is chsh?", CHSH)
    t.type(CTRL_D)
    assert t.end() == 0


@pytest.mark.smoke
def test_it_recalls_what_it_was_told_until_reset(chat):
    t = chat()
    t.type(LIVE + "\r")
    t.wait_for("\n> ")
    t.say(WHERE, LONDON)
    t.say("/reset", "new conversation.]")
    t.type(WHERE + "\r")
    t.wait_for("\n> ")
    assert t.shown.count(LONDON) == 1
    t.type("/exit\r")
    assert t.end() == 0


def test_help_lists_every_command_and_an_unknown_one_names_help(chat):
    t = chat()
    t.say("/help", "//etc is a folder.")
    for command in ["/help", "/reset", "/system TEXT", "/image FILE", "/video FILE", "/retry", "/save FILE", "/stats", "/exit"]:
        assert f"  {command} " in t.shown
    t.say("/bogus", "there is no command /bogus; /help lists them.")
    t.say("/exit now", "/exit takes no argument; /help lists the commands.")
    t.say("What is chsh?", CHSH)
    t.type(CTRL_D)
    assert t.end() == 0


@pytest.mark.smoke
def test_ctrl_c_stops_the_answer_and_keeps_what_was_said(chat, tmp_path):
    t = chat("--ignore-eos")
    t.type("What is chsh?\r")
    t.wait_for(CHSH)
    t.type(CTRL_C)
    t.wait_for("[Stopped. What was said stays in the conversation.]")
    t.wait_for("> ")
    user, assistant = saved(t, tmp_path / "a.json")
    assert user == {"role": "user", "content": "What is chsh?"}
    assert assistant["role"] == "assistant" and assistant["content"].startswith(CHSH)
    t.type(CTRL_D)
    assert t.end() == 0


def test_ctrl_c_at_the_prompt_clears_the_line_and_twice_leaves(chat):
    t = chat()
    t.type("/exit")
    t.wait_for("/exit")
    t.type(CTRL_C)
    t.wait_for("[Ctrl-C once more, Ctrl-D or /exit leaves.]")
    t.wait_for("> ")
    t.say("What is chsh?", CHSH)  # the line was empty, and a message makes the next Ctrl-C a first one
    t.type(CTRL_C)
    t.wait_for("[Ctrl-C once more")
    t.wait_for("> ")
    t.type(CTRL_C)
    assert t.end() == 0


def test_a_message_that_does_not_fit_loses_nothing(chat):
    t = chat("--max-model-len", "96")
    t.type(LIVE + "\r")
    t.wait_for("\n> ")
    t.type("word " * 120 + "\r")
    t.wait_for("does not fit into the context of 96 tokens")
    t.wait_for("> ")
    t.say(WHERE, LONDON)
    t.type(CTRL_D)
    assert t.end() == 0


def test_a_full_context_is_told(chat):
    t = chat("--max-model-len", "64", "--ignore-eos")
    t.say("What is chsh?", "[The context of 64 tokens is full (--max-model-len). /reset begins a new conversation.]")
    t.say("More.", "Nothing was sent and nothing is lost: shorten the message, or /reset.")


def test_a_limit_on_the_answer_is_told(chat):
    chat("--max-tokens", "3").say("What is chsh?", "[Cut at 3 tokens: --max-tokens.]")


def test_system_retry_and_save(chat, tmp_path):
    t = chat("--system", "You are Canary.", "--seed", "5", temperature="2")
    t.say("/retry", "there is no answer to make again.")
    t.type("What is chsh?\r")
    t.wait_for("\n> ")
    first = saved(t, tmp_path / "1.json")
    assert [m["role"] for m in first] == ["system", "user", "assistant"]
    assert first[0]["content"] == "You are Canary."
    t.type("/retry\r")
    t.wait_for("/retry")
    t.wait_for("\n> ")
    second = saved(t, tmp_path / "2.json")
    assert second[:2] == first[:2] and len(second) == 3 and second[2] != first[2]
    t.say("/system Answer briefly.", "[The system message is set, from the next answer on.]")
    assert saved(t, tmp_path / "3.json")[0] == {"role": "system", "content": "Answer briefly."}
    t.say("/system", "[There is no system message any more.]")
    assert saved(t, tmp_path / "4.json") == second[1:]
    t.say(f"/save {tmp_path / '4.json'}", "cannot be made: File exists.")
    assert os.stat(tmp_path / "4.json").st_mode & 0o777 == 0o600
    t.type(CTRL_D)
    assert t.end() == 0


def test_stats_tells_tokens_speed_and_the_ledger(chat):
    t = chat()
    t.say("What is chsh?", CHSH)
    t.type("/stats\r")
    t.wait_for("limit")
    t.wait_for("> ")
    assert re.search(r"prompt +\d+ tokens in \d+\.\d+ s", t.shown)
    assert re.search(r"answer +\d+ tokens in \d+\.\d+ s, \d+\.\d tokens/s", t.shown)
    assert re.search(r"context +\d+ of 32768 tokens", t.shown)
    assert re.search(r"weights +\d+\.\d MiB", t.shown)


def test_stats_count_a_stopped_answer(chat):
    t = chat("--ignore-eos")
    t.type("What is chsh?\r")
    t.wait_for(CHSH)
    t.type(CTRL_C)
    t.wait_for("[Stopped.")
    t.wait_for("> ")
    t.type("/stats\r")
    t.wait_for("limit")
    t.wait_for("> ")
    prompt, answer, context = (int(re.search(words, t.shown)[1]) for words in (r"prompt +(\d+) tokens in", r"answer +(\d+) tokens in", r"context +(\d+) of"))
    assert prompt > 10 and answer >= 6 and context == prompt + answer, t.shown


def test_reasoning_is_dim_or_hidden_and_never_part_of_the_answer(chat, tmp_path):
    dim = chat("--think")
    dim.say("What does tcgetpgrp do?", "tcgetpgrp(3) - get and set terminal foreground process group.")
    thoughts = re.findall(r"\x1b\[2m(.*?)\x1b\[0m", dim.seen.split("tcgetpgrp do?")[1], re.S)
    assert "The user asks about tcgetpgrp" in "".join(thoughts)
    answer = saved(dim, tmp_path / "a.json")[1]
    assert answer["content"] == "tcgetpgrp(3) - get and set terminal foreground process group."
    assert answer["reasoning_content"].startswith("The user asks about tcgetpgrp")

    hidden = chat("--think", "--hide-reasoning")
    hidden.say("What does tcgetpgrp do?", "tcgetpgrp(3) - get and set terminal foreground process group.")
    assert "The user asks" not in hidden.shown

    plain = chat("--think", NO_COLOR="1")
    plain.say("What does tcgetpgrp do?", "tcgetpgrp(3) - get and set terminal foreground process group.")
    assert "(thinking) The user asks about tcgetpgrp" in plain.shown
    assert not re.search(r"\x1b\[[0-9;]*m", plain.seen)


def test_messages_are_kept_for_the_arrow_keys_of_the_next_run(chat, tmp_path):
    t = chat()
    t.say("What is chsh?", CHSH)
    t.type(CTRL_D)
    assert t.end() == 0
    kept = tmp_path / "plateau" / "chat_history"
    assert kept.stat().st_mode & 0o777 == 0o600 and kept.parent.stat().st_mode & 0o777 == 0o700
    assert kept.read_text().count("chsh") == 1

    t = chat()
    t.type(UP)
    t.wait_for("What is chsh?")
    t.type("\r")
    t.wait_for(CHSH)

    before = kept.read_text()
    t = chat("--history", "")
    t.say("What is chsh?", CHSH)
    assert kept.read_text() == before


def test_a_paste_of_several_lines_and_a_line_that_goes_on_are_one_message(chat, tmp_path):
    t = chat()
    t.type(PASTE % "Note that the secret code is 7325.\rRemember it.\x1b")
    t.wait_for("Remember it.")
    t.type("\r")
    t.wait_for("\n> ")
    t.type("Tell me \\\r")
    t.wait_for(". ")
    t.say("the secret code.", "The secret code is 7325.")
    asked = [m["content"] for m in saved(t, tmp_path / "a.json") if m["role"] == "user"]
    assert asked == ["Note that the secret code is 7325.\nRemember it.", "Tell me \nthe secret code."]


def test_letters_beyond_ascii_and_a_slash(chat, tmp_path):
    t = chat("--max-tokens", "8", LC_ALL="C")
    t.type("Grüße, 漢字\r")
    t.wait_for("\n> ")
    t.type("//etc\r")
    t.wait_for("//etc")
    t.wait_for("\n> ")
    asked = [m["content"] for m in saved(t, tmp_path / "a.json") if m["role"] == "user"]
    assert asked == ["Grüße, 漢字", "/etc"]


def test_the_terminal_is_given_back_as_it_was(chat):
    t = chat()
    during = termios.tcgetattr(t.fd)
    t.type(CTRL_D)
    assert t.end() == 0
    after = termios.tcgetattr(t.fd)
    assert not during[3] & termios.ICANON
    assert after[3] & termios.ICANON and after[3] & termios.ECHO
    assert t.seen.count("\x1b[?2004h") == t.seen.count("\x1b[?2004l") == 1


@pytest.fixture
def rude_model(tmp_path):
    """The bundled model, but where it would say " -" it says the byte of Escape."""
    folder = tmp_path / "rude"
    folder.mkdir()
    for file in (ROOT / "models/canary").iterdir():
        (folder / file.name).symlink_to(file)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    escape, dash = "\u011b", "\u0120-"
    vocab[escape], vocab[dash] = vocab[dash], vocab[escape]
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def test_a_model_cannot_send_control_characters_to_a_terminal(terminal, chat, tmp_path, rude_model):
    generate = ["generate", "--temperature", "0", "--model", rude_model, "What is chsh?"]
    piped = subprocess.run([PROGRAM, *generate], capture_output=True, timeout=120, env=environment(tmp_path))
    assert piped.stdout == b"chsh(1)\x1b change login shell.\n"
    t = terminal(*generate)
    assert t.end() == 0
    assert t.shown.endswith("chsh(1)\ufffd change login shell.\n")
    chat(rude_model).say("What is chsh?", "chsh(1)\ufffd change login shell.")


# --- images ---

IMAGES = ROOT / "tests/golden/data/canary-8bit/images"
GREEN, PURPLE = "A green triangle on a gray background.", "A purple ring on a gray background."
SEE = "What do you see?"


def test_a_image_goes_with_the_next_message_and_the_prompt_says_so(chat, tmp_path):
    t = chat()
    t.say(f"/image {IMAGES / '0.png'}", "[12 tokens, with the next message.]")
    assert t.shown.endswith("\n[1 attached] > ")
    t.say(SEE, GREEN)
    assert t.shown.endswith("\n> ")
    t.say("What colour is it?", "Green.")
    first, _, second, _ = saved(t, tmp_path / "a.json")
    assert first["content"] == [
        {"type": "image", "image": (IMAGES / "0.png").as_uri()},
        {"type": "text", "text": SEE},
    ]
    assert second["content"] == "What colour is it?"
    t.type("/retry\r")
    t.wait_for("/retry")
    t.wait_for("Green.\n> ")
    t.type(CTRL_D)
    assert t.end() == 0


def test_a_image_that_cannot_be_read_changes_nothing(chat):
    t = chat()
    t.say(f"/image {IMAGES / '0.png'}", "with the next message.]")
    t.say("/image nope.png", "nope.png: the file cannot be read: No such file or directory.")
    t.say(f"/video {IMAGES / '0.png'}", ".")
    assert t.shown.endswith("\n[1 attached] > ")
    t.say(f"/image '{IMAGES / '3.png'}'", "with the next message.]")
    assert t.shown.endswith("\n[2 attached] > ")
    t.say("/image", "[Nothing goes with the next message any more.]")
    assert t.shown.endswith("\n> ")
    t.say("What is chsh?", CHSH)


def test_images_are_forgotten_with_their_conversation(chat):
    t = chat()
    t.say(f"/image {IMAGES / '3.png'}", "with the next message.]")
    t.say(SEE, PURPLE)
    t.type("/stats\r")
    t.wait_for("limit")
    t.wait_for("> ")
    assert re.search(r"\n +weights +\d", t.shown) and not re.search(r"\n +media +\d", t.shown), "no decoded image waits for a message"
    t.say("/reset", "new conversation.]")
    t.say(f"/image {IMAGES / '0.png'}", "with the next message.]")
    t.say(SEE, GREEN)


def test_a_message_whose_image_does_not_fit_leaves_it_attached(chat):
    t = chat("--max-model-len", "64")
    t.say(f"/image {IMAGES / '0.png'}", "[12 tokens, with the next message.]")
    t.type("word " * 60 + "\r")
    t.wait_for("does not fit into the context of 64 tokens")
    t.wait_for("[1 attached] > ")
    t.say(SEE, GREEN)
    t.type(CTRL_D)
    assert t.end() == 0


def test_a_script_shows_images(tmp_path):
    got = script(tmp_path, f"/image {IMAGES / '3.png'}\n{SEE}\n/image nope.png\n")
    assert got.stdout.decode() == PURPLE + "\n"
    assert got.stderr.decode() == "plateau: nope.png: the file cannot be read: No such file or directory.\n"
    assert got.returncode == 1
    got = script(tmp_path, f"/image {IMAGES / '3.png'}\n", "--max-image-pixels", "0")
    assert b"is loaded without its vision encoder (--max-image-pixels 0)." in got.stderr


# --- in a script ---


@pytest.mark.smoke
def test_a_script_gets_answers_and_nothing_else(tmp_path):
    got = script(tmp_path, f"{LIVE}\n\n{WHERE}\r\nWhat is \\\nchsh?")
    lines = got.stdout.decode().splitlines()
    assert got.returncode == 0 and got.stderr == b""
    assert len(lines) == 3 and lines[1] == LONDON and lines[2].startswith("chsh(")
    assert b"\x1b" not in got.stdout
    assert not (tmp_path / "plateau").exists()


@pytest.mark.smoke
def test_a_script_is_told_what_failed_and_goes_on(tmp_path):
    got = script(tmp_path, b"/bogus\n\xff\xfe\nWhat is chsh?\n")
    assert got.returncode == 1
    assert got.stdout.decode() == CHSH + "\n"
    assert got.stderr.decode().splitlines() == [
        "plateau: there is no command /bogus; /help lists them.",
        "plateau: the message is not valid UTF-8 text.",
    ]


def test_a_script_is_ended_by_an_interrupt(tmp_path):
    command = [PROGRAM, "chat", "--ignore-eos", "--temperature", "0"]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with subprocess.Popen(command, env=environment(tmp_path), **pipes) as p:
        p.stdin.write(b"What is chsh?\nWhat is chsh?\n")
        p.stdin.flush()
        assert p.stdout.read(4) == b"chsh"
        p.send_signal(signal.SIGINT)
        assert p.wait(30) == 130


@pytest.mark.smoke
def test_mistakes_are_told(tmp_path):
    assert b"/nonexistent" in script(tmp_path, "x\n", "/nonexistent").stderr
    assert script(tmp_path, "x\n", "/nonexistent").returncode == 1
    assert b"one argument too many" in script(tmp_path, "x\n", "a", "b").stderr
    for name in ["config.json", "model.safetensors"]:
        (tmp_path / name).symlink_to(ROOT / "models/canary" / name)
    assert b"has no tokenizer.json" in script(tmp_path, "x\n", str(tmp_path)).stderr
    (tmp_path / "tokenizer.json").symlink_to(ROOT / "models/canary/tokenizer.json")
    assert b"has no chat template" in script(tmp_path, "x\n", str(tmp_path)).stderr
    got = script(tmp_path, "x\n", "--max-num-seqs", "2")
    assert got.returncode == 2 and b"an option of serve, not of chat" in got.stderr


# --- while a model loads ---


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory):
    """Three layers of zeros, 412 MiB of which the file system stores none, with the bundled model's texts."""
    folder = tmp_path_factory.mktemp("zeros") / "zeros"
    folder.mkdir()
    for name in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]:
        (folder / name).symlink_to(ROOT / "models/canary" / name)
    hidden, inner, vocab, heads, keys = 2048, 8192, 8192, 16, 4
    head = hidden // heads
    config = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=hidden, intermediate_size=inner)
    config.update(num_hidden_layers=3, num_attention_heads=heads, num_key_value_heads=keys, head_dim=head)
    config.update(vocab_size=vocab, max_position_embeddings=4096, rms_norm_eps=1e-5, rope_theta=10000.0)
    config.update(tie_word_embeddings=False, hidden_act="silu", torch_dtype="bfloat16")
    shapes = {"model.embed_tokens": (vocab, hidden), "model.norm": (hidden,), "lm_head": (vocab, hidden)}
    for i in range(3):
        layer = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}
        layer.update({"self_attn.q_proj": (heads * head, hidden), "self_attn.k_proj": (keys * head, hidden)})
        layer.update({"self_attn.v_proj": (keys * head, hidden), "self_attn.o_proj": (hidden, heads * head)})
        layer.update({"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)})
        shapes.update({f"model.layers.{i}.{name}": shape for name, shape in layer.items()})
    at, header = 0, {}
    for name, shape in shapes.items():
        end = at + 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[f"{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    (folder / "config.json").write_text(json.dumps(config))
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    return folder


def pause_load(url, child, seconds):
    """However quick the machine, the load takes longer than this."""
    until = time.monotonic() + WAIT_S
    while not httpx.get(url + "/health").json().get("progress"):
        assert time.monotonic() < until
    os.kill(child, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(child, signal.SIGCONT)


def test_a_load_has_one_line_on_a_terminal_that_goes_away(terminal, slow_model):
    t = terminal("serve", slow_model, "--port", "0")
    t.wait_for("(model zeros)")
    pause_load(re.search(r"http://[0-9.:]+", t.shown)[0], t.child, 0.4)
    t.wait_for(" ready models=1")
    lines = re.findall(r"\r\x1b\[KLoading zeros: (\d+) %, [0-9.]+ \w+ of 412\.0 MiB", t.seen)
    assert lines and [int(n) for n in lines] == sorted(int(n) for n in lines)
    drawn = t.seen.rindex("Loading zeros")
    assert "\n" not in t.seen[t.seen.index("Loading zeros") : drawn]
    assert t.seen[drawn:].index("\r\x1b[K") < t.seen[drawn:].index("ready\x1b")
    t.type(CTRL_C)
    assert t.end() == 0


def test_a_load_writes_log_lines_where_no_terminal_is(slow_model, tmp_path):
    command = [PROGRAM, "serve", str(slow_model), "--port", "0"]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with subprocess.Popen(command, env=environment(tmp_path), **pipes) as p:
        pause_load(re.search(r"http://[0-9.:]+", p.stdout.readline())[0], p.pid, 2.1)
        lines = []
        for line in p.stderr:
            lines.append(line)
            if "event=ready" in line:
                break
        p.send_signal(signal.SIGTERM)
        assert p.wait(30) == 0
    loading = [line for line in lines if "event=loading" in line]
    assert 1 <= len(loading) <= 10
    for line in loading:
        assert re.search(r"event=loading model=zeros percent=\d+ bytes=\d+ bytes_total=\d+ after_ms=\d+$", line.strip())


def catches_interrupts(child):
    """Is it the program already, and past the line that says so?"""
    status = pathlib.Path(f"/proc/{child}/status").read_text()
    name, caught = re.search(r"Name:\s*(\S+)\n.*SigCgt:\s*(\w+)", status, re.S).groups()
    return name == pathlib.Path(PROGRAM).name and int(caught, 16) & 1 << signal.SIGINT - 1


def test_ctrl_c_ends_a_load(terminal, slow_model):
    for command in [["chat", slow_model], ["generate", "--model", slow_model, "x"]]:
        t = terminal(*command)
        until = time.monotonic() + WAIT_S
        while not catches_interrupts(t.child):
            assert time.monotonic() < until
        t.type(CTRL_C)
        assert t.end() == 130
        assert "/help" not in t.shown


def test_an_empty_line_is_not_kept_for_the_arrow_keys(chat, tmp_path):
    t = chat()
    t.say("What is chsh?", CHSH)
    t.type("\r")
    t.say("/system", "[There is no system message any more.]")
    t.type(CTRL_D)
    assert t.end() == 0
    kept = (tmp_path / "plateau" / "chat_history").read_text()
    assert "chsh" in kept and "" not in kept.rstrip("\n").split("\n")


def test_words_stay_whole_on_a_terminal(terminal):
    t = terminal("plan", "canary")
    assert t.end() == 0
    lines = t.shown.splitlines()
    assert max(map(len, lines)) <= 100 and "An image has at most" in t.shown
    piped = subprocess.run([PROGRAM, "plan", "canary"], capture_output=True, text=True, timeout=WAIT_S)
    assert t.shown.split() == piped.stdout.split(), "in one line each where no terminal is"
    assert max(map(len, piped.stdout.splitlines())) > 100
    t = terminal("plan", "/" + "none/" * 30)
    assert t.end() == 1 and t.shown.startswith("plateau: ") and "none/" * 29 in t.shown
