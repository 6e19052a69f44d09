"""The program prints the output that documents show of the command line."""

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
    """Compares words. Sizes differ a little from one machine to another; how many tokens fit into what they
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


# ---- links, options and metrics ----

SOURCES = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "models/canary/README.md"]


def anchors(path):
    """Returns the headings' anchors, as GitHub makes them."""
    text = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", path.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.M)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        at = path.parent / name if name else path
        assert at.exists(), f"{path.name}: {target}"
        assert not anchor or anchor in anchors(at), f"{path.name}: {target}"


def test_every_script_that_a_document_calls_can_be_called():
    text = "".join(path.read_text() for path in [*DOCUMENTS, ROOT / "CONTRIBUTING.md"])
    called = set(re.findall(r"^    (\./\w+|(?:bench|tools)/[\w./-]+)", text, re.M))
    named = {ROOT / name for name in re.findall(r"`((?:bench|tools)/[\w./-]+)", text)}
    called |= {str(path.relative_to(ROOT)) for path in named if path.is_file() and path.read_bytes()[:2] == b"#!"}
    assert {"./run", "./test", "bench/gates/gate.py", "tools/check-layers"} <= called
    assert [name for name in sorted(called) if not os.access(ROOT / name, os.X_OK)] == []


def test_every_program_that_a_document_calls_is_built():
    build = pathlib.Path(PROGRAM).parent
    if not (build / "bench/run").is_dir():
        pytest.skip("this build has no benchmarks")
    called = {name for path in DOCUMENTS for name in re.findall(r"^    build/(\S+)", path.read_text(), re.M)}
    assert {"plateau", "mkmodel", "bench/run/gpu_bench"} <= called
    assert [name for name in sorted(called) if not os.access(build / name, os.X_OK)] == []


def test_every_document_is_in_the_list():
    listed = {m for text in [(ROOT / "docs/README.md").read_text()] for m in re.findall(r"\]\(([\w-]+\.md)", text)}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - listed - {"README.md"} == set()


COMMANDS = subprocess.run([PROGRAM, "manual", "--names"], capture_output=True, text=True).stdout.split()


def test_every_option_in_a_document_exists():
    helped = "".join(subprocess.run([PROGRAM, c, "--help-all"], capture_output=True, text=True).stdout for c in COMMANDS)
    flags = set(re.findall(r"^  (--[a-z-]+)", helped, re.M))
    for name in ("getting-started", "tuning", "troubleshooting", "upgrading", "how-it-works", "operations", "ssd-cache", "speculation"):
        text = (ROOT / f"docs/{name}.md").read_text()
        # Options of other programs: ./run, podman, numactl, groupadd.
        others = {"--offline", "--time", "--cpunodebind", "--membind", "--version", "--system"}
        named = set(re.findall(r"(?<![\w/-])(--[a-z][a-z-]+)", re.sub(r"^    .*$", "", text, flags=re.M)))
        assert named - flags - others == set(), name


def test_every_metric_in_a_document_is_in_the_list():
    listed = set(re.findall(r"(?:vllm:|plateau_|process_)[a-z_]+", (ROOT / "docs/metrics.md").read_text()))
    for path in DOCUMENTS:
        named = set(re.findall(r"`[^`\n]*?((?:vllm:|plateau_)[a-z_]+[a-z])(?=[`{ \[)])", path.read_text()))
        assert {n.removesuffix("_bucket") for n in named} - listed - {"plateau_layer"} == set(), path.name


# ---- docs/api.md against the program's tables ----

API = (ROOT / "docs/api.md").read_text()
CODE = {path.name: path.read_text() for path in (ROOT / "src/api").rglob("*.c")}
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
    dialects = re.findall(r"X\(wire_\w+\)", (ROOT / "src/api/wire/wire.h").read_text())
    requests = found(r'(?:\.route = |RERANK\()"(/[^"]*)"', 6)
    assert len(requests) == len(dialects), "a dialect whose route is written otherwise"
    row = r'\{"(?:GET|POST|DELETE)", "(/[^"]*)", AUTH'
    assert len(re.findall(row, CODE["routes.c"])) == len(re.findall(r"^    \{.*AUTH_", CODE["routes.c"], re.M)), "a row that is written otherwise"
    paths = found(row, 30, ["routes.c"]) + requests
    quoted = re.findall(r"`(?:GET|POST|DELETE)?,? ?(/[^`\s]*)`|DELETE (/v1/[^`]*)`", API)
    told = {re.sub(r"\{\w+\}", "*", a or b).split("?")[0] for a, b in quoted}
    # A second path of a cell is written from where it differs.
    told |= {"/v1/models/*" + end for end in told if end in ("/load", "/unload", "/pin", "/unpin")}
    missing = [path for path in paths if path.rstrip("*") not in told and path + "*" not in told and path + "..." not in told]
    assert missing == []


def test_every_refusal_of_http_is_in_the_document():
    rows = set(re.findall(r'\[HTTP_REFUSAL_\w+\] = \{(\d+), "(\w+)"', (ROOT / "src/http/http_refuse.c").read_text()))
    told = {(status, code) for line in re.findall(r"^\| (\d{3}.*)$", API, re.M) for status in re.findall(r"\d{3}", line.split("|")[0])
            for code in re.findall(r"`(\w+)`", line)}
    assert len(rows) > 20 and sorted(rows - told) == []


def test_every_header_of_a_reply_is_in_the_document():
    folders = [path.read_text() for name in ("api", "http") for path in (ROOT / "src" / name).rglob("*.c")]
    names = {name for text in folders for name in re.findall(r'http_header_set\([^,]+, "([a-z-]+)"', text)}
    told = set(re.findall(r"`([a-z0-9-]+)(?::[^`]*)?`", API))
    # Headers about caches and encodings are HTTP's own.
    assert len(names) > 8 and sorted(names - told - {"etag", "cache-control", "vary", "content-encoding"}) == []


def test_every_phase_is_in_the_document():
    text = CODE["report_requests.c"] + (ROOT / "src/engine/engine.c").read_text()
    tables = re.findall(r'\b(?:phases|names)\[\] = \{([^}]*)\}', text) + ['"media"']
    phases = {name for table in tables for name in re.findall(r'"(\w+)"', table)}
    told = API.split("### Phases")[1].split("###")[0]
    assert len(phases) == 13 and phases == set(re.findall(r"^\| `(\w+)`", told, re.M)) - {"phase"}


def members(value):
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from members(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from members(inner)


@pytest.mark.parametrize("route", ["/v1/models", "/model_info", "/server_info", "/health", "/version", "/api/status", "/api/memory", "/api/overview",
                                   "/api/history?range=5m", "/api/log"])
def test_every_member_of_a_report_is_in_the_documents(server, route):
    metrics = (ROOT / "docs/metrics.md").read_text()
    known = NAMED | {word for quoted in re.findall(r"`([^`\n]+)`", metrics) for word in re.findall(r"\w+", quoted)}
    with server.begin() as running:
        running.event()
        reply = server.http.get(route)
    assert reply.status_code == 200
    found = reply.json()
    if "info" in route:  # the markers of one format
        found["chat_format"].pop("markers", None)
    missing = sorted(set(members(found)) - known)
    assert not missing, " ".join(missing)


# ---- docs/troubleshooting.md against the program's texts ----


def texts():
    """Every text of the program and of its scripts, with "..." for its values."""
    for path in [*(ROOT / "src").rglob("*.[ch]"), ROOT / "run", ROOT / "tools/install-packages"]:
        code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        literal = r'"(?:[^"\\\n]|\\.)*"'
        for run_of in re.findall(rf"{literal}(?:\s*(?:PRI\w+\s*)?{literal})*", code):
            text = "".join(part[1:-1] for part in re.findall(literal, run_of)).replace('\\"', '"').replace("%%", "\0")
            yield re.sub(r"%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j)?[a-zA-Z]", "...", text).replace("\0", "%")


def messages():
    told = (ROOT / "docs/troubleshooting.md").read_text()
    for table in re.findall(r"^\| (?:status and )?message .*\n\|---.*\n((?:\|.*\n)+)", told, re.M):
        for row in table.splitlines():
            found = re.findall(r"`((?:[^`]){13,})`", row.split(" | ")[0])
            assert found, f"a row without a message: {row}"
            yield from found


def test_each_message_of_the_document_is_one_of_the_program():
    told, known = list(messages()), list(texts())
    assert len(told) > 50
    assert [message for message in told if not any(message in text for text in known)] == []
