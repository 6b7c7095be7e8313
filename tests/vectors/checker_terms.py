"""The terms of the losses by a second implementation: `python -I tests/vectors/checker_terms.py [--write]`.

It imports numpy alone. Every formula is written here as the paper has it, one pair of records or one kernel at a time,
in float64. `terms/terms.json` holds for each term what is given and what follows; the checker computes that anew, and
`--write` stores it. FedWard's terms are compared with the same file (`terms/test_terms.py`).

Sources: Gretton et al. 2012 (MK-MMD and its coefficients), Liu et al. 2020 (MMD-D), FedSR (CMI), the adaptive-MMD paper
(cosine), Arjovsky et al. 2019 (IRMv1), Sagawa et al. 2020 (GroupDRO).
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import numpy as np

FILE = Path(__file__).resolve().parent / "terms" / "terms.json"
GAMMAS = np.array([2.0 ** (-3.5 + 0.25 * i) for i in range(19)])
SAME = 1e-9


def by_rule(rows, columns, start, factor=1.0):
    """Numbers that look like draws: entry i is `factor` sin(start + 1.7 i^1.5), rounded to 6 digits."""
    return np.round(factor * np.sin(start + 1.7 * np.arange(rows * columns) ** 1.5), 6).reshape(rows, columns)


# --- MK-MMD -----------------------------------------------------------------------------------------------------------


def rbf(a, b, gamma):
    return np.exp(-((a - b) ** 2).sum() / gamma)


def unit(features):
    return np.array([row / np.sqrt((row**2).sum()) for row in features])


def pair_statistics(x, y, kernel):
    """h_st = k(x_s,x_t) + k(y_s,y_t) - k(x_s,y_t) - k(x_t,y_s), (n, n), or (n, n, 19) for a kernel of 19 values."""
    n = len(x)
    return np.array([
        [kernel(x[s], x[t]) + kernel(y[s], y[t]) - kernel(x[s], y[t]) - kernel(x[t], y[s]) for t in range(n)]
        for s in range(n)
    ])  # fmt: skip


def least_squares(a, m):
    """argmin_{b >= 0} b'A b / 2 - m'b by active sets: at the end the gradient is 0 where b > 0, and >= 0 elsewhere."""
    b, free = np.zeros(len(m)), np.zeros(len(m), bool)
    while True:
        descent = m - a @ b
        descent[free] = -np.inf
        if free.all() or descent.max() <= 1e-12 * np.abs(m).max():
            return b
        free[np.argmax(descent)] = True
        while True:
            whole = np.zeros(len(m))
            whole[free] = np.linalg.solve(a[np.ix_(free, free)], m[free])
            if whole[free].min() > 0:
                b = whole
                break
            stuck = free & (whole <= 0)
            step = (b[stuck] / (b[stuck] - whole[stuck])).min()
            b = b + step * (whole - b)
            free &= b > 1e-14
            b[~free] = 0.0


def coefficients(statistics):
    """Weights of sum 1 from statistics (19, n, n): min b'(2Q + 1e-5 I)b with m'b = 1, b >= 0, up to scale."""
    h = statistics.reshape(len(statistics), -1)
    mean = h.mean(axis=1)
    covariance = np.cov(h)
    a = 2 * covariance + 1e-5 * np.eye(len(mean))
    found = least_squares(a, mean) if mean.max() > 0 else np.zeros(len(mean))
    if found.sum() <= 0:
        found[np.argmax(mean / np.diag(a))] = 1.0
    return found / found.sum()


def mk_mmd(given):
    x, y = np.array(given["x"]), np.array(given["y"])

    def statistics(own):
        return pair_statistics(unit(own), unit(y), lambda p, q: rbf(p, q, GAMMAS)).transpose(2, 0, 1)

    def distance(own):
        return sum(w * h.mean() for w, h in zip(weights, statistics(own), strict=True))

    weights = coefficients(statistics(x))
    gradient, width = np.zeros(x.shape), 1e-5
    for at in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[at] += width
        down[at] -= width
        gradient[at] = (distance(up) - distance(down)) / (2 * width)
    return {"coefficients": weights, "distance": distance(x), "gradient": gradient}


# --- MMD-D ------------------------------------------------------------------------------------------------------------


def deep_layers(width):
    """Weights and biases of the layers of 10, 10, 10 and 50, by rule."""
    sizes = [width, 10, 10, 10, 50]
    return [
        (by_rule(out, into, 0.3 * at, into**-0.5), by_rule(1, out, 5 + at, into**-0.5)[0])
        for at, (into, out) in enumerate(itertools.pairwise(sizes))
    ]


def mmd_d(given):
    x, y = np.array(given["x"]), np.array(given["y"])
    layers = deep_layers(x.shape[1])
    mix, deep, plain = given["raw"]
    share = 1 / (1 + np.exp(-mix))

    def phi(v):
        for at, (w, b) in enumerate(layers):
            v = w @ v + b
            if at < len(layers) - 1:
                v = np.log(1 + np.exp(v))
        return v

    def kernel(a, b):
        near = (1 - share) * rbf(phi(a), phi(b), deep**2 + 1e-6) + share
        return near * rbf(a, b, plain**2 + 1e-6)

    n, h = len(x), pair_statistics(x, y, kernel)
    distance = sum(h[s, t] for s in range(n) for t in range(n) if s != t) / (n * (n - 1))
    variance = 4 / n**3 * sum(h[s].sum() ** 2 for s in range(n)) - 4 / n**4 * h.sum() ** 2
    return {"distance": distance, "power": distance / np.sqrt(variance + 1e-8)}


# --- terms by record, and by environment ------------------------------------------------------------------------------


def cosine(given):
    pairs = zip(np.array(given["x"]), np.array(given["y"]), strict=True)
    return {"distance": np.mean([1 - a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in pairs])}


def cmi(given):
    """KL(N(mean, deviation^2) || N(m_y, s_y^2)), summed over coordinates, by record."""
    mean, deviation, tables, scales = (
        np.array(given[key]) for key in ("mean", "deviation", "prior_mean", "prior_deviation")
    )
    return {
        "losses": [
            sum(
                np.log(scales[c][j] / deviation[i, j])
                + (deviation[i, j] ** 2 + (mean[i, j] - tables[c][j]) ** 2) / (2 * scales[c][j] ** 2)
                - 0.5
                for j in range(mean.shape[1])
            )
            for i, c in enumerate(given["y"])
        ]
    }


def risk(logits, labels, factor):
    """Mean cross-entropy of factor times logits, by a sum of exponentials for every record."""
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        scaled = factor * np.asarray(row)
        total += np.log(np.exp(scaled).sum()) - scaled[label]
    return total / len(labels)


def irm(given):
    """Of every environment, and in their mean: the squared derivative of the risk by a factor on the logits, at 1."""
    logits, labels, where = (np.array(given[key]) for key in ("logits", "y", "environments"))
    slopes = []
    for environment in sorted(set(where.tolist())):
        own = where == environment
        # Of fourth order in the width.
        up, down = ([risk(logits[own], labels[own], 1 + sign * times * 1e-3) for times in (1, 2)] for sign in (1, -1))
        slopes.append((8 * (up[0] - down[0]) - (up[1] - down[1])) / (12 * 1e-3))
    return {"penalties": [slope**2 for slope in slopes], "penalty": np.mean([slope**2 for slope in slopes])}


def group_dro(given):
    """Environments' weights, step after step: q_e exp(rate risk_e), scaled to sum 1."""
    weights, steps = np.full(len(given["risks"][0]), 1 / len(given["risks"][0])), []
    for risks in given["risks"]:
        weights = weights * np.exp(given["rate"] * np.array(risks))
        weights = weights / weights.sum()
        steps.append(weights)
    return {"weights": steps}


# --- the file ---------------------------------------------------------------------------------------------------------

RULES = {
    "mk_mmd": mk_mmd,
    "mmd_d": mmd_d,
    "cosine": cosine,
    "cmi": cmi,
    "irm": irm,
    "group_dro": group_dro,
}


def _one_turned(start):
    """A little beside the rule's records, the first one opposite: several kernels see that."""
    y = by_rule(6, 3, start) + 0.3 * by_rule(6, 3, start + 20)
    y[0] = -y[0]
    return np.round(y, 6)


def cases():
    """What is given of every term."""
    near, far = by_rule(6, 4, 0.0), by_rule(6, 4, 9.0)
    moved = np.round(near + 0.4 + 0.2 * far, 6)
    labels = [0, 1, 1, 0, 2, 1]
    return {
        "mk_mmd": [
            {"x": near, "y": moved},
            {"x": near[:2], "y": moved[:2]},
            {"x": 5.0 * near, "y": far},
            *({"x": by_rule(6, 3, start), "y": _one_turned(start)} for start in (5.0, 9.0)),
        ],
        "mmd_d": [
            {"x": near, "y": moved, "raw": [-1.0, 0.4, 1.7]},
            {"x": far[:, :3], "y": near[:, :3], "raw": [-24.0, 0.07, 45.0]},
        ],
        "cosine": [{"x": near, "y": moved}, {"x": near, "y": -3.0 * near}],
        "cmi": [
            {
                "mean": near,
                "deviation": np.abs(far) + 0.1,
                "prior_mean": by_rule(3, 4, 2.0),
                "prior_deviation": np.abs(by_rule(3, 4, 4.0)) + 0.2,
                "y": labels,
            }
        ],
        "irm": [
            {"logits": by_rule(6, 3, 1.0, 2.0), "y": labels, "environments": [0, 1, 0, 1, 1, 0]},
            {"logits": by_rule(6, 3, 3.0, 5.0), "y": labels, "environments": [2, 2, 2, 2, 2, 2]},
        ],
        "group_dro": [
            {"risks": [[0.7, 0.4, 0.9], [0.6, 0.5, 1.1], [0.2, 0.5, 0.0]], "rate": 0.01},
            {"risks": [[3.0, 0.0], [2.0, 40.0]], "rate": 1.0},
        ],
    }


def plain(value):
    """Lists and numbers of what numpy gives."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return np.asarray(value).tolist()


def build():
    """Given and expected, of every case of every term."""
    return {
        name: [{"given": (given := plain(case)), "expected": plain(RULES[name](given))} for case in of]
        for name, of in cases().items()
    }


def text(content):
    """JSON with a line for each case."""
    parts = [f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in of) + "\n]" for name, of in content.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def differing(content):
    """Names of the cases whose expected values do not follow from what is given."""
    found = []
    for name, of in content.items():
        for number, case in enumerate(of):
            anew = plain(RULES[name](case["given"]))
            same = anew.keys() == case["expected"].keys() and all(
                np.shape(value) == np.shape(case["expected"][key])
                and np.abs(np.subtract(value, case["expected"][key])).max() <= SAME
                for key, value in anew.items()
            )
            if not same:
                found.append(f"{name} {number}")
    return found


def main():
    if "--write" in sys.argv[1:]:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(text(build()))
    wrong = differing(json.loads(FILE.read_text()))
    for name in wrong:
        sys.stdout.write(f"{name} differs\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
