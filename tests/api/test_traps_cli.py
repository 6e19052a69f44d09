"""Silent losses get a message: output that does not arrive, names that are nearly right, options that
change nothing."""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess

import httpx
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PLATEAU_PROGRAM", str(ROOT / "build" / "plateau"))
ASK = ["generate", "--temperature", "0", "--max-tokens", "16", "What does ls do?"]


def run(*arguments, stdin=None, shell=None, **variables):
    """`shell`: redirections, as a shell would take them; otherwise standard output is a pipe."""
    command = [PROGRAM, *map(str, arguments)]
    if shell:
        command = ["sh", "-c", f'exec "$0" "$@" {shell}', *command]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, env={**os.environ, **variables})


SMALL = str(ROOT / "tests/golden/data/qwen3")
COMMANDS = [["--help"], ["--version"], ["help", "serve"], ["generate", "--help"], ["plan"], ["plan", "--json"], ASK,
            ["models", SMALL], ["models", SMALL, "--json"], ["completion", "zsh"], ["manual"], ["manual", "--names"],
            ["parse", "--template", str(ROOT / "models/canary/chat_template.jinja"), "--describe"]]


@pytest.mark.parametrize("shell, reason", [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")])
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda a: "-".join(a[:2]))
def test_output_that_does_not_arrive_is_status_1_and_a_message(arguments, shell, reason):
    got = run(*arguments, shell=shell)
    assert got.returncode == 1
    assert got.stderr == f"plateau: standard output could not be written: {reason}\n"


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda a: "-".join(a[:2]))
def test_a_closed_pipe_is_status_1_and_a_message(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    got = subprocess.run([PROGRAM, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writer)
    assert (got.returncode, got.stderr) == (1, "plateau: standard output could not be written: Broken pipe\n")


def test_output_of_chat_and_cache_as_well(tmp_path):
    for arguments in [["chat"], ["cache", "ls", tmp_path], ["cache", "verify", tmp_path, "--json"], ["cache", "gc", tmp_path]]:
        got = run(*arguments, stdin="What does ls do?\n" * 3, shell=">/dev/full")
        assert got.returncode == 1, arguments
        assert got.stderr == "plateau: standard output could not be written: No space left on device\n", arguments


def test_a_file_at_its_size_limit_is_a_full_disk(tmp_path):
    got = subprocess.run(["sh", "-c", f'ulimit -f 0; exec "{PROGRAM}" plan >"{tmp_path}/plan"'], stderr=subprocess.PIPE, text=True)
    assert got.returncode == 1
    assert got.stderr == "plateau: standard output could not be written: File too large\n"


@pytest.mark.parametrize("kib,status", ((64, 1), (511, 1), (512, 0)))
def test_a_stack_that_is_too_small_is_said(kib, status):
    got = subprocess.run(["sh", "-c", f'ulimit -s {kib} && exec "$0" models --help', PROGRAM], capture_output=True, text=True)
    assert got.returncode == status
    assert (f"plateau: a stack has {kib} KiB here (ulimit -s), and 512 are needed" in got.stderr) == (status == 1)


def test_a_mistake_keeps_its_own_status_when_nothing_was_to_be_printed():
    assert run("generate", shell=">&-").returncode == 2
    assert run("generate", "x", "--model", "/nowhere", shell=">&-").returncode == 1


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_closed_standard_descriptors_become_no_files_of_ours(closed):
    got = run(*ASK, shell=closed)
    assert got.returncode == 0 and got.stdout == "ls(1) - list directory contents.\n"


def test_a_server_goes_on_without_its_output_and_tells_where_it_listens():
    command = ["sh", "-c", 'exec "$0" serve --port 0 >/dev/full', PROGRAM]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        told = ""
        for line in process.stderr:
            told = told or (line if "event=output_failed" in line else "")
            if "event=ready" in line:
                break
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert 'error="No space left on device" host=127.0.0.1 port=' in told
    assert process.returncode == 1 and "standard output could not be written" in rest


def test_habits_of_log_rotation_and_a_full_log_end_no_server(tmp_path):
    """The log's file is at its limit from the second block on."""
    command = ["sh", "-c", 'ulimit -f 1; exec "$0" serve --port 0 2>"$1"', PROGRAM, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().split()[3]
        for number in [signal.SIGUSR1, signal.SIGUSR2, signal.SIGXFSZ, signal.SIGPIPE]:
            process.send_signal(number)
        for _ in range(30):
            process.send_signal(signal.SIGHUP)  # each is a line
            assert httpx.get(f"{url}/live").status_code == 200
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    assert 0 < (tmp_path / "log").stat().st_size <= 1024


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["serv"], "there is no command serv (did you mean serve?)"),
        (["quux"], "there is no command quux; plateau --help"),
        (["serve", "--prot", "1"], "there is no option --prot (did you mean --port?)"),
        (["serve", "--max_queue", "1"], "(did you mean --max-queue?)"),
        (["chat", "--temprature=1"], "(did you mean --temperature?)"),
        (["serve", "--no-such-thing"], "there is no option --no-such-thing; see plateau serve --help-all"),
        (["serve", "--temperature", "1"], "it belongs into a section [model NAME]"),
        (["serve", "--min-p", "1"], "--min-p belongs into a section [model NAME]"),
        (["cache", "verfy", "x"], "(did you mean verify?)"),
    ],
)
def test_a_name_that_is_nearly_right_gets_its_neighbour(arguments, words):
    got = run(*arguments)
    assert got.returncode == 2 and got.stdout == ""
    assert words in got.stderr and got.stderr.count("\n") == 1


def test_an_unknown_variable_is_a_warning():
    got = run("plan", PLATEAU_MAX_QUEU="8", PLATEAU_NO_SUCH="sk-secret", PLATEAU_TEST_SEED="1", PLATEAU_PROGRAM="x", PLATEAU_TEMPERATURE="0")
    assert got.returncode == 0
    lines = sorted(line for line in got.stderr.splitlines() if "event=unknown_variable" in line)
    assert len(lines) == 2 == len(got.stderr.splitlines()) and "sk-secret" not in got.stderr
    assert "level=warn" in lines[0] and "(did you mean PLATEAU_MAX_QUEUE?)" in "".join(lines)
    assert "name=PLATEAU_NO_SUCH" in "".join(lines)
    assert run("--version", PLATEAU_NO_SUCH="1").stderr == ""


@pytest.mark.parametrize("arguments, stdin, status", [([""], None, 2), (["-"], "", 1), (["--raw", ""], None, 2)])
def test_an_empty_prompt_is_refused(arguments, stdin, status):
    got = run("generate", *arguments, stdin=stdin)
    assert got.returncode == status and got.stdout == ""
    assert "the prompt is empty" in got.stderr and got.stderr.count("\n") == 1


def test_a_plan_keeps_to_the_sections_of_a_servers_file(tmp_path):
    config = tmp_path / "plateau.ini"
    config.write_text("port = 1\nmax-model-len = 2048\n[model canary]\nmax-model-len = 1024\nmax-num-seqs = 3\n[model other]\nttl = 5\n")
    got = run("plan", "--config", config)
    assert got.returncode == 0 and "context 1024 of " in got.stdout and ", 3 sequences," in got.stdout
    plain = run("plan", PLATEAU_CONFIG=str(config)).stdout
    assert plain == got.stdout


STUBS = {
    "tools/install-packages": '#!/bin/sh\n[ "$1" != --missing ] || echo " gcc cmake"\n',
    "tools/configure": "#!/bin/sh\nmkdir -p build\n",
    "bin/nproc": "#!/bin/sh\necho 1\n",
    "tools/fetch-starter": "#!/bin/sh\n",
    "bin/ninja": """#!/bin/sh
echo '@  10% (1 of 10 steps)|Building C object a.o'
echo '@  50% (5 of 10 steps)|Building C object b.o'
echo 'warning: c.c'
[ -z "$BREAK" ] || exit 1
echo '@ 100% (10 of 10 steps)|Linking'
printf '#!/bin/sh\\necho served "$@"\\n' >plateau; chmod +x plateau
""",
}


@pytest.fixture
def checkout(tmp_path):
    """One in which nothing is built, with tools that only say what they do."""
    for name, text in {**STUBS, **{name: (ROOT / name).read_text() for name in ("run", "tools/progress")}}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return tmp_path


def start(checkout, **variables):
    path = f"{checkout}/bin:{os.environ['PATH']}"
    return subprocess.run([checkout / "run", "--port", "1"], capture_output=True, text=True, timeout=20, env={**os.environ, "PATH": path, **variables})


def test_run_says_what_it_does_and_how_far_it_is(checkout):
    got = start(checkout)
    assert got.returncode == 0 and got.stdout == "served serve --port 1\n"
    lines = got.stderr.splitlines()
    whole = re.fullmatch(r"The first run takes about (\d+) minutes; later ones start at once\. It will", lines[0])
    assert "install 2 Debian packages" in lines[1] and int(whole[1]) >= 4, "four minutes of one processor"
    assert lines[2].startswith("  * build build/plateau from source (processors: 1")
    assert lines[3:] == ["  * start plateau serve --port 1", "Building: 10%", "Building: 50%", "warning: c.c", "Building: 100%"]
    (checkout / "tools/install-packages").write_text("#!/bin/sh\n")
    assert "Debian" not in start(checkout).stderr and "The first run" not in start(checkout).stderr


def test_run_ends_with_a_build_that_fails(checkout):
    got = start(checkout, BREAK="1")
    assert got.returncode == 1 and got.stdout == "" and got.stderr.endswith("The build failed; its errors are above.\n")


def lines_of(stderr, *arguments, **variables):
    env = {"PATH": os.environ["PATH"], "PLATEAU_MAX_QUEU": '8', "HOME": "/none", **variables}
    return subprocess.run([PROGRAM, "generate", "--max-tokens", "1", *arguments, "a"], stdout=subprocess.DEVNULL, stderr=stderr, text=True, env=env, timeout=60)


def test_formats_of_the_log():
    got = lines_of(subprocess.PIPE, "--log-format", "json")
    line = json.loads(got.stderr)
    assert line == {**line, "level": "warn", "event": "unknown_variable", "name": "PLATEAU_MAX_QUEU"} and "did you mean" in line["problem"].lower()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", line["time"])
    assert lines_of(subprocess.PIPE, "--log-format", "journal").stderr.startswith("<4>level=warn event=unknown_variable ")
    assert lines_of(subprocess.PIPE, PLATEAU_LOG_FORMAT="journal").stderr.startswith("<4>level=warn event=")
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z level=warn event=unknown_variable ", lines_of(subprocess.PIPE).stderr)
    got = lines_of(subprocess.PIPE, "--log-format", "xml")
    assert got.returncode == 2 and "--log-format xml: auto, text, journal or json is expected" in got.stderr


@pytest.mark.parametrize("variables, tone", [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_a_log_on_a_terminal_is_for_people(variables, tone):
    ours, its = pty.openpty()
    assert lines_of(its, **variables).returncode == 0
    said = os.read(ours, 4096).decode().splitlines()[0]
    os.close(its)
    os.close(ours)
    assert ("\033[" in said) == tone
    assert re.match(r"\d\d:\d\d:\d\d warn unknown_variable name=PLATEAU_MAX_QUEU ", re.sub(r"\033\[\d+m", "", said)), said


def test_lines_for_the_journal_begin_with_their_priority():
    """JOURNAL_STREAM names the stream by device and inode; one that is not standard error changes nothing."""
    for mine, head in ((True, r"<4>level=warn event=unknown_variable "), (False, r"\d{4}-\d\d-\d\dT[\d:.]+Z level=warn event=unknown_variable ")):
        reader, writer = os.pipe()
        st = os.fstat(writer)
        env = {"PATH": os.environ["PATH"], "PLATEAU_MAX_QUEU": "8", "JOURNAL_STREAM": f"{st.st_dev}:{st.st_ino + (not mine)}"}
        assert subprocess.run([PROGRAM, "plan"], stdout=subprocess.DEVNULL, stderr=writer, env=env, timeout=60).returncode == 0
        os.close(writer)
        with open(reader) as lines:
            assert re.match(head, lines.read())
