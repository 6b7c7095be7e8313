"""One-run audit of everything that a silo releases: an attacker's lower bound of epsilon, compared with the ledger.

Steinke, Nasr, Jagielski 2023, "Privacy Auditing with One (1) Training Run", on the real path: gate, ledger, counts,
heads, DP-SGD, metrics. 5,000 canary patients of two records each are in or out by a fair coin; the attacker sees the
noised integers that would be sealed, knows everything else, and guesses. No lower bound may lie above the ledger's
epsilon. The same audit runs on code whose noise is too small, to show that it can fail. Three minutes on one core.

The attacker is as strong as the threat model allows: it chooses the models (public values), and each canary has a
coordinate of its own in every release. A domain of its own gives it a count, a head's block and a metric cell; its
domain's head points at one row of a linear encoder and its record is non-zero in one input, so its clipped gradient is
one weight of the encoder. Noise is local: the silo's own integers are private without anybody's help.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import structlog
import yaml
from numpy.typing import NDArray
from scipy.stats import binom

from bench.places import ROOT
from bench.table import Criterion, judge
from crypto.entropy import Entropy, SystemEntropy
from crypto.pki.authority import root as authority
from crypto.pki.certificates import Credential
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject
from crypto.rings.grid import from_grid
from crypto.rings.rings import ring_of
from crypto.secagg.labels import SumLabel
from crypto.secagg.masks import Masks
from crypto.secagg.sealing import Sealer
from crypto.stream import KeyStream
from policies.accounting import accountant
from policies.documents.study import Study
from policies.ledger.chain import Genesis
from policies.ledger.cosign import Cosignature
from policies.ledger.ledger import Ledger
from policies.plan.grids import sums_of
from policies.plan.release import Release
from policies.plan.release import plan as plan_of
from protos.messages import Place, Tensor
from silo_agent.data.records import Records
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.gate import Gate, Order
from silo_agent.learning.dpsgd.rounded_gaussian import RoundedGaussian
from silo_agent.learning.learner import Learner
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.noise import gaussian
from silo_agent.learning.noise.draws import KeyedDraws
from silo_agent.learning.releases.encoder import UPDATE_STEPS
from silo_agent.metrics import AgentMetrics
from silo_agent.storage.keyed.digests import Digests
from silo_agent.storage.state import State

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

CANARIES, REPETITIONS, GUESSES = 5_000, 20, 200
"""Of the guesses, half say "in" (the highest scores), half "out". Their number is fixed beforehand: choosing it by the
outcome would need a correction. 200 gave the highest bounds on simulated Gaussians."""
CLAIMS, DELTA, LEVEL = (1.0, 2.0), 1e-5, 0.05
FAULTS = {"as built": 1.0, "half noise": 0.5, "quarter noise": 0.25, "no noise": 0.0}
NAME, DATA_SET, SILOS = "north", "ward", ("north", "south", "west")
FACTORS = (20, 25, 10)
"""Values of the three columns whose product are the 5,000 domains."""
INPUTS, ROWS = 1_000, 5
"""Inputs and outputs of the linear encoder: 5,000 weights, one for each canary."""
LOUD = 64.0
"""Value of a canary's one input. Its gradient is this much larger in its weight than in the bias that all share."""
STEEP = 1e2
"""Weight of the heads while the encoder trains: every canary's gradient is far above the clip."""
SATURATED = 20.0
HOLDOUT = 0.2
_SAMPLE = ROOT / "policies" / "samples" / "research.yaml"
_LARGEST_EPSILON = accountant.MAX_TARGET
_MEMORY = Path("/dev/shm")  # noqa: S108  # a folder of a name of its own is made there


def main() -> int:
    """Audit, print, judge."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    figures: list[Criterion] = []
    details: dict[str, Any] = {"canaries": CANARIES, "repetitions": REPETITIONS, "guesses": GUESSES, "delta": DELTA}
    began = time.monotonic()
    for claim in CLAIMS:
        study = accountant.calibrate(canary_study(), claim)
        for name, factor in FAULTS.items():
            with weakened(factor):
                runs = [audited(study, SystemEntropy()) for _ in range(REPETITIONS)]
            for cohort in ("training", "evaluation"):
                mine = [run[cohort] for run in runs]
                figures.append(_figure(claim, name, cohort, mine))
                details[f"{claim:g} {name} {cohort}"] = [
                    {"epsilon": one.epsilon, "right": one.right, "bound": one.bound} for one in mine
                ]
    details["seconds"] = time.monotonic() - began
    return judge("audit", figures, details)


# --- the theorem ------------------------------------------------------------------------------------------------------
def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Largest chance of `right` or more right guesses out of `guesses`, were the releases (epsilon, delta)-private.

    Steinke, Nasr, Jagielski 2023, Theorem 5.2 and Corollary 5.4: with m canaries, each in with probability 1/2, r
    guesses and the others abstained from, the right ones are stochastically dominated by W ~ Binomial(r, q), q =
    e^eps / (1 + e^eps), up to delta: P[V >= v] <= P[W >= v] + 2 m delta max_{1<=i<=v} P[v - i <= W < v] / i. No
    independence of the canaries is needed.
    """
    chance = 1.0 / (1.0 + math.exp(-epsilon))
    i = np.arange(1, right + 1)
    below = binom.cdf(right - 1, guesses, chance) - binom.cdf(right - 1 - i, guesses, chance)
    slack = 2.0 * canaries * delta * float((below / i).max(initial=0.0))
    return min(1.0, float(binom.sf(right - 1, guesses, chance)) + slack)


def lower_bound(canaries: int, guesses: int, right: int, delta: float, level: float = LEVEL) -> float:
    """The largest epsilon that these guesses refute at `level`, 0 if they refute none (the paper's Lemma 4.7)."""
    if p_value(canaries, guesses, right, 0.0, delta) >= level:
        return 0.0
    low, high = 0.0, _LARGEST_EPSILON
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (middle, high) if p_value(canaries, guesses, right, middle, delta) < level else (low, middle)
    return low


@dataclass(frozen=True)
class AuditOutcome:
    """One run: the ledger's epsilon, right guesses, and the lower bound that they prove."""

    epsilon: float
    right: int
    bound: float


def judged(scores: Array, included: NDArray[np.bool_], epsilon: float) -> AuditOutcome:
    """Guess "in" for the highest scores and "out" for the lowest, GUESSES in all; `scores` and `included` are (m,)."""
    order, half = np.argsort(scores), GUESSES // 2
    right = int(included[order[-half:]].sum() + (~included[order[:half]]).sum())
    return AuditOutcome(epsilon, right, lower_bound(len(scores), GUESSES, right, DELTA))


def _figure(claim: float, name: str, cohort: str, runs: list[AuditOutcome]) -> Criterion:
    """As built, no bound lies above the ledger's epsilon. With a quarter of the noise or none, that of all runs does.

    Half of the noise is at the limit of what can be seen, and is shown for this reason.

    All runs together are one mechanism with m x runs canaries. Each canary touches one run, so the mechanism is as
    private as a single run.
    """
    right, guesses = sum(run.right for run in runs), GUESSES * len(runs)
    together = lower_bound(CANARIES * len(runs), guesses, right, DELTA)
    largest, mean = max(run.bound for run in runs), sum(run.bound for run in runs) / len(runs)
    above = sum(run.bound > run.epsilon for run in runs)
    ledger = max(run.epsilon for run in runs)
    wanted, met = {
        "as built": (f"none above ledger's {ledger:.3f}", not above and together <= ledger),
        "half noise": ("shown", True),
    }.get(name, (f"together above {ledger:.3f}", together > ledger))
    return Criterion(
        f"{cohort}, claim {claim:g}, {name}",
        wanted,
        f"mean {mean:.2f}, largest {largest:.2f}, {above} of {len(runs)} above; together {together:.2f}"
        f" ({100.0 * right / guesses:.1f} % right)",
        met and ledger <= claim,
    )


# --- one run ----------------------------------------------------------------------------------------------------------
def audited(study: Study, entropy: Entropy) -> dict[str, AuditOutcome]:
    """One whole study at one silo, seen through what it uploads; outcomes by cohort."""
    coins = np.frombuffer(entropy.bytes(2 * CANARIES), np.uint8).reshape(2, CANARIES) % 2 == 1
    training, evaluation = (canary_records(own) for own in coins)
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        silo = AuditedSilo(Path(folder), study, training, evaluation, entropy)
        try:
            scored = _scores(silo)
            spent = silo.gate.ledger.spent()
        finally:
            silo.close()
    return {name: judged(scores, own, spent) for (name, scores), own in zip(scored.items(), coins, strict=True)}


def _scores(silo: AuditedSilo) -> dict[str, Array]:
    """Log-likelihood scores (m,) of "in", up to constants: the sum of every release's, signal x value / variance."""
    study, plan, seen = silo.study, silo.study.encoder, canary_values(silo)
    often = plan.steps * plan.sampling_rate
    spread = plan.steps * plan.noise**2 + often * (1.0 - plan.sampling_rate)
    training = (
        seen["counts"] / study.privacy.count_noise**2
        + seen["heads"] / study.heads.domain_noise**2
        + seen["encoder"] * often / spread
    )
    return {"training": training, "evaluation": seen["metrics"]}


def canary_values(silo: AuditedSilo) -> dict[str, Array]:
    """Run the canaries' study; by tensor, what was released at every canary's own place, (m,), in units of sensitivity.

    A canary that is in adds 1 to each, and 1 to the encoder's for every step that draws it.
    """
    study, plan = silo.study, silo.study.encoder
    start, model = SharedModel.start(study), measuring_model(study)
    counts = silo.values(Tensor.COUNTS, 0, start)
    silo.open_counts(start)
    silo.values(Tensor.HEADS, 1, start)
    weights = silo.values(Tensor.ENCODER, 1, training_model(study))[:CANARIES]
    heads = _blocks(silo.values(Tensor.HEADS, 2, model)) @ head_direction()
    # Every canary is of the positive class, and the model gives it a probability of 1/2, the upper of two bins.
    cells = silo.values(Tensor.METRICS, plan_of(study).last, model).reshape(CANARIES, 2, 2)[:, 1, 1]
    steps = weights * plan.batch_size / (plan.learning_rate * plan.clip)
    return {"counts": counts, "heads": heads, "encoder": steps, "metrics": cells}


def _blocks(packed: Array) -> Array:
    """A head release by domain, (M, values of one head): triangles come first, then gradients (heads.pack)."""
    width = ROWS + 1
    triangle = width * (width + 1) // 2
    triangles, gradients = np.split(packed, [CANARIES * triangle])
    return np.hstack([triangles.reshape(CANARIES, -1), gradients.reshape(CANARIES, -1)])


def head_direction() -> Array:
    """What one canary adds to its block: the packed term of features 1/sqrt(k), probability 1/2, class 1, norm 1."""
    z = np.append(np.full(ROWS, 1.0 / math.sqrt(ROWS)), 1.0)
    golden = (1.0 + math.sqrt(5.0)) / 2.0
    rows, columns = np.triu_indices(len(z))
    curvature = 0.25 * np.outer(z, z)[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))
    term = np.concatenate([curvature * golden**2.5 / 2.0, -0.5 * z / math.sqrt(2.0)])
    return np.asarray(term / np.linalg.norm(term), np.float64)


class AuditedSilo:
    """Gate, ledger and learner of one silo around records that are given; `uploads` is what went to the sealer."""

    def __init__(
        self, folder: Path, study: Study, training: Records, evaluation: Records, entropy: Entropy, **policy: object
    ) -> None:
        """Everything lies in `folder`; `policy` replaces fields of a policy that allows nearly everything."""
        self.study, self.uploads = study, list[Integers]()
        document = audit_policy() | policy
        unit, columns = document["data_set"]["unit"], document["data_set"]["identified_by"]
        (folder / "policy.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        self.ledger_path = folder / "ledger.sqlite3"
        if not self.ledger_path.exists():
            Ledger.create(
                self.ledger_path,
                Genesis(
                    data_set=DATA_SET,
                    holdout=HOLDOUT,
                    delta=DELTA,
                    unit=unit,
                    identified_by=tuple(columns),
                    delimiter=",",
                    columns=(),
                ),
            )
        self.state = State(folder / "state", Digests.of(entropy.bytes(32)))
        policy_path, approved = folder / "policy.yaml", lambda *_: None
        self.gate = Gate(
            consortium().silo, policy_path, self.ledger_path, self.state, AgentMetrics(), require_approved=approved
        )
        self.learner = _GivenRecords(
            study,
            DataSet(folder / "no file is read", Division(DATA_SET, HOLDOUT, tuple(columns))),
            self.state.study_folder(study.digest),
            draws=KeyedDraws(entropy.bytes(32)),
            device="cpu",
        )
        self.learner.given = training, evaluation

    def close(self) -> None:
        """Let go of ledger and state."""
        self.gate.close()
        self.state.close()

    def contribute(self, tensor: Tensor, number: int, model: SharedModel, attempt: int = 1) -> Integers:
        """Take one contribution through the gate; returns the integers that would be sealed."""
        place = Place(self.study.digest, number, attempt)
        order = Order(self.study, place, tensor, self.study.silos, f"{attempt:064}", model.digest)

        def compute(charged: Place, release: Release) -> Integers:
            return self.learner.contribution(release, charged, model, len(self.study.silos))

        def no_fault(charged: Place, release: Release) -> Integers:
            msg = f"{release.tensor} of round {charged.round} could not be computed: the ledger says what failed"
            raise RuntimeError(msg)

        sealer, masks = cast("Sealer", self), cast("Masks", None)
        self.gate.contribute(order, sealer, masks, compute, self._cosigned, noise_alone=no_fault)
        return self.uploads[-1]

    def open_counts(self, model: SharedModel) -> None:
        """Open the last upload as if it were the sum of everybody's counts."""
        place = Place(self.study.digest, 0, 1)
        self.learner.open(Tensor.COUNTS, self.uploads[-1], place, model, len(self.study.silos))

    def _cosigned(self) -> list[Cosignature]:
        checkpoint = self.gate.checkpoint()
        signers = consortium().cosigners
        silo, message = consortium().silo, checkpoint.message
        stated = (silo.certificate_pem, silo.sign(message))
        return [Cosignature(checkpoint, "", one.certificate_pem, one.sign(message), *stated) for one in signers]

    def seal(self, _kind: str, integers: Integers, label: SumLabel, _masks: object) -> Iterator[bytes]:
        """Replace `Sealer.seal`. Everything that arrives here would leave the hospital."""
        self.uploads.append(np.array(integers))
        yield label.digest.encode()

    def values(self, tensor: Tensor, number: int, model: SharedModel) -> Array:
        """`contribute` in units of the statistic: of a patient, of the loss's step for an encoder."""
        plan = self.study.encoder
        step = plan.max_update / UPDATE_STEPS[plan.sealing] if tensor is Tensor.ENCODER else release_step(self.study)
        return from_grid(self.contribute(tensor, number, model), step)


@dataclass(frozen=True)
class Consortium:
    """The silo that is audited, and who cosigns its ledger."""

    silo: Credential
    cosigners: tuple[Credential, ...]


@cache
def consortium() -> Consortium:
    """The silo, a coordinator and another silo of one authority: they only sign, nobody is called."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "authority"
        # Made in a later second, a certificate of as many days would outlive the authority.
        pem, parties = authority.init(root, "Audit", 2), []
        for subject, hosts in (
            (Subject(Identity(Role.SILO, NAME), DATA_SET), ()),
            (Subject(Identity(Role.COORDINATOR, "hub")), ("localhost",)),
            (Subject(Identity(Role.SILO, SILOS[1]), SILOS[1]), ()),
        ):
            home = Path(folder) / subject.identity.name
            request = create_request(home, subject, hosts).read_bytes()
            certificate = authority.sign(root, request, subject=subject, days=1, hosts=hosts)
            key = (home / "key.pem").read_bytes()
            parties.append(Credential(certificate_pem=certificate, key_pem=key, authority_pem=pem))
        return Consortium(parties[0], tuple(parties[1:]))


class _GivenRecords(Learner):
    """The learner, except that its records are given."""

    given: tuple[Records, Records]

    def load(self) -> None:
        self._records = self.given


def release_step(study: Study) -> float:
    """Grid step of counts, heads and metrics."""
    return sums_of(study.privacy.max_patients, ring_of("ckks").limit(len(study.silos))).step


@contextmanager
def weakened(factor: float) -> Iterator[None]:
    """All noise of a silo times `factor`, while the ledger is charged as if it were whole; 1 changes nothing."""
    if factor == 1.0:
        yield
        return

    def rounded(sigma: float) -> RoundedGaussian | _Nothing:
        return RoundedGaussian(sigma * factor) if factor else _Nothing()

    def integers(stream: KeyStream, sigma: float, n: int) -> Integers:
        return gaussian.discrete_gaussian(stream, sigma * factor, n) if factor else np.zeros(n, np.int64)

    with (
        patch("silo_agent.learning.dpsgd.training.RoundedGaussian", rounded),
        patch("silo_agent.learning.noise.noised_sum.discrete_gaussian", integers),
    ):
        yield


class _Nothing:
    """Draws zeros."""

    def draw(self, _stream: KeyStream, n: int) -> Integers:
        """As `RoundedGaussian.draw`."""
        return np.zeros(n, np.int64)


# --- canaries ---------------------------------------------------------------------------------------------------------
def canary_study() -> Study:
    """Counts, a pooled round with the encoder, a round of domain heads, the metrics; noise to be calibrated."""
    factors = [
        {"column": f"factor {at}", "values": list(range(size)), "names": [f"{at}-{value}" for value in range(size)]}
        for at, size in enumerate(FACTORS)
    ]
    features = [{"kind": "number", "column": f"x{i}", "minimum": -1, "maximum": 1} for i in range(INPUTS)]
    label = {"column": "y", "positive": [1], "negative": [0]}
    return Study.model_validate(
        {
            "version": 1,
            "name": "audit",
            "purpose": "Hold the ledger against an attacker.",
            "silos": list(SILOS),
            "min_silos": 3,
            "data": {"patient": "patient", "label": label, "domain": factors, "features": features},
            "model": {"hidden": [], "representation": ROWS, "gain": 1e-3, "seed": 1},
            "heads": {
                "pooled_rounds": 1,
                "domain_rounds": 1,
                "pooled_noise": 1000.0,
                "domain_noise": 10.0,
                "clip": 0.5,
            },
            "encoder": {
                "steps": 20,
                "sampling_rate": 0.25,
                "batch_size": 1_000,
                "learning_rate": 0.01,
                "noise": 5.0,
                "weight_clip": 1.0,
                "max_update": 0.01,
            },
            "evaluation": {"bins": 2, "noise": 4.0},
            "privacy": {"delta": DELTA, "mode": "local", "count_noise": 10.0, "max_patients": 10_000},
        }
    )


def audit_policy() -> dict[str, Any]:
    """The most permissive sample, with room for the largest study: nothing but the accounting stands in the way."""
    document: dict[str, Any] = yaml.safe_load(_SAMPLE.read_text(encoding="utf-8"))
    document["data_set"] |= {"id": DATA_SET, "unit": "patient", "identified_by": ["patient"], "holdout": HOLDOUT}
    document["budget"] |= {"epsilon": _LARGEST_EPSILON, "delta": DELTA}
    document["limits"] |= {field: _LARGEST_EPSILON for field in document["limits"] if field.endswith("epsilon")}
    document["limits"] |= {"clip": 1e6}
    return document | {"colluders": 0, "smallest_domain": 0}


def canary_records(included: NDArray[np.bool_]) -> Records:
    """Two equal records of every canary that is in. Canary i: domain i, LOUD in input i mod INPUTS, class 1."""
    canary = np.repeat(np.flatnonzero(included), 2)
    inputs = np.zeros((len(canary), INPUTS), np.float32)
    inputs[np.arange(len(canary)), canary % INPUTS] = LOUD
    patients = np.repeat(np.arange(len(canary) // 2), 2)
    names = tuple(str(i) for i in range(len(canary) // 2))
    return Records(inputs, np.ones(len(canary), np.int64), canary, patients, names)


def training_model(study: Study) -> SharedModel:
    """The start, with a steep head at every domain i that reads row i div INPUTS: one weight for each canary."""
    model = SharedModel.start(study)
    heads = np.zeros_like(model.heads)
    heads[np.arange(CANARIES), np.arange(CANARIES) // INPUTS] = STEEP
    return replace(model, heads=heads)


def measuring_model(study: Study) -> SharedModel:
    """An encoder that gives everybody features of norm 1, and heads that know nothing: the same term for everybody."""
    model = SharedModel.start(study)
    encoder = np.zeros_like(model.encoder)
    encoder[-ROWS:] = SATURATED
    return replace(model, encoder=encoder)


if __name__ == "__main__":
    sys.exit(main())
