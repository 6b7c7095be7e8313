"""The statistics that judge what a silo releases. Each runs the product anew, so it judges a mutant like the real code.

The statistics see what an outsider sees (the integers that go to the sealer, and the ledger) and know the study. Of the
product's own arithmetic they use only the grid's step. `FALSE_ALARMS` says how likely each is to condemn right code.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, count
from pathlib import Path
from unittest.mock import patch

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import binom

from audit.frames import one_patient_in_a_frame
from audit.intercepts import one_patient_of_the_calibration
from audit.numbers import one_patient_of_a_number
from audit.scenes import begin, crowd, silo, study, summed
from audit.sealed import noise_of_sealed_steps, one_patient_of_a_sealed_step, sealed_steps_anew
from audit.verdicts import FIVE_SIGMA, RARE, Verdict, all_of, distributed_as, near, noise_like, tailed, uniform
from bench.attacks import audit
from crypto.entropy import SystemEntropy
from crypto.pki.certificates import Trust
from crypto.rings.rings import ring_of
from policies.ledger.cosign import Cosignature, read_cosignatures
from policies.ledger.ledger import read_history, read_ledger
from policies.plan.release import plan
from protos.messages import Place, Tensor
from silo_agent.data.records import Records
from silo_agent.learning.dpsgd.batches import Batches
from silo_agent.learning.personal.model import train_round
from silo_agent.learning.releases.encoder import UPDATE_STEPS
from silo_agent.oversight.signing import verifier
from silo_agent.storage.checked import write_checked
from support.entropy import SeededEntropy

Statistic = Callable[[Path], Verdict]
WIDE = {"hidden": [330], "representation": 30}
"""100,000 weights of 300 inputs; 527 values in the block of a head."""
COARSE = 500_000
"""Number of patients for which the grid's step is 2^-10."""
FOLDED = 16
"""Number of residues that noise must make equally likely; every deviation here is hundreds of grid steps."""


# --- noise ------------------------------------------------------------------------------------------------------------
def noise_of_encoder(folder: Path, patients: int = 20) -> Verdict:
    """Deviation of 1e5 weights, in units of what the ledger was charged. No gradient reaches them: all heads are 0."""
    return noise_like("encoder noise", *_encoder_noise(folder, patients))


def _encoder_noise(folder: Path, patients: int) -> tuple[np.ndarray, float]:
    made = study(inputs=300, model=WIDE, encoder={"steps": 4})
    with silo(folder, made, crowd(patients, 300), crowd(2, 300), 1) as held:
        return _encoder_values(held)


def _encoder_values(held: audit.AuditedSilo) -> tuple[np.ndarray, float]:
    weights = held.values(Tensor.ENCODER, 1, begin(held))
    charged = held.gate.ledger.charged(held.study.digest, 1)["encoder", 1]
    step = held.study.encoder
    unit = step.learning_rate * step.clip / step.batch_size
    return weights, charged.noise * np.sqrt(charged.count) * unit


def noise_of_rare_batches(folder: Path) -> Verdict:
    """The same where nearly every step draws nobody: two patients, each in one step of a hundred."""
    made = study(inputs=300, model=WIDE, encoder={"steps": 4, "sampling_rate": 0.01, "noise": 30.0})
    with silo(folder, made, crowd(2, 300), crowd(2, 300), 1) as held:
        return noise_like("noise of rare batches", *_encoder_values(held))


def tails_of_the_encoder(folder: Path) -> Verdict:
    """How many of 4e5 weights lie beyond four deviations after one step."""
    made = study(inputs=300, model=WIDE | {"hidden": [1300]}, encoder={"steps": 1})
    with silo(folder, made, crowd(2, 300), crowd(2, 300), 1) as held:
        return tailed("weights", *_encoder_values(held))


def tails_of_heads(folder: Path) -> Verdict:
    """How many of 4e5 values of heads, of domains that nobody is in, lie beyond four deviations."""
    made = study((32, 25), model=WIDE | {"hidden": []})
    return tailed("values of heads", *_noise(folder, Tensor.HEADS, 2, made, 2))


def noise_of_heads(folder: Path, patients: int = 20) -> Verdict:
    """The same for 1e5 values of domains that nobody is in, whose true sums are 0."""
    return _release_noise(folder, Tensor.HEADS, patients, study((20, 10), model=WIDE | {"hidden": []}))


def noise_of_pooled_heads(folder: Path, patients: int = 20) -> Verdict:
    """The same for a pooled round, which has no empty block: 1e5 differences of two draws."""
    classes = {"column": "y", "classes": [[0], [1], [2]], "positive": [], "negative": []}
    data = study(inputs=1).data.model_dump(mode="json") | {"label": classes}
    made = study(model={"hidden": [], "representation": 148}, data=data)
    draws = []
    for seed in (1, 2):
        with silo(folder, made, crowd(patients), crowd(patients), seed) as held:
            draws.append(held.values(Tensor.HEADS, 1, begin(held)))
            charged = held.gate.ledger.charged(made.digest, 1)[Tensor.HEADS, 1].noise
    sd = charged * (1.0 + audit.release_step(made) * np.sqrt(len(draws[0])))
    return noise_like("noise of pooled heads", (draws[0] - draws[1]) / np.sqrt(2.0), sd)


def noise_on_a_coarse_grid(folder: Path, patients: int = 20) -> Verdict:
    """Heads on a grid so coarse, for `COARSE` patients, that rounding adds more than 15 % to the charged deviation."""
    made = study((20, 10), model=WIDE | {"hidden": []}, privacy={"max_patients": COARSE})
    share = audit.release_step(made) * np.sqrt(plan(made).release(2, Tensor.HEADS).values)
    return all_of(
        (
            Verdict(bool(share > 0.15), f"rounding adds {share:.3f} of the charge"),
            _release_noise(folder, Tensor.HEADS, patients, made),
        )
    )


def noise_of_metrics(folder: Path, patients: int = 20) -> Verdict:
    """The same for 1e5 cells of the evaluation cohort."""
    made = study((20, 10), evaluation={"bins": 256})
    return _release_noise(folder, Tensor.METRICS, patients, made)


def noise_of_counts(folder: Path, patients: int = 20) -> Verdict:
    """The same for 1e5 counts: 8,192 domains, the most that a study may have, in 13 draws."""
    made = study((32, 32, 8))
    parts = [_noise(folder, Tensor.COUNTS, patients, made, seed) for seed in range(13)]
    return noise_like("noise of counts", np.concatenate([values for values, _ in parts]), parts[0][1])


def noise_of_shares(folder: Path) -> Verdict:
    """Distributed noise of five silos, one a colluder: the shares of three reach what each was charged."""
    made = study(
        (20, 10),
        silos=["north", "south", "west", "east", "polar"],
        min_silos=5,
        model=WIDE | {"hidden": []},
        privacy={"mode": "distributed", "colluders": 1},
    )
    return _release_noise(folder, Tensor.HEADS, 20, made, carriers=3)


def _release_noise(folder: Path, tensor: Tensor, patients: int, made, carriers: int = 1) -> Verdict:
    values, sd = _noise(folder, tensor, patients, made, 2)
    return noise_like(f"noise of {tensor}", values * np.sqrt(carriers), sd)


def _noise(folder: Path, tensor: Tensor, patients: int, made, seed: int) -> tuple[np.ndarray, float]:
    """Released values of the domains without patients, and the charged deviation. All patients are in domain 0."""
    number = {Tensor.COUNTS: 0, Tensor.METRICS: plan(made).last}.get(tensor, 2)
    with silo(folder, made, crowd(patients), crowd(patients), seed) as held:
        values = held.values(tensor, number, begin(held)) if number else held.values(tensor, 0, _start(made))
        charged = held.gate.ledger.charged(made.digest, number)[tensor, 1].noise
    domains = len(made.data.domains)
    blocks = [values] if tensor is not Tensor.HEADS else np.split(values, [len(values) - domains * _width(made)])
    empty = np.concatenate([block.reshape(domains, -1)[1:].ravel() for block in blocks])
    # Rounding moves each of the d values by half a step at most, so the charge is for 1 + step sqrt(d).
    return empty, charged * (1.0 + audit.release_step(made) * np.sqrt(len(values)))


def _width(made) -> int:
    return made.model.representation + 1


def _start(made):
    return audit.SharedModel.start(made)


def scale_without_patients(folder: Path) -> Verdict:
    """Noise of the encoder and of every release is the same among 5 patients and among 500."""
    encoder = []
    for patients in (5, 500):
        weights, sd = _encoder_noise(folder, patients)
        encoder.append(noise_like(f"encoder noise among {patients}", weights, sd))
    releases = [which(folder, patients) for patients in (5, 500) for which in (noise_of_heads, noise_of_metrics)]
    return all_of((*encoder, *releases))


def fresh_noise(folder: Path) -> Verdict:
    """Draws of other rounds, other tensors and another silo are uncorrelated, in all pairs."""
    made = study((20, 10), inputs=300, model=WIDE, heads={"domain_rounds": 2}, encoder={"steps": 4})
    draws = {}
    for seed in (1, 2):
        with silo(folder, made, crowd(5, 300), crowd(5, 300), seed) as held:
            start = begin(held)
            for number, tensor in ((1, Tensor.ENCODER), (2, Tensor.ENCODER), (2, Tensor.HEADS), (3, Tensor.HEADS)):
                values = held.values(tensor, number, start)
                # The crowd's own domain comes first in both parts of the heads; the values between are noise alone.
                draws[f"{tensor} {number} of silo {seed}"] = values[500:100_000]
    return all_of(
        near(f"correlation of {a} and {b}", float(np.corrcoef(draws[a], draws[b])[0, 1]), 0.0, 99_500**-0.5)
        for a, b in combinations(draws, 2)
    )


# --- canaries ---------------------------------------------------------------------------------------------------------
def canary_means(folder: Path) -> Verdict:
    """A coin puts each of 5,000 canaries in or out. Those in add the charged sensitivity, no more and no less.

    Each adds it to coordinates of its own. The comparison is two-sided; five sigma are .06 to .14 of the
    sensitivity. A canary is a patient with two records; if the unit were the record, it would add twice as much.
    """
    made = study(
        audit.FACTORS,
        audit.INPUTS,
        heads={"domain_noise": 2.0},
        encoder={"noise": 2.0},
        evaluation={"noise": 2.0},
        privacy={"count_noise": 2.0},
    )
    coins = np.frombuffer(SeededEntropy(3).bytes(2 * audit.CANARIES), np.uint8).reshape(2, -1) % 2 == 1
    with silo(folder, made, *(audit.canary_records(own) for own in coins), 4) as held:
        seen = audit.canary_values(held)
    step = made.encoder
    expected = step.steps * step.sampling_rate
    noises = {
        "counts": made.privacy.count_noise,
        "heads": made.heads.domain_noise,
        "encoder": np.sqrt(step.steps * step.noise**2 + expected * (1.0 - step.sampling_rate)),
        "metrics": made.evaluation.noise,
    }
    return all_of(
        near(
            f"what a canary adds to {name}",
            float(values[own].mean() - values[~own].mean()),
            expected if name == "encoder" else 1.0,
            noises[name] * np.sqrt(1.0 / own.sum() + 1.0 / (~own).sum()),
        )
        for name, values in seen.items()
        for own in (coins[1] if name == "metrics" else coins[0],)
    )


# --- sampling ---------------------------------------------------------------------------------------------------------
def batches(folder: Path, steps: int = 1000, patients: int = 400, rate: float = 0.05) -> Verdict:
    """What 1,000 steps of the trainer read: Binomial(N, q) patients a step, Binomial(T, q) steps a patient.

    A patient enters with one record. Half of the patients have two records. They are drawn no more often, and each of
    their records as often as the other.
    """
    records = _some_with_two(patients)
    rows: list[np.ndarray] = []
    take = Batches.take

    def seen(self, drawn):
        rows.append(np.array(drawn))
        return take(self, drawn)

    made = study(encoder={"steps": steps, "sampling_rate": rate, "noise": 20.0})
    with patch.object(Batches, "take", seen), silo(folder, made, records, crowd(2), 5) as held:
        held.contribute(Tensor.ENCODER, 1, begin(held))
    drawn = [records.patients[own] for own in rows] + [np.zeros(0, np.int64)] * (steps - len(rows))
    inside = np.zeros((steps, patients), bool)
    for step, own in enumerate(drawn):
        inside[step, own] = True
    often = inside.sum(axis=0)
    doubles = patients // 2
    first = np.bincount(np.concatenate(rows), minlength=len(records))[: 2 * doubles].reshape(-1, 2)
    chance = rate * (1.0 - rate)
    return all_of(
        (
            Verdict(len(rows) <= steps, f"{len(rows)} batches in {steps} steps"),
            Verdict(all(len(set(own.tolist())) == len(own) for own in drawn), "nobody twice in a step"),
            distributed_as("patients a step", np.array([len(own) for own in drawn]), binom(patients, rate)),
            distributed_as("steps a patient", often, binom(steps, rate)),
            near("patients of two records", often[:doubles].mean(), steps * rate, (steps * chance / doubles) ** 0.5),
            near("first records", first[:, 0].sum() / first.sum(), 0.5, 0.5 / first.sum() ** 0.5),
            near(
                "patients in two steps running",
                float((inside[1:] & inside[:-1]).mean()),
                rate**2,
                rate * (1.0 - rate**2) ** 0.5 / ((steps - 1) * patients) ** 0.5,
            ),
        )
    )


def _some_with_two(patients: int) -> Records:
    """The first half of the patients have two records each."""
    whose = np.concatenate([np.repeat(np.arange(patients // 2), 2), np.arange(patients // 2, patients)])
    inputs = np.random.default_rng(6).uniform(-1, 1, (len(whose), 1)).astype(np.float32)
    names = tuple(str(i) for i in range(patients))
    return Records(inputs, np.arange(len(whose)) % 2, np.zeros(len(whose), np.int64), whose, names)


# --- the ledger -------------------------------------------------------------------------------------------------------
def ledger_covers(folder: Path) -> Verdict:
    """The ledger on disk says at least what dp-accounting says of the vectors that left, and at most 1 % more.

    The study has distributed noise, and every round is attempted twice. Equal vectors are one release. When a release
    is computed, its charge must be on disk, and with it the signatures of the coordinator and of another silo under a
    head of this very ledger that has the charge. The signatures come one by one, after a question that nobody answers.
    No chance is involved: dp-accounting is asked for a lower estimate and for an upper one.
    """
    made = study(privacy={"mode": "distributed", "colluders": 0}, heads={"domain_rounds": 2, "pooled_noise": 12.0})
    left: dict[bytes, tuple[Tensor, int]] = {}
    late: list[str] = []
    with silo(folder, made, crowd(30), crowd(30), 7) as held:
        compute = held.learner.contribution

        def witnessed(release, place, model, silos):
            if missing := _unwitnessed(held, release.tensor, place):
                late.append(
                    f"{release.tensor} of round {place.round}, attempt {place.attempt}, computed before {missing}"
                )
            return compute(release, place, model, silos)

        with (
            patch.object(held.learner, "contribution", witnessed),
            patch.object(held, "_cosigned", _one_by_one(held._cosigned)),
        ):
            start = begin(held)
            left[held.uploads[-1].tobytes()] = (Tensor.COUNTS, 0)
            for number, tensor in summed(made):
                for attempt in (1, 2):
                    left[held.contribute(tensor, number, start, attempt).tobytes()] = (tensor, number)
        spent = held.gate.ledger.spent()
        held.gate.ledger.verify()
    lower, upper = (_direct(made, list(left.values()), pessimistic=worst) for worst in (False, True))
    seen = f"{len(left)} releases: {lower:.4f} <= {spent:.4f} <= {upper:.4f}"
    return all_of((Verdict(lower <= spent <= 1.01 * upper, seen), Verdict(not late, "; ".join(late) or "none late")))


def _unwitnessed(held: audit.AuditedSilo, tensor: Tensor, place: Place) -> str:
    """What is missing on disk of a draw's charge and its two signatures; empty if nothing is."""
    key = (place.study, place.round, place.attempt)
    entries = read_ledger(held.ledger_path)[1]
    charged = [e for e in entries if tensor in e.debit.costs and (e.debit.study, e.debit.round, e.debit.attempt) == key]
    if not charged:
        return "it was charged"
    history = read_history(held.ledger_path)[1]
    covering = {entry.head for entry in history if entry.sequence >= charged[0].sequence}
    kept = held.ledger_path.with_name(f"{held.ledger_path.name}.countersigned.json")
    items = read_cosignatures(kept) if kept.exists() else ()
    signers = {item.signer for item in items if item.checkpoint.head in covering and _is_signed(item)}
    peers = {f"fedward://silo/{name}" for name in held.study.silos if name != audit.NAME}
    roles = {"a peer": signers & peers, "the coordinator": signers & {"fedward://coordinator/hub"}}
    absent = [role for role, found in roles.items() if not found]
    return f"{' and '.join(absent)} had signed" if absent else ""


def _is_signed(item: Cosignature) -> bool:
    trust = Trust(audit.consortium().silo.authority_pem)
    return verifier(trust)(item.certificate, item.checkpoint.message, item.signature, None) == item.signer


def _one_by_one(signed: Callable[[], list[Cosignature]]) -> Callable[[], list[Cosignature]]:
    """Hand out nothing at first, then one signature at a time."""
    asked = count()

    def answer() -> list[Cosignature]:
        turn = next(asked) % 3
        return signed()[turn - 1 : turn] if turn else []

    return answer


def _direct(made, releases: list[tuple[Tensor, int]], *, pessimistic: bool) -> float:
    """Epsilon of the releases that were seen, by dp-accounting alone; that of the larger cohort."""
    cohorts: dict[bool, list] = {True: [], False: []}
    for tensor, number in releases:
        noise = {
            Tensor.COUNTS: made.privacy.count_noise,
            Tensor.HEADS: made.heads.pooled_noise if number <= made.heads.pooled_rounds else made.heads.domain_noise,
            Tensor.ENCODER: made.encoder.noise,
            Tensor.METRICS: made.evaluation.noise,
        }[tensor]
        rate = made.encoder.sampling_rate if tensor is Tensor.ENCODER else 1.0
        one = pld.from_gaussian_mechanism(
            noise, sampling_prob=rate, pessimistic_estimate=pessimistic, use_connect_dots=pessimistic
        )
        times = made.encoder.steps if tensor is Tensor.ENCODER else 1
        cohorts[tensor is Tensor.METRICS].append(one.self_compose(times) if times > 1 else one)
    found = []
    for parts in cohorts.values():
        total = parts[0]
        for part in parts[1:]:
            total = total.compose(part)
        found.append(float(total.get_epsilon_for_delta(made.privacy.delta)))
    return max(found)


# --- what leaves ------------------------------------------------------------------------------------------------------
def on_the_grid(folder: Path) -> Verdict:
    """Releases are integers inside the public bounds, as many as the study says; residues mod 16 are equally likely."""
    made = study((20, 10), inputs=300, model=WIDE, encoder={"steps": 4}, evaluation={"bins": 32})
    verdicts = []
    with silo(folder, made, crowd(50, 300), crowd(50, 300), 8) as held:
        start = begin(held)
        sums = [(Tensor.COUNTS, 0, held.uploads[-1])]
        sums += [(tensor, number, held.contribute(tensor, number, start)) for number, tensor in summed(made)]
    for tensor, number, integers in sums:
        bound = UPDATE_STEPS[made.encoder.sealing] if tensor is Tensor.ENCODER else ring_of("ckks").limit(3)
        sound = integers.dtype == np.int64 and len(integers) == plan(made).release(number, tensor).values
        verdicts.append(Verdict(bool(sound and np.abs(integers).max() <= bound), f"{tensor} of round {number} fits"))
        verdicts.append(uniform(f"residues of {tensor} of round {number}", integers % FOLDED, FOLDED))
    return all_of(verdicts)


def one_patient_less(folder: Path) -> Verdict:
    """One patient less moves no release by more than its charged sensitivity, however private parts at the silo differ.

    Both silos draw the same noise, hold the same released state (counts, and r(z|y) as the charged steps of round 1
    left it) and train personal models of their own. All inputs are alike except those of the patient who goes. So
    anything that was fitted to all of them without noise turns everybody's gradient. Since every gradient is clipped,
    such a turn shows in full. No chance is involved.
    """
    made = study(
        model={"representation": 2, "gain": 1.0},
        heads={"domain_rounds": 2},
        encoder={"steps": 1, "sampling_rate": 1.0, "batch_size": 1, "clip": 0.005, "cmi": 0.01, "prior": "local"},
        personal={"epochs": 30, "learning_rate": 0.5, "batch_size": 2, "ditto": 0.0, "mmd": 0.0},
    )
    whole = Records(
        np.array([[0.0]] * 19 + [[10.0]], np.float32),
        (np.arange(20) > 5).astype(np.int64),
        np.zeros(20, np.int64),
        np.arange(20),
        tuple(str(i) for i in range(20)),
    )
    fewer = whole.of_patients(np.arange(20) < 19)
    uploads, released = [], {}
    for records in (whole, fewer):
        with silo(folder, made, records, records, 9, alike=True) as held:
            uploads.append(_with_private_parts(held, released))
    plan_ = made.encoder
    moved = []
    for (tensor, number), one in uploads[0].items():
        if tensor is Tensor.ENCODER:
            step = plan_.max_update / UPDATE_STEPS[plan_.sealing]
            allowed = plan_.learning_rate * plan_.clip / plan_.batch_size
        else:
            step, allowed = audit.release_step(made), 1.0
        change = float(np.linalg.norm((one - uploads[1][tensor, number]) * step))
        most = allowed * (1.0 + 1e-4) + step * np.sqrt(len(one))
        moved.append(Verdict(change <= most, f"{tensor} of round {number} moved by {change / allowed:.3f}"))
    return all_of(moved)


def _with_private_parts(held: audit.AuditedSilo, released: dict[str, bytes]) -> dict[tuple[Tensor, int], np.ndarray]:
    """All uploads of a study. `released` hands the second silo the files that the first one's charged steps left."""
    start = begin(held)
    uploads = {(Tensor.COUNTS, 0): held.uploads[-1]}
    home = held.state.study_folder(held.study.digest)
    for number, tensor in summed(held.study):
        model = start.with_heads(start.heads, number - 1)
        uploads[tensor, number] = held.contribute(tensor, number, model)
        if tensor is Tensor.ENCODER:
            for path in (home / "counts.json", home / f"prior-{number}.f32"):
                write_checked(path, released.setdefault(path.name, path.read_bytes()))
            shared, path = start.with_heads(start.heads, number), home / "personal.safetensors"
            train_round(path, shared, lambda: held.learner.cohort("training"), entropy=SystemEntropy())
    return uploads


def one_patient_of_a_rare_domain(folder: Path) -> Verdict:
    """The same for the only patient of a domain, whose weight is large, with an input of 0: only biases get a gradient.

    Heads are steep, and nothing is drawn but the noise, which is the same at both silos. So are the released counts.
    """
    made = study(
        model={"representation": 2, "gain": 1.0},
        encoder={"steps": 1, "sampling_rate": 1.0, "batch_size": 1, "clip": 0.005, "weight_clip": 100.0},
    )
    common = crowd(200)
    whole = Records(
        np.append(common.inputs[:-1], [[np.float32(0.0)]], axis=0),
        common.labels,
        np.append(common.domains[:-1], 1),
        common.patients,
        common.identities,
    )
    uploads, released = [], {}
    for records in (whole, whole.of_patients(np.arange(200) < 199)):
        with silo(folder, made, records, crowd(2), 9, alike=True) as held:
            start = begin(held)
            path = held.state.study_folder(made.digest) / "counts.json"
            write_checked(path, released.setdefault(path.name, path.read_bytes()))
            steep = np.full_like(start.heads, audit.STEEP)
            steep[:, -1] = 0.0
            uploads.append(held.contribute(Tensor.ENCODER, 1, start.with_heads(steep, 0)))
    step = made.encoder.max_update / UPDATE_STEPS[made.encoder.sealing]
    allowed = made.encoder.learning_rate * made.encoder.clip / made.encoder.batch_size
    change = float(np.linalg.norm((uploads[0] - uploads[1]) * step))
    most = allowed * (1.0 + 1e-4) + step * np.sqrt(len(uploads[0]))
    return Verdict(bool(0.9 * allowed <= change <= most), f"the encoder moved by {change / allowed:.3f}")


STATISTICS: dict[str, Statistic] = {
    which.__name__: which
    for which in (
        noise_of_encoder,
        noise_of_rare_batches,
        tails_of_the_encoder,
        tails_of_heads,
        noise_of_heads,
        noise_of_pooled_heads,
        noise_on_a_coarse_grid,
        noise_of_metrics,
        noise_of_counts,
        noise_of_shares,
        scale_without_patients,
        fresh_noise,
        canary_means,
        batches,
        ledger_covers,
        on_the_grid,
        one_patient_less,
        one_patient_of_a_rare_domain,
        one_patient_of_a_number,
        one_patient_of_the_calibration,
        noise_of_sealed_steps,
        one_patient_of_a_sealed_step,
        sealed_steps_anew,
        one_patient_in_a_frame,
    )
}
FALSE_ALARMS = {
    "noise_of_encoder": 2 * FIVE_SIGMA,
    "noise_of_rare_batches": 2 * FIVE_SIGMA,
    "tails_of_the_encoder": RARE,
    "tails_of_heads": RARE,
    "noise_of_heads": 2 * FIVE_SIGMA,
    "noise_of_pooled_heads": 2 * FIVE_SIGMA,
    "noise_on_a_coarse_grid": 2 * FIVE_SIGMA,
    "noise_of_metrics": 2 * FIVE_SIGMA,
    "noise_of_counts": 2 * FIVE_SIGMA,
    "noise_of_shares": 2 * FIVE_SIGMA,
    "scale_without_patients": 12 * FIVE_SIGMA,
    "fresh_noise": 28 * FIVE_SIGMA,
    "canary_means": 4 * FIVE_SIGMA,
    "batches": 2 * RARE + 3 * FIVE_SIGMA,
    "ledger_covers": 0.0,
    "on_the_grid": 5 * RARE,
    "one_patient_less": 0.0,
    "one_patient_of_a_rare_domain": 0.0,
    "one_patient_of_a_number": 0.0,
    "one_patient_of_the_calibration": 0.0,
    "noise_of_sealed_steps": 2 * FIVE_SIGMA,
    "one_patient_of_a_sealed_step": 0.0,
    "sealed_steps_anew": 0.0,
    "one_patient_in_a_frame": 0.0,
}
