"""Makes values.json beside it: what SciPy says of the statistics of the laboratory.

Run by hand in an environment with SciPy: `python make.py > values.json`.
"""

import json
import math

import numpy
import scipy
from scipy import stats

LEVEL = 0.95
POWER = 0.8


def quantiles():
    """Tails, the freedoms that Welch's formula gives, and the probabilities of the verdicts."""
    tails = (0.5005, 0.55, 0.75, 0.9, 0.99, 0.999, 0.9999)
    freedoms = (1, 1.001, 1.37, 2.5, 3.999, 8.25, 17.6, 63.2, 512.75, 65536.5)
    judged = (0.5, 0.6, 0.8, 0.95, 0.975, 0.995, 0.9995)
    more = (1, 1.0625, 1.5, 2, 2.75, 3, 4, 5.125, 6, 7.5, 10, 14, 30.5, 100, 1234.5, 100000)
    return [
        {"p": p, "freedom": freedom, "t": float(stats.t.ppf(p, freedom))}
        for ps, all_freedoms in ((tails, freedoms), (judged, more))
        for p in ps
        for freedom in all_freedoms
    ]


def sets():
    """Positive samples of several shapes, rounded so that their text is exact."""
    random = numpy.random.default_rng(20260301)
    made = {
        "two": [1.5, 1.75],
        "three": [10.0, 10.5, 9.25],
        "even": random.normal(100, 3, 8),
        "odd": random.normal(0.02, 0.001, 15),
        "skewed": random.lognormal(2, 0.8, 40),
        "two speeds": numpy.concatenate([random.normal(50, 0.3, 30), random.normal(61, 0.3, 11)]),
        "large": random.normal(1e9, 3, 20),
        "many": random.gamma(2, 5, 400),
    }
    return {name: [float(f"{value:.13g}") for value in values] for name, values in made.items()}


def described(values):
    x = numpy.array(values)
    return {
        "median": float(numpy.median(x)),
        "mean": math.fsum(values) / len(values),
        "std": float(numpy.std(x - x.mean(), ddof=1)),
        "mad": float(stats.median_abs_deviation(x)),
        "percentiles": {str(p): float(numpy.quantile(x, p / 100)) for p in (10, 50, 75, 90, 95, 99)},
        "log_interval": log_interval(values),
    }


def log_interval(values):
    """Student's interval of the mean of logarithms, back among the values."""
    interval = stats.ttest_1samp(numpy.log(values), 0).confidence_interval(LEVEL)
    return [float(math.exp(interval.low)), float(math.exp(interval.high))]


def ranks():
    """Places from 0 of the order statistics around a quantile: each side misses it in 2.5 % of cases at most."""
    found = []
    tail = (1 - LEVEL) / 2
    for p in (0.05, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99):
        for n in (1, 5, 6, 7, 10, 35, 36, 37, 71, 72, 100, 367, 368, 1000, 5000):
            # The number of samples below the quantile is binomial.
            below = [k for k in range(n) if stats.binom.cdf(k, n, p) <= tail]
            above = [k for k in range(1, n + 1) if stats.binom.sf(k - 1, n, p) <= tail]
            places = [max(below), min(above) - 1] if below and above else None
            found.append({"percent": p * 100, "n": n, "places": places})
    return found


def welch(base, new):
    """Of two lists of logarithms: the interval of the ratio and what 80 % of such measurements would find."""
    a, b = numpy.log(base), numpy.log(new)
    test = stats.ttest_ind(b, a, equal_var=False)
    interval = test.confidence_interval(LEVEL)
    error = math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    return {
        "ratio": float(math.exp(b.mean() - a.mean())),
        "low": float(math.exp(interval.low)),
        "high": float(math.exp(interval.high)),
        "freedom": float(test.df),
        "detectable": math.expm1(error * noncentrality(test.df)),
    }


def noncentrality(freedom):
    """The shift, in standard errors, that a two-sided test finds with the power."""
    critical = stats.t.ppf((1 + LEVEL) / 2, freedom)

    def missing(shift):
        # A finding on the wrong side adds less than a thousandth to this power, and SciPy often has no number for it.
        return stats.nct.sf(critical, freedom, shift) - POWER

    near = critical + stats.t.ppf(POWER, freedom)
    return float(scipy.optimize.brentq(missing, 0.75 * near, 1.15 * near, xtol=1e-10))


def pairs():
    random = numpy.random.default_rng(7)
    found = []
    for n, m in ((3, 3), (3, 8), (4, 4), (8, 8), (5, 30), (20, 20), (200, 150)):
        for spread, other in ((0.005, 0.005), (0.02, 0.002), (0.2, 0.1)):
            made = (random.normal(50, 50 * spread, n), random.normal(51, 51 * other, m))
            base, new = ([float(f"{v:.13g}") for v in values] for values in made)
            found.append({"base": base, "new": new} | welch(base, new))
    return found


print(json.dumps(
    {
        "made_with": f"scipy {scipy.__version__}, numpy {numpy.__version__}",
        "student": quantiles(),
        "samples": {name: {"values": values} | described(values) for name, values in sets().items()},
        "ranks": ranks(),
        "welch": pairs(),
    },
    indent=1,
))
