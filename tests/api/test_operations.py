"""The program does what docs/operations.md and packaging/systemd say."""

import re
import shutil
import subprocess

import pytest

from conftest import PROGRAM, TOP

MANUAL = (TOP / "docs/operations.md").read_text()
UNITS = TOP / "packaging/systemd"


def sources(under="src"):
    return [path.read_text() for path in sorted((TOP / under).rglob("*.c"))]


def table(heading):
    """The first cells of the table after a heading, and the cells after each."""
    text = MANUAL.split(heading, 1)[1]
    rows = re.search(r"\|---.*?\n((?:\|.*\n)+)", text)[1]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in rows.splitlines()]


def test_every_event_of_the_log_is_in_the_manual():
    found = {}
    for text in sources():
        for level, name in re.findall(r'\bLOG_(ERROR|WARN|INFO|DEBUG)\(\s*"([a-z_]+)"', text):
            found.setdefault(name, set()).add(level.lower())
        for level, name in re.findall(r'\blog_write\(LOG_LEVEL_([A-Z]+), "([a-z_]+)"', text):
            found.setdefault(name, set()).add(level.lower())
        for levels, name in re.findall(r'\bLOG_AT\(([^"]*), "([a-z_]+)"', text):
            found.setdefault(name, set()).update(re.findall(r"LOG_LEVEL_([A-Z]+)", levels))
    found = {name: {level.lower() for level in levels} for name, levels in found.items()}
    assert len(found) > 20
    told = {event.strip("`"): set(levels.split(", ")) for event, levels, _ in table("## The log")}
    assert told == found
    assert list(told) == sorted(told)


def test_every_setting_that_may_change_is_in_the_manual():
    rows = (TOP / "src/host/settings_table.c").read_text().split("setting_row settings_table[]", 1)[1]
    live = {m[1] for m in re.finditer(r'\{GROUP_\w+, "([a-z-]+)",[^{]*?\bLIVE\b', rows)}
    assert len(live) > 10
    told = [name for cell, _ in table("## Reading settings again") for name in re.findall(r"`--([a-z-]+)`", cell)]
    assert sorted(told) == sorted(live)


def test_every_option_that_the_manual_names_exists():
    helped = subprocess.run([PROGRAM, "serve", "--help-all"], capture_output=True, text=True).stdout
    flags = set(re.findall(r"^  (--[a-z-]+)", helped, re.M))
    assert set(re.findall(r"`(--[a-z-]+)", MANUAL)) <= flags
    for name in ["plateau.ini", "plateau.env"]:
        for line in (UNITS / name).read_text().splitlines():
            option = re.match(r"[;#]?(?:PLATEAU_)?([A-Za-z_-]+) ?=", line)
            if option:
                assert "--" + option[1].lower().replace("_", "-") in flags, line


def test_every_metric_that_an_alert_reads_exists(server):
    names = set(re.findall(r"(?:plateau_|vllm:)[a-z_]+", " ".join(cells[0] for cells in table("alerts below"))))
    metrics = server.http.get("/metrics").text
    assert len(names) > 8
    for name in names:
        if name.startswith("plateau_ssd_"):  # only there with --ssd-dir
            assert f'"{name}"' in "".join(sources("src/api")), name
        else:
            assert re.search(rf"^{name}[ {{]", metrics, re.M), name


def test_the_units_are_as_systemd_wants_them(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    text = (UNITS / "plateau.service").read_text()
    assert "ExecStart=/usr/local/bin/plateau serve" in text
    unit = tmp_path / "plateau.service"
    unit.write_text(text.replace("/usr/local/bin/plateau", PROGRAM))
    got = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert (got.returncode, got.stdout, got.stderr) == (0, "", "")
    got = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", unit], capture_output=True,
                         text=True, timeout=60)
    assert float(re.search(r"Overall exposure level for plateau.service: ([\d.]+)", got.stdout)[1]) <= 1.5


def test_the_program_makes_no_code(server):
    """MemoryDenyWriteExecute=yes: nothing that is mapped is both writable and executable."""
    with open(f"/proc/{server.process.pid}/maps") as f:
        assert not [line for line in f if "wx" in line.split()[1]]
