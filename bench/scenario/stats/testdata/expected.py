"""Records statistics that SciPy, statsmodels and mpmath compute, for oracle_test.go to compare with.

    pip install scipy==1.17.1 statsmodels==0.15.0 mpmath==1.4.1
    python3 bench/scenario/stats/testdata/expected.py bench/scenario/stats/testdata/expected.json
"""
import json
import sys

import mpmath
import numpy as np
import scipy
from scipy import optimize, stats
from statsmodels.stats.multitest import multipletests

rng = np.random.RandomState(1)
mpmath.mp.dps = 40
out = {"scipy": scipy.__version__}

out["normal"] = [[z, float(mpmath.ncdf(z))] for z in (*range(-37, 9), -2.001, -1.999, 1.999, 2.001)]
out["quantile"] = [[p, stats.norm.ppf(p)] for p in (1e-300, 1e-12, 0.001, 0.025, 0.2, 0.5, 0.8, 0.975, 0.9999)]
out["binomial"] = [[k, n, p, stats.binom.cdf(k, n, p)] for k, n, p in (
    (0, 1, 0.5), (3, 10, 0.5), (7, 10, 0.2), (0, 1000, 0.01), (450, 1000, 0.5), (300, 1000, 0.5), (12, 5000, 0.001), (4999, 5000, 0.999))]
out["mcnemar"] = []
for b, c in ((0, 0), (1, 0), (0, 6), (5, 5), (3, 12), (12, 3), (20, 41), (500, 600)):
    exact = stats.binomtest(b, b + c, 0.5).pvalue if b + c else 1.0
    mid = min(1, exact - stats.binom.pmf(b, b + c, 0.5)) if b != c else 1.0
    out["mcnemar"].append([b, c, exact, mid])
out["rates"] = []


def edge(k, n, p, tail):
    """The rate near p at which at most k of n succeed with probability tail; SciPy's is good to 1e-10 of it."""
    def off(p):
        return mpmath.fsum(mpmath.binomial(n, i) * p**i * (1 - p)**(n - i) for i in range(k + 1)) - mpmath.mpf(tail)
    p = mpmath.mpf(p)
    return float(mpmath.findroot(off, (p - p / 10**6, p + p / 10**6), solver="anderson"))


for k, n, alpha in ((0, 10, 0.05), (1, 10, 0.05), (5, 10, 0.1), (10, 10, 0.05), (3, 1000, 0.05), (990, 1000, 0.01)):
    i = stats.binomtest(k, n).proportion_ci(1 - alpha, "exact")
    low = 1 - edge(n - k, n, 1 - i.low, alpha / 2) if k else 0.0
    high = edge(k, n, i.high, alpha / 2) if k < n else 1.0
    assert abs(low - i.low) < 1e-9 and abs(high - i.high) < 1e-9
    out["rates"].append([k, n, alpha, low, high])


def tango(only_a, only_b, n, alpha):
    """The score interval, its constrained rates found by a search instead of the formula."""
    same = n - only_a - only_b

    def score(delta):
        def loss(a):
            b = a + delta
            return -sum(k * np.log(max(p, 1e-300)) for k, p in ((only_a, a), (only_b, b), (same, 1 - a - b)) if k)
        low, high = max(0, -delta), (1 - delta) / 2
        a = optimize.minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-13}).x
        for edge in (low, high):
            a = edge if loss(edge) <= loss(a) else a
        off = only_b - only_a - n * delta
        return 0 if off == 0 else off / np.sqrt(n * (2 * a + delta * (1 - delta)))
    z = stats.norm.ppf(1 - alpha / 2)
    edge = 1 - 1e-9
    middle = (only_b - only_a) / n
    middle = np.clip(middle, -edge + 1e-9, edge - 1e-9)
    return [optimize.brentq(lambda d: score(d) - z, -edge, middle, xtol=1e-13), optimize.brentq(lambda d: score(d) + z, middle, edge, xtol=1e-13)]


out["paired"] = [[a, b, n, 0.05, *tango(a, b, n, 0.05)] for a, b, n in ((0, 0, 20), (1, 4, 40), (12, 2, 44), (3, 16, 100), (0, 9, 50), (40, 55, 1000))]

out["wilcoxon"] = []
for n, digits, shift, zeros in ((5, 6, 1, 0), (8, 6, 0, 0), (12, 0, 1, 2), (14, 0, 0, 0), (30, 6, 0.5, 0), (50, 6, 0.3, 3), (51, 6, 0.3, 0), (80, 0, 0.3, 10), (400, 1, 0.1, 50)):
    x = np.round(rng.standard_normal(n) * 3 + shift, digits)
    x[:zeros] = 0
    kept = x[x != 0]
    tied = len(set(abs(kept))) < len(kept)
    if len(kept) > 50:
        how = {"method": "approx", "correction": True}
    elif tied:
        how = {"method": stats.PermutationMethod(n_resamples=1 << 20)}
    else:
        how = {"method": "exact"}
    p = stats.wilcoxon(kept, zero_method="wilcox", **how).pvalue
    out["wilcoxon"].append({"differences": x.tolist(), "p": p, "exact": len(kept) <= 50})

out["holm"] = []
for p in ([0.03], [0.01, 0.04, 0.03, 0.005], [0.02, 0.02, 0.9, 0.021], [0.5, 0.6, 0.7], [1e-9, 0.049, 0.05, 0.2, 1]):
    out["holm"].append([p, multipletests(p, method="holm")[1].tolist()])


class Stream(np.random.Generator):
    """Go's math/rand/v2.PCG, drawn from as Bootstrap does."""

    def __init__(self, seed):
        super().__init__(np.random.PCG64())
        self.state = seed << 64 | 0x73746174732E4142

    def word(self):
        self.state = (self.state * (2549297995355413924 << 64 | 4865540595714422341) + (6364136223846793005 << 64 | 1442695040888963407)) % (1 << 128)
        high, low = self.state >> 64, self.state % (1 << 64)
        high ^= high >> 32
        high = high * 0xDA942042E4DD58B5 % (1 << 64)
        high ^= high >> 48
        return high * (low | 1) % (1 << 64)

    def integers(self, low, high, size, **_):
        return np.array([self.word() * high >> 64 for _ in range(int(np.prod(size)))]).reshape(size)


out["bootstrap"] = []
for name, statistic in (("mean", np.mean), ("median", np.median)):
    for n, seed in ((15, 1), (40, 2)):
        x = np.round(rng.exponential(size=n) - 0.7, 4)
        row = {"statistic": name, "x": x.tolist(), "seed": seed}
        for method in ("percentile", "BCa"):
            i = stats.bootstrap((x,), statistic, n_resamples=999, confidence_level=0.9, method=method, rng=Stream(seed)).confidence_interval
            row[method] = [i.low, i.high]
        out["bootstrap"].append(row)


def power(n, share, delta, alpha):
    """Of the exact test of McNemar, by summing over all outcomes."""
    total = 0
    for m in range(n + 1):
        k = np.arange(m + 1)
        p = np.minimum(1, 2 * stats.binom.cdf(np.minimum(k, m - k), m, 0.5))
        total += stats.binom.pmf(m, n, share) * stats.binom.pmf(k, m, (1 + delta / share) / 2)[p <= alpha].sum()
    return total


out["power"] = [[n, share, delta, alpha, power(n, share, delta, alpha)] for n, share, delta, alpha in (
    (20, 0.5, 0.4, 0.05), (100, 0.1, 0.08, 0.05), (100, 0.1, 0.0, 0.05), (200, 0.3, -0.1, 0.01), (6, 1, 1, 0.05), (5, 1, 1, 0.05))]


def plain(x):
    return [plain(v) for v in x] if isinstance(x, (list, tuple)) else {k: plain(v) for k, v in x.items()} if isinstance(x, dict) else x.item() if isinstance(x, np.generic) else x


with open(sys.argv[1], "w") as f:
    f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(plain(v))}" for k, v in out.items()) + "\n}\n")
