"""The statistics of the release gates: a fault of known size must be found, and none in a sound series."""

import pathlib
import random
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/gates"))

import gate_soak
import stats


def test_quantiles_interpolate():
    assert stats.quantile([1, 2, 3, 4, 5], 0.5) == 3
    assert stats.quantile([0, 10], 0.25) == 2.5
    assert stats.quantile([7], 0.99) == 7


@pytest.mark.parametrize("leak", [0, 16, 200])
def test_slope_finds_a_leak_below_noise_and_outliers(leak):
    rng = random.Random(leak)
    requests = [i * 10 for i in range(8000)]
    held = [50e6 + leak * n + rng.gauss(0, 3e5) + (4e7 if rng.random() < 0.02 else 0) for n in requests]
    assert abs(stats.slope(requests, held) - leak) < 3


def test_slope_of_nothing_is_nothing():
    assert stats.slope([1], [5]) == 0
    assert stats.slope([1, 1, 1], [5, 6, 7]) == 0


@pytest.mark.parametrize("every", [2, 3, 7, 16])
def test_a_stall_at_every_nth_request_is_a_period(every):
    rng = random.Random(every)
    times = [20 + rng.gauss(0, 1) + (3 if i % every == 0 else 0) for i in range(300)]
    found, p = stats.period(times)
    assert found % every == 0 and p < 0.01


@pytest.mark.parametrize("seed", range(4))
def test_noise_and_drift_are_no_period(seed):
    rng = random.Random(seed)
    times = [20 + i / 40 + rng.expovariate(1) for i in range(300)]
    assert stats.period(times)[1] > 0.01


def test_the_interval_of_paired_ratios_is_as_wide_as_their_noise():
    rng = random.Random(3)
    low, middle, high = stats.ratio_interval([0.97 + rng.gauss(0, 0.02) for _ in range(60)])
    assert low < middle < high and abs(middle - 0.97) < 0.01
    assert 0.005 < high - low < 0.03  # 4 x 1.25 x 0.02 / sqrt(60) = 0.013


def test_the_error_of_a_slope():
    xs = list(range(20))
    assert stats.slope_error(xs, [3 * x + 1 for x in xs]) < 1e-9
    noise = random.Random(5)
    slopes = []
    for _ in range(300):
        ys = [2 * x + noise.gauss(0, 4) for x in xs]
        slopes.append(abs(stats.slope(xs, ys) - 2) / stats.slope_error(xs, ys))
    assert sum(s < 2 for s in slopes) > 260  # about 95 % within twice the error
    assert stats.slope_error([1, 2], [5, 9]) == 0


def test_own_memory_is_taken_without_the_most_that_recorded_steps_had():
    def samples(*pairs):
        rows = [{"own": own, "accounts": {"process/a/recorded steps": steps, "cuda:0/a/recorded steps": 9}} for own, steps in pairs]
        return types.SimpleNamespace(rows=rows, column=lambda name: [row[name] for row in rows])

    warming, sampler = samples((50, 1), (55, 5)), samples((60, 3), (62, 8), (63, 2), (70, 9))
    assert gate_soak.most_recorded(warming, sampler) == 9
    assert gate_soak.without_recorded(warming, sampler) == [55, 54, 55, 61]
