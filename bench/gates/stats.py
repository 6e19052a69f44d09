"""Figures from series: quantiles, slopes that outliers do not move, periods."""

import random
import statistics


def quantile(values, q):
    """By linear interpolation between order statistics."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def binned(xs, ys, bins):
    """Medians of x and y in `bins` runs of equal length, in the order of x."""
    points = sorted(zip(xs, ys))
    out = []
    for b in range(bins):
        part = points[b * len(points) // bins : (b + 1) * len(points) // bins]
        if part:
            out.append((statistics.median(p[0] for p in part), statistics.median(p[1] for p in part)))
    return out


def slope(xs, ys, bins=50):
    """Theil-Sen over the medians of bins: the median of the slopes between all pairs."""
    points = binned(xs, ys, min(bins, len(xs)))
    slopes = [
        (b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(points) for b in points[i + 1 :] if b[0] > a[0]
    ]
    return statistics.median(slopes) if slopes else 0.0


def slope_error(xs, ys):
    """The standard error of a straight line's slope through the points; 0 for fewer than three."""
    if len(xs) < 3:
        return 0.0
    x, y = statistics.fmean(xs), statistics.fmean(ys)
    square = sum((a - x) ** 2 for a in xs)
    steep = sum((a - x) * (b - y) for a, b in zip(xs, ys)) / square
    rest = sum((b - y - steep * (a - x)) ** 2 for a, b in zip(xs, ys))
    return (rest / (len(xs) - 2) / square) ** 0.5


def _phase_score(ranks, period):
    """How far the mean of one phase is from the mean of all, in standard errors; the furthest of the
    phases."""
    n, mean = len(ranks), statistics.fmean(ranks)
    spread = statistics.pstdev(ranks) or 1.0
    return max(
        abs(statistics.fmean(ranks[phase::period]) - mean) / (spread / len(ranks[phase::period]) ** 0.5)
        for phase in range(period)
    )


def _ranks(values):
    """Ranks around the running median, so that a drift does not count as a period."""
    half = 25
    level = [statistics.median(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]
    rest = [v - m for v, m in zip(values, level)]
    order = sorted(range(len(rest)), key=rest.__getitem__)
    ranks = [0] * len(rest)
    for rank, index in enumerate(order):
        ranks[index] = rank
    return ranks


def period(values, longest=20, shuffles=200, seed=1):
    """(period, p): the period of 2 to `longest` whose phases differ most, and how likely a shuffled series
    has one that stands out as much. Every third value being slow is period 3."""
    ranks = _ranks(values)
    found = max(range(2, longest + 1), key=lambda n: _phase_score(ranks, n))
    score = _phase_score(ranks, found)
    rng, above = random.Random(seed), 0
    for _ in range(shuffles):
        rng.shuffle(ranks)
        above += max(_phase_score(ranks, n) for n in range(2, longest + 1)) >= score
    return found, (above + 1) / (shuffles + 1)


def ratio_interval(ratios, seed=1, draws=2000):
    """(low, median, high): the median of paired ratios and its 95 % interval, by bootstrap."""
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(draws))
    return quantile(medians, 0.025), statistics.median(ratios), quantile(medians, 0.975)
