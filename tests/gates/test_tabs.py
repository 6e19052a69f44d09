"""The gate `tabs` can fail: its judgement of made-up servers, and a short run with a browser."""

import pathlib
import random
import sys
import types

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bench/gates"))

import gate_tabs
import webdriver
from common import MIB, Report
from test_gates import run_gate

HOUR = 3600


@pytest.fixture
def report(tmp_path):
    return Report("tabs", types.SimpleNamespace(out=tmp_path, label="x", device=None))


class Looked(gate_tabs.Looks):
    """A server that takes `share` of a core, and grows by `grown` bytes an hour."""

    def __init__(self, share, grown=0):
        self.rows = [{"s": s, "processor_s": share * s, "own": 100 * MIB + grown * s / HOUR, "used": 90 * MIB, "outside_accounts": 10 * MIB,
                      "history": MIB} for s in range(10, HOUR + 1, 10)]


def cost(report, with_tabs, without, requests=(3500, 3500)):
    gate_tabs.judge_cost(report, {"tabs": with_tabs, "none": without}, list(requests), HOUR)
    return report.broken


def test_a_cheap_page_is_fine(report):
    assert cost(report, Looked(0.108), Looked(0.1)) == []


def test_a_core_is_not_for_tabs(report):
    [broken] = cost(report, Looked(0.115), Looked(0.1))
    assert "1 % of a core" in broken


def test_growth_is_told_if_only_the_server_with_tabs_has_it(report):
    [broken] = cost(report, Looked(0.1, 2 * MIB), Looked(0.1))
    assert broken.startswith("own:")


def test_growth_of_both_is_not_the_tabs(report):
    assert cost(report, Looked(0.1, 20 * MIB), Looked(0.1, 20 * MIB)) == []


def test_a_tab_that_stopped_asking_is_told(report):
    [broken] = cost(report, Looked(0.1), Looked(0.1), (3500, 12))
    assert "asked all the time" in broken


def first_tokens(seed, tail=1.0):
    """One of forty is late, by `tail`."""
    rng = random.Random(seed)
    return [rng.gauss(20, 0.5) * (tail if n % 40 == 0 else 1) for n in range(1000)]


@pytest.mark.parametrize("tail, broken", [(1.0, 0), (1.25, 1), (2.0, 2)])
def test_late_first_tokens_are_told(report, tail, broken):
    gate_tabs.judge_times(report, "computed", {"tabs": first_tokens(1, tail), "none": first_tokens(2)})
    assert len(report.broken) == broken


def test_a_slow_machine_is_not_the_tabs(report):
    gate_tabs.judge_times(report, "computed", {"tabs": first_tokens(1, 2.0), "none": first_tokens(2, 2.0)})
    assert not [what for what in report.broken if "that without" in what]


@pytest.mark.skipif(not webdriver.is_there(), reason="chromium is not installed: tools/install-packages browser brings it")
def test_it_runs_with_a_browser(tmp_path):
    """Conditions hold that need no long run and no quiet machine."""
    report = run_gate("tabs", tmp_path, "--tabs", "2", "--tabs-seconds", "5", "--jitter-prompt", "64")
    assert "each tab asked all the time" not in report["broken"]
    assert sum(report["figures"]["requests"]) >= 2 and len(report["figures"]["looks"]["tabs"]) >= 2
