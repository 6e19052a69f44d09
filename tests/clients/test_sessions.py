"""Whole sessions of programs, with PLATEAU_LONG=1: thirty turns with tools, searches for tools, interrupts, a
compaction, an overflow and processes that resume. The replies are scripted, since the bundled model would
make none of these calls."""

import importlib
import os

import pytest

from cells import declared
from servers import ADMIN_KEY, SDK_KEY, serving

PROGRAMS = declared("program")
pytestmark = pytest.mark.skipif("PLATEAU_LONG" not in os.environ, reason="runs with PLATEAU_LONG=1: the programs' packages have 320 MB")


class Home:
    """Where a program runs. It sees none of the user's settings."""
    model, key = "canary", SDK_KEY

    def __init__(self, home):
        self.home = home
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(home)}


@pytest.mark.parametrize("name", ["claude_code", "codex"])
def test_thirty_turns(name, tmp_path):
    """Everything that the server reserved has returned at the end."""
    if not PROGRAMS[name].here:
        pytest.skip(f"the package {PROGRAMS[name].package} is not installed")
    session = importlib.import_module("session_" + name)
    with serving(*session.OPTIONS, "--api-key", SDK_KEY, "--admin-key", ADMIN_KEY, key=ADMIN_KEY) as server:
        session.run(server, Home(tmp_path))
