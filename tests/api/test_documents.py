"""What documents show of the command line is what the program prints."""

import os
import pathlib
import re
import shlex
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PLATEAU_PROGRAM", str(ROOT / "build" / "plateau"))
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def run(line):
    return subprocess.run([PROGRAM, *shlex.split(line)[1:]], cwd=ROOT, capture_output=True, text=True, timeout=120)


def sessions():
    """Each "$ plateau ..." in an indented block, with the lines after it."""
    for path in DOCUMENTS:
        for command, output in re.findall(r"^    \$ (plateau .*)\n((?:    (?!\$).*\n)+)", path.read_text(), re.M):
            yield path.name, command, re.sub(r"^    ", "", output, flags=re.M)


NUMBER = r"\d+(?:\.\d+)?"


def assert_near(shown, printed):
    """The same words. Sizes differ a little from one machine to another; how many tokens fit into what they
    leave, by more."""
    assert re.sub(NUMBER, "N", shown) == re.sub(NUMBER, "N", printed)
    for a, b in zip(re.finditer(NUMBER, shown), re.finditer(NUMBER, printed)):
        bound = 0.03 if re.match(r" [KMG]iB", shown[a.end():]) else 0.3
        assert abs(float(a[0]) - float(b[0])) <= bound * float(a[0]), f"{a[0]} is {b[0]} now: {printed}"


@pytest.mark.parametrize("document, command, shown", list(sessions()))
def test_a_session_in_a_document_is_as_it_shows(document, command, shown):
    got = run(command)
    assert shown.startswith("...\n"), "a session begins with what is left out"
    shown = " ".join(shown.split()[1:])
    printed = " ".join((got.stderr or got.stdout.splitlines()[-1]).split())
    assert_near(shown, printed)


def answers():
    """The README's questions to the bundled model, and the answers that it quotes."""
    text = (ROOT / "README.md").read_text()
    told = re.findall(r"`([A-Z][^`]*\.|[a-z]+\(1\) - [^`]*\.)`", text)
    for line in re.findall(r"^    (build/plateau generate .*)$", text, re.M):
        yield line, told


@pytest.mark.parametrize("command, told", list(answers()))
def test_a_question_of_the_readme_has_the_answer_that_it_tells(command, told):
    got = run(command)
    assert got.returncode == 0, got.stderr
    assert got.stdout.strip() in told


# ---- docs/api.md against the program's tables ----

API = (ROOT / "docs/api.md").read_text()
CODE = {path.name: path.read_text() for path in (ROOT / "src/api").glob("*.c")}
NAMED = {word for quoted in re.findall(r"`([^`\n]+)`", API) for word in re.findall(r"[\w.]+", quoted)}


def found(pattern, at_least, files=CODE):
    names = sorted({name for file in files for name in re.findall(pattern, CODE[file])})
    assert len(names) >= at_least, names
    return names


def test_every_field_is_in_the_document():
    names = found(r'\{\s*"(\w+)", (?:read|field|accept|regex|choice)\w*', 110)
    assert [n for n in names if n not in NAMED] == []


def test_every_error_is_in_the_document():
    rows = re.findall(r'\[REJECT_\w+\] = \{(\d+), "(\w+)"', CODE["reject_http.c"])
    told = [(status, code) for line in re.findall(r"^\| (\d{3}.*)$", API, re.M) for status in re.findall(r"\d{3}", line.split("|")[0])
            for code in re.findall(r"`(\w+)`", line)]
    assert len(rows) > 35 and sorted({row for row in rows if row not in told}) == []
    types = found(r'"(\w+_error|request_too_large)"', 8, ["messages_errors.c"])
    assert [name for name in types if name not in NAMED] == []


def test_every_event_is_in_the_document():
    events = found(r'"(response\.[a-z_.]+[a-z])"', 14, ["wire_responses.c"])
    events += found(r'"((?:message|content_block)_\w+|ping|\w+_delta)"', 3, ["wire_messages.c"])
    assert [name for name in events if name not in NAMED] == []


def test_every_route_is_in_the_document():
    paths = found(r'\{"(?:GET|POST|DELETE)", "(/[^"]*)", AUTH', 30, ["routes.c"]) + found(r'\.route = "(/[^"]*)"', 6)
    quoted = re.findall(r"`(?:GET|POST|DELETE)?,? ?(/[^`\s]*)`|DELETE (/v1/[^`]*)`", API)
    told = {re.sub(r"\{\w+\}", "*", a or b).split("?")[0] for a, b in quoted}
    # A second path of a cell is written from where it differs.
    told |= {"/v1/models/*" + end for end in told if end in ("/load", "/unload", "/pin", "/unpin")}
    missing = [path for path in paths if path.rstrip("*") not in told and path + "*" not in told and path + "..." not in told]
    assert missing == []
