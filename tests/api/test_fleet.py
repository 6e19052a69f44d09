"""tools/fleet: replicas behind nginx that lose nothing, and the simulator."""

import os
import re
import subprocess
import sys

import pytest

from conftest import PROGRAM, TOP

FLEET = TOP / "tools/fleet"


def run(program, *options):
    done = subprocess.run([sys.executable, FLEET / program, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if line.startswith("|")]


@pytest.mark.skipif(not os.path.exists("/usr/sbin/nginx"), reason="nginx is not installed")
def test_two_replicas_answer_like_one(tmp_path):
    rows = run("fleet.py", "--program", PROGRAM, "--router", "nginx", "--replicas", "2", "--conversations", "4", "--turns", "2",
               "--at-once", "4", "--prefix", "40", "--turn", "4", "--reply", "4", "--think", "0", "--json", str(tmp_path / "turns.json"))
    assert [row[0] for row in rows[2:]] == ["none", "nginx"]
    for row in rows[2:]:
        assert row[1:3] == ["8", "0"] and float(row[3].split()[0]) > 20
    assert rows[3][5] == "8 of 8"
    # The simulator reads what the fleet wrote; a run of eight requests is too short to agree with.
    compared = subprocess.run([sys.executable, FLEET / "simulate.py", "--costs", tmp_path / "turns.json", "--real", tmp_path / "turns.json"],
                              capture_output=True, text=True)
    assert re.search(r"^\| nginx, hash \| [\d.]+ % \| [\d.]+ % \|", compared.stdout, re.M), compared.stderr


def test_a_simulated_day_is_the_same_each_time():
    """A policy that keeps conversations together finds most of their prompts."""
    options = ("--replicas", "4", "--day", "150", "--sessions", "3", "--applications", "20", "--policy", "hash,events,random")
    rows = run("simulate.py", *options)
    assert rows == run("simulate.py", *options)
    found = {row[1]: float(row[3].split()[0]) for row in rows[2:]}
    assert found["hash"] > 75 and found["events"] > 80 and found["random"] < found["hash"] - 20
