"""The terms of a loss in NumPy and float64, from their formulas alone: twin.py DATA.npz < slices.json prints {term: value}.

y, t: [samples, numbers], the student's and the teacher's output; truth: [samples, 33, 15], NaN where unknown.
slices.json: {"slices": [[name, start, end], ...], "softmaxed": whether desires are probabilities already}.
"""
import json
import math
import sys

import numpy as np


def nll(y, mu, s):
    e = np.abs(y - mu)
    s_exp = np.maximum(np.minimum(s, 11.0), np.log(1e-6 + e / 1000.0))
    return e * np.exp(-s_exp) + np.maximum(s, math.log(1e-3))


def laplace_kl(mu_t, s_t, mu_s, s_s):
    low = math.log(1e-6)
    b_t, b_s = (np.exp(np.clip(s, low, 11.0)) for s in (s_t, s_s))
    d = np.abs(mu_t - mu_s)
    return np.log(b_s / b_t) + d / b_s + (b_t / b_s) * np.exp(-d / b_t) - 1


def log_softmax(z):
    z = z - z.max()
    return z - math.log(np.exp(z).sum())


def takes_all(losses, logits):
    k = int(np.argmin(losses))
    rest = sum(v for i, v in enumerate(losses) if i != k)
    return losses[k] + 1e-6 * rest - log_softmax(logits)[k]


def split(x, n, choices):
    """Hypotheses of a row: (mu, s, logits)."""
    rows = x.reshape(-1, 2 * n + choices)
    return rows[:, :n], rows[:, n : 2 * n], rows[:, 2 * n :]


def layout(name, size):
    if name == "plan":
        return (495, 0) if size == 990 else (495, 1)
    if name == "lead" and size % 51 == 0:
        return 24, 3
    return size // 2, 0


def distribution(name, y, t, truth):
    n, choices = layout(name, len(y))
    (mu_s, s_s, z_s), (mu_t, s_t, z_t) = split(y, n, choices), split(t, n, choices)
    out = {}
    kl = laplace_kl(mu_t, s_t, mu_s, s_s).sum(axis=1)
    if choices == 0:
        out[name] = kl[0]
        out[name + "_nll"] = nll(mu_t[0], mu_s[0], s_s[0]).sum()
    else:
        parts, likely = [], []
        for j in range(choices):
            lt, ls = log_softmax(z_t[:, j]), log_softmax(z_s[:, j])
            parts.append((np.exp(lt) * (lt - ls + kl)).sum())
            target = mu_t[int(np.argmax(z_t[:, j]))]
            likely.append(takes_all([nll(target, m, s).sum() for m, s in zip(mu_s, s_s)], z_s[:, j]))
        out[name], out[name + "_nll"] = np.mean(parts), np.mean(likely)
    if name == "plan":
        known = ~np.isnan(truth.reshape(-1))
        target = truth.reshape(-1)[known]
        losses = [nll(target, m[known], s[known]).sum() for m, s in zip(mu_s, s_s)]
        if choices == 0:
            out["plan_truth"] = losses[0]
        else:
            out["plan_truth"] = takes_all(losses, z_s[:, 0]) if known.any() else 0.0
    return out


def classes(y, t, softmaxed):
    total = 0.0
    for a, b in zip(y.reshape(-1, 8), t.reshape(-1, 8)):
        if softmaxed:
            a, b = (np.log(np.maximum(v, 2.0**-24)) for v in (a, b))
        p, q = np.exp(log_softmax(b)), np.exp(log_softmax(a))
        total += (p * np.log(p)).sum() - (p * np.log(q)).sum()
    return total


def binary(y, t):
    def logs(z):  # of the probability and of what is left
        return -np.logaddexp(0, -z), -np.logaddexp(0, z)

    (q1, q0), (p1, p0) = logs(y), logs(t)
    return (np.exp(p1) * (p1 - q1) + np.exp(p0) * (p0 - q0)).sum()


def sample(slices, y, t, truth, softmaxed):
    out = {}
    for name, start, end in slices:
        a, b = y[start:end], t[start:end]
        if name == "pad":
            continue
        if name in ("desire_state", "desire_pred"):
            out[name] = classes(a, b, softmaxed)
        elif name in ("lane_lines_prob", "lead_prob", "meta"):
            out[name] = binary(a, b)
        elif name in ("hidden_state", "action"):
            out["features" if name == "hidden_state" else name] = ((a - b) ** 2).sum() / (b**2).sum()
        else:
            out.update(distribution(name, a, b, truth))
    return out


def main():
    data = np.load(sys.argv[1])
    spec = json.load(sys.stdin)
    rows = [
        sample(spec["slices"], *(data[k][i].astype(np.float64) for k in ("y", "t", "truth")), spec["softmaxed"])
        for i in range(len(data["y"]))
    ]
    json.dump({k: float(np.mean([r[k] for r in rows])) for k in rows[0]}, sys.stdout)


if __name__ == "__main__":
    main()
