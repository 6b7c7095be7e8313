"""A made-up cohort of six hospitals and five ethnic groups, written as the files a hospital would export.

Guarantees: equal seeds write equal files; every value is rounded like a real measurement and lies in the range that
the study's schema publishes (`exam/study.yaml`); no real patient is in it. The shape follows the EXAM cohort of
FedDAR (Table 6): 7,681 patients, the share of every group at every site, and one site with a single group.
What a study makes of the files is left to the study.

The linear law. A patient of group m has a latent state z in the unit ball of R^16, whose variances fall like 1/j. The
risk is `sigmoid(a_m <w_m, z> + b_m)` with `w_m` proportional to `w_0 + 0.8 v_m`: the groups share the state and differ
in the direction that matters. `a_m` gives every group a logit spread of 2.2, `b_m` its prevalence. The 22 record
features are noisy linear views of z in clinical units, so no single column is the state and no group is favoured by a
column.

The nonlinear law differs in the risk alone: beside the linear part, and as large, stands a curved part that all groups
share, made of products and squares of six projections of z. No linear model of the columns can see it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

GROUPS: Final = ("White", "Black", "Asian", "Latino", "Other")
SITE_PATIENTS: Final = (2200, 1700, 1300, 1100, 800, 581)
"""Patients per site. The paper gives the total of 7,681 and the shares, not these sizes."""
SITE_SHARES: Final = (
    (59.6, 10.0, 3.4, 2.0, 24.9),
    (75.0, 11.1, 2.8, 0.6, 10.5),
    (46.5, 26.3, 4.2, 7.0, 16.0),
    (71.4, 6.3, 4.2, 0.8, 17.2),
    (44.0, 28.4, 1.6, 6.3, 19.8),
    (0.0, 0.0, 100.0, 0.0, 0.0),
)
"""Per cent of each group at each site: FedDAR, Table 6."""
PREVALENCE: Final = (0.11, 0.11, 0.188, 0.11, 0.11)
TEST_PATIENTS: Final = 4000
VISITS: Final = (0.70, 0.20, 0.10)
"""Shares of patients with one, two and three records."""

_STATE: Final = 16
_HETEROGENEITY: Final = 0.8
_LOGIT_SPREAD: Final = 2.2
_PATIENT_NOISE: Final = 0.22
_VISIT_NOISE: Final = 0.16
"""Standard deviations of what a column shows beside the state, in units of the column's own spread (0.27 together)."""


@dataclass(frozen=True)
class MadeUpColumn:
    """One record feature: centre and spread in its unit (of its logarithm with `log`), public range, resolution."""

    name: str
    centre: float
    spread: float
    minimum: float
    maximum: float
    digits: int
    log: bool = False

    def measure(self, score: Array) -> Array:
        """Standard scores (n,) as measurements in the column's unit, clipped to the public range and rounded."""
        deviation = self.spread * score
        value = self.centre * np.exp(deviation) if self.log else self.centre + deviation
        return np.asarray(np.round(np.clip(value, self.minimum, self.maximum), self.digits), np.float64)


MEASUREMENTS: Final = (
    MadeUpColumn("age_years", 61, 15, 20, 100, 0),
    MadeUpColumn("temperature_c", 37.5, 0.8, 35.5, 40.0, 1),
    MadeUpColumn("heart_rate_bpm", 90, 17, 45, 140, 0),
    MadeUpColumn("respiratory_rate_per_min", 22, 5, 8, 36, 0),
    MadeUpColumn("systolic_mmhg", 128, 19, 75, 180, 0),
    MadeUpColumn("diastolic_mmhg", 74, 11, 45, 105, 0),
    MadeUpColumn("spo2_percent", 92, 4, 80, 100, 0),
    MadeUpColumn("d_dimer_ng_ml", 850, 0.9, 80, 9000, 0, log=True),
    MadeUpColumn("ldh_u_l", 330, 0.42, 110, 1000, 0, log=True),
    MadeUpColumn("procalcitonin_ng_ml", 0.25, 1.2, 0.02, 5, 2, log=True),
    MadeUpColumn("crp_mg_l", 60, 0.9, 6, 500, 0, log=True),
    MadeUpColumn("creatinine_mg_dl", 1.0, 0.4, 0.3, 3, 1, log=True),
    MadeUpColumn("glucose_mg_dl", 135, 0.36, 55, 340, 0, log=True),
    MadeUpColumn("ast_u_l", 42, 0.6, 8, 200, 0, log=True),
    MadeUpColumn("troponin_ng_l", 14, 1.1, 1, 220, 0, log=True),
    MadeUpColumn("ferritin_ng_ml", 500, 0.9, 50, 5000, 0, log=True),
    MadeUpColumn("wbc_10e9_l", 7.5, 0.4, 2.5, 22, 1, log=True),
    MadeUpColumn("lymphocytes_10e9_l", 1.0, 0.48, 0.3, 3.5, 1, log=True),
    MadeUpColumn("neutrophils_10e9_l", 5.5, 0.48, 1.5, 20, 1, log=True),
    MadeUpColumn("egfr_ml_min", 75, 22, 15, 135, 0),
    MadeUpColumn("lactate_mmol_l", 1.6, 0.42, 0.5, 5, 1, log=True),
)
OXYGEN_DEVICES: Final = ("room air", "nasal cannula", "mask", "high flow")
_OXYGEN_STEPS: Final = (0.0, 0.9, 1.6)
"""Scores from which the next device is in use: about 50, 32, 13 and 5 per cent of the patients."""
PATIENT, GROUP, LABEL, OXYGEN = "patient_id", "ethnicity", "deteriorated_24h", "oxygen_device"
HEADER: Final = (PATIENT, GROUP, *(c.name for c in MEASUREMENTS), OXYGEN, LABEL)
FEATURES: Final = len(MEASUREMENTS) + 1


LawName = Literal["linear", "nonlinear"]
_PROJECTIONS: Final = 6


@dataclass(frozen=True)
class CohortFiles:
    """Where the files lie: one of every site (in the order of `SITE_PATIENTS`), one test file of every group."""

    sites: tuple[Path, ...]
    tests: dict[str, Path]
    """Public test file by domain name: `TEST_PATIENTS` patients each, whom no site knows."""
    patients: int


class OutcomeLaw:
    """State, risk and appearance of a patient, drawn once per cohort. The risk is linear in the state."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        fall = 1.0 / np.sqrt(np.arange(1, _STATE + 1, dtype=np.float64))
        turn = np.linalg.qr(rng.normal(size=(_STATE, _STATE)))[0]
        self._mix = 0.8 * (fall / np.linalg.norm(fall))[:, None] * turn.T
        self._shift = 0.1 * rng.normal(size=(len(GROUPS), _STATE)) / np.sqrt(_STATE)
        common = _unit(rng.normal(size=_STATE))
        own = _unit(rng.normal(size=(len(GROUPS), _STATE)))
        self._direction = _unit(common + _HETEROGENEITY * own)
        view = np.linalg.qr(rng.normal(size=(FEATURES, _STATE)))[0]
        self._view = view / np.linalg.norm(self._mix @ view.T, axis=0)[:, None]
        self._prepare()
        self._slope, self._intercept = np.zeros(len(GROUPS)), np.zeros(len(GROUPS))
        for group in range(len(GROUPS)):
            score = self._score(self.states(20_000, group), group)
            self._slope[group] = _LOGIT_SPREAD / score.std()
            self._intercept[group] = _intercept(self._slope[group] * score, PREVALENCE[group])

    def _prepare(self) -> None:
        """Draw what the score needs beside the directions."""

    def _score(self, states: Array, group: int) -> Array:
        """What the risk rises with (n,), in any unit."""
        score: Array = states @ self._direction[group]
        return score

    def states(self, count: int, group: int) -> Array:
        """Latent states (count, 16), at most 1 in norm."""
        state = self._rng.normal(size=(count, _STATE)) @ self._mix + self._shift[group]
        inside: Array = state / np.maximum(1.0, np.linalg.norm(state, axis=1, keepdims=True))
        return inside

    def labels(self, states: Array, group: int) -> npt.NDArray[np.int64]:
        """Outcomes (n,) drawn from the group's risk."""
        risk = _sigmoid(self._slope[group] * self._score(states, group) + self._intercept[group])
        return (self._rng.random(len(states)) < risk).astype(np.int64)

    def appearance(self, states: Array) -> Array:
        """Standard scores (n, 22) of the columns, with what is particular to the patient and not to the visit."""
        noise = self._rng.normal(size=(len(states), FEATURES))
        scores: Array = states @ self._view.T + _PATIENT_NOISE * noise
        return scores


class NonlinearLaw(OutcomeLaw):
    """The same with as much of the risk in products and squares of six projections of the state as in the state."""

    def _prepare(self) -> None:
        self._axes = _unit(self._rng.normal(size=(_PROJECTIONS, _STATE)))
        self._axes /= (self.states(20_000, 0) @ self._axes.T).std(axis=0)[:, None]
        drawn = [self.states(20_000, group) for group in range(len(GROUPS))]
        self._straight = [(own @ self._direction[group]).std() for group, own in enumerate(drawn)]
        self._curved = [self._curve(own).std() for own in drawn]

    def _curve(self, states: Array) -> Array:
        a, b, c, d, e, f = (states @ self._axes.T).T
        curve: Array = a * b + 0.7 * (c**2 - 1.0) + np.abs(d) * e - 0.7 * (f**2 - 1.0)
        return curve

    def _score(self, states: Array, group: int) -> Array:
        straight = (states @ self._direction[group]) / self._straight[group]
        score: Array = straight + self._curve(states) / self._curved[group]
        return score


LAWS: Final[dict[LawName, type[OutcomeLaw]]] = {"linear": OutcomeLaw, "nonlinear": NonlinearLaw}


def _unit(vectors: Array) -> Array:
    scaled: Array = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return scaled


def _sigmoid(logit: Array) -> Array:
    risk: Array = 1.0 / (1.0 + np.exp(-logit))
    return risk


def _intercept(logits: Array, prevalence: float) -> float:
    """The intercept under which the mean risk is the prevalence, by bisection."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _sigmoid(logits + middle).mean() > prevalence else (middle, high)
    return (low + high) / 2


def generate(folder: Path, seed: int, *, law: LawName = "linear", times: int = 1) -> CohortFiles:
    """Write `site-1.csv` to `site-6.csv` and `public-test-<group>.csv` into `folder`, which is created.

    Every site has `times` as many patients as `SITE_PATIENTS` says. The test patients are drawn from the same laws,
    have one record each and belong to no site.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    drawn = LAWS[law](rng)
    sites = []
    for number, (patients, shares) in enumerate(zip(SITE_PATIENTS, SITE_SHARES, strict=True), start=1):
        path = folder / f"site-{number}.csv"
        groups = rng.choice(len(GROUPS), size=patients * times, p=np.array(shares) / sum(shares))
        visits = 1 + rng.choice(len(VISITS), size=patients * times, p=VISITS)
        _write(path, _rows(drawn, rng, groups, visits, f"S{number}"))
        sites.append(path)
    tests = {}
    for group, name in enumerate(GROUPS):
        path = folder / f"public-test-{name.lower()}.csv"
        groups = np.full(TEST_PATIENTS, group)
        _write(path, _rows(drawn, rng, groups, np.ones(TEST_PATIENTS, dtype=np.int64), f"T{group + 1}"))
        tests[name] = path
    return CohortFiles(tuple(sites), tests, sum(SITE_PATIENTS) * times)


def _rows(
    law: OutcomeLaw, rng: np.random.Generator, groups: npt.NDArray[np.int64], visits: npt.NDArray[np.int64], prefix: str
) -> Iterator[list[str]]:
    """The lines of one file: patients in random order of group, the visits of one patient together."""
    seen = seen_by_record(law, rng, groups, visits)
    for row, who in enumerate(seen.patients):
        measured = (f"{v[row]:.{c.digits}f}" for v, c in zip(seen.measured, MEASUREMENTS, strict=True))
        device = OXYGEN_DEVICES[seen.devices[row]]
        yield [f"{prefix}-{who + 1:05d}", GROUPS[groups[who]], *measured, device, str(seen.labels[row])]


@dataclass(frozen=True, repr=False, eq=False)
class MeasuredRecords:
    """Records (n,): whose they are, their outcome, `measured` (21, n) in the columns' units, the device's place."""

    patients: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    measured: tuple[Array, ...]
    devices: npt.NDArray[np.int64]


def seen_by_record(
    law: OutcomeLaw, rng: np.random.Generator, groups: npt.NDArray[np.int64], visits: npt.NDArray[np.int64]
) -> MeasuredRecords:
    """Records of patients of these groups (p,) with so many visits (p,)."""
    scores, labels = np.zeros((len(groups), FEATURES)), np.zeros(len(groups), dtype=np.int64)
    for group in np.unique(groups):
        of_group = groups == group
        states = law.states(int(of_group.sum()), int(group))
        scores[of_group], labels[of_group] = law.appearance(states), law.labels(states, int(group))
    patient = np.repeat(np.arange(len(groups)), visits)
    seen = scores[patient] + _VISIT_NOISE * rng.normal(size=(len(patient), FEATURES))
    values = tuple(column.measure(seen[:, j]) for j, column in enumerate(MEASUREMENTS))
    return MeasuredRecords(patient, labels[patient], values, np.searchsorted(_OXYGEN_STEPS, seen[:, -1]))


def _write(path: Path, rows: Iterator[list[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(rows)
