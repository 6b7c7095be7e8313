import contextlib
import errno
import shutil
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from crypto.errors import CertificateError, SignatureRefused
from crypto.pki.certificates import Trust
from crypto.secagg.labels import SumLabel
from policies.accounting import accountant
from policies.documents.document import DocumentError
from policies.documents.policy import load_policy
from policies.errors import CosignError, LedgerError, LedgerRolledBackError
from policies.ledger.anchors import Anchors
from policies.ledger.chain import Genesis
from policies.ledger.cosign import CosignatureFile, advance
from policies.ledger.events import Cleared, EntryRef, Fault, InForce, Recovery
from policies.ledger.ledger import (
    Debit,
    Ledger,
    LedgerMismatchError,
    LedgerMissingError,
    LedgerTamperedError,
    LedgerWriteError,
    read_history,
    read_ledger,
)
from policies.plan.cost import Cost
from policies.plan.release import plan
from policies.refusals import Reason, Refused
from protos.messages import Place, Tensor
from silo_agent.core.turns import OutOfTurnError
from silo_agent.gate import Gate, Order, open_ledger
from silo_agent.metrics import AgentMetrics
from silo_agent.oversight.approval import ApprovalError, put_into_force
from silo_agent.oversight.recovery import recover
from silo_agent.storage.errors import ShortageError, StateError, StateRolledBackError
from support.cosigners import cosigned
from support.small_cohort import policy_document, write_yaml
from support.states import keyed
from support.studies import tiny_study

SILOS = ("north", "south", "west")
ROSTER, OTHER_ROSTER = "b" * 64, "c" * 64
DISTRIBUTED = {"privacy": {"mode": "distributed"}}
BUDGET = policy_document()["budget"]


class Crash(BaseException):
    """The process dies."""


class Hospital:
    """A gate with everything around it, and witnesses of what it does."""

    def __init__(self, folder: Path, credential, signers, *, study=None, **policy) -> None:
        self.credential, self.signers = credential, signers
        self.folder = folder
        self.study = study or tiny_study()
        self.policy = write_yaml(folder / "policy.yaml", policy_document("north-ward", **policy))
        if not (folder / "ledger.sqlite3").exists():
            settings_ = load_policy(self.policy)
            Ledger.create(
                folder / "ledger.sqlite3",
                Genesis(
                    data_set="north-ward",
                    holdout=settings_.data_set.holdout,
                    delta=settings_.budget.delta,
                    public=settings_.data_set.public,
                    unit=settings_.data_set.unit,
                    identified_by=settings_.data_set.identified_by,
                    delimiter=",",
                    columns=(),
                ),
            )
        self.events = []
        self.draws = 0
        self.taken_back = False
        self.start()

    def start(self):
        self.state, self.metrics = keyed(self.folder / "state"), AgentMetrics()
        ledger = self.folder / "ledger.sqlite3"
        self.gate = Gate(
            self.credential, self.policy, ledger, self.state, self.metrics, require_approved=self.require_approved
        )

    def require_approved(self, study, policy):
        assert (study, policy) == (self.study, self.gate.policy)
        if self.taken_back:
            raise Refused(Reason.NOT_APPROVED, "taken back")

    def restart(self):
        self.close()
        self.start()

    def close(self):
        self.gate.close()
        self.state.close()

    def order(self, tensor=Tensor.HEADS, number=1, attempt=1, *, roster=ROSTER, names=SILOS, model="m"):
        return Order(self.study, Place(self.study.digest, number, attempt), tensor, names, roster, model)

    def compute(self, charged, release):
        """Integers that differ at every call, so that a second draw shows."""
        self.charged = charged
        self.draws += 1
        self.events.append("compute")
        return np.array([self.draws, -1, 7], np.int64)

    def seal(self, kind, integers, label, masks):
        self.events.append("seal")
        self.sealed = integers.tolist()
        return iter((f"{kind} {integers.tolist()} ".encode(), f"{label.digest} {masks}".encode()))

    def ask(self):
        self.events.append("cosign")
        return [cosigned(self.gate.checkpoint(), signer, self.credential) for signer in self.signers]

    def contribute(self, order, compute=None, ask=None):
        return self.gate.contribute(
            order, self, "masks", compute or self.compute, ask or self.ask, noise_alone=self.noise_alone
        )

    def noise_alone(self, charged, release):
        self.events.append("noise alone")
        self.alone = charged, release
        return np.array([0, 0, 99], np.int64)

    @property
    def on_disk(self):
        """Debits as another process reads them."""
        return read_ledger(self.folder / "ledger.sqlite3")[1]

    @property
    def left(self):
        """Files that could be sent."""
        return sorted((self.folder / "state").rglob("*.sealed"))


@pytest.fixture(scope="session")
def trust(authority):
    return Trust(authority.pem)


@pytest.fixture(scope="session")
def signers(coordinator, credentials):
    """Who cosigns: the coordinator and one peer."""
    return (coordinator, credentials["south"])


@pytest.fixture
def open_hospital(quick_path, credentials, signers):
    opened = []

    def opener(folder=quick_path, **changes):
        opened.append(Hospital(folder, credentials["north"], signers, **changes))
        return opened[-1]

    yield opener
    for hospital in opened:
        hospital.close()


@pytest.fixture
def hospital(open_hospital):
    return open_hospital()


# --- rolled back --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sent", ["charged", "drawn", "sealed"])
def test_a_state_folder_that_is_put_back_without_the_ledger_draws_nothing_a_second_time(hospital, monkeypatch, sent):
    """What a copy made before the draw does not know of: with local noise a later attempt may not use it either."""
    hospital.close()
    shutil.copytree(hospital.folder / "state", hospital.folder / "older")
    hospital.start()
    failing = {"charged": (hospital, "ask"), "drawn": (hospital, "seal"), "sealed": None}[sent]
    with monkeypatch.context() as patch:
        if failing:
            patch.setattr(*failing, lambda *_: 1 / 0)
        with contextlib.suppress(ZeroDivisionError):
            hospital.contribute(hospital.order())
    hospital.close()
    shutil.rmtree(hospital.folder / "state")
    (hospital.folder / "older").rename(hospital.folder / "state")
    hospital.start()
    if sent == "charged":  # nothing was drawn
        hospital.contribute(hospital.order())
        assert hospital.draws == 1
        return
    for order in (hospital.order(), hospital.order(attempt=2), hospital.order(Tensor.ENCODER)):
        with pytest.raises(StateRolledBackError):
            hospital.contribute(order)
    assert (hospital.draws, hospital.left, len(hospital.on_disk)) == (1, [], 1)
    hospital.contribute(hospital.order(number=2))
    assert hospital.draws == 2


def test_an_approval_that_is_taken_back_stops_the_next_charge_and_not_what_is_charged(hospital):
    first = hospital.contribute(hospital.order())
    hospital.taken_back = True
    assert hospital.contribute(hospital.order()) == first
    hospital.contribute(hospital.order(Tensor.ENCODER))
    before = hospital.on_disk
    with pytest.raises(Refused, match="not_approved: taken back"):
        hospital.contribute(hospital.order(number=2))
    assert hospital.on_disk == before
    assert hospital.metrics.refusals.labels("not_approved")._value.get() == 1
    hospital.taken_back = False
    hospital.contribute(hospital.order(number=2))
    assert len(hospital.on_disk) == len(before) + 1


def test_bytes_that_were_sealed_before_a_death_leave_only_once_the_ledger_knows_of_them(hospital, monkeypatch):
    with monkeypatch.context() as patch:
        raise_to = Anchors.raise_to
        patch.setattr(Anchors, "raise_to", lambda *given: 1 / 0 if given[2].said == 2 else raise_to(*given))
        with pytest.raises(ZeroDivisionError):
            hospital.contribute(hospital.order())
    study, anchors = hospital.study.digest, Anchors(hospital.folder / "ledger.sqlite3")
    assert (len(hospital.left), anchors.of(study).said) == (1, 1)
    hospital.restart()
    assert [hospital.contribute(hospital.order())] == hospital.left
    assert (anchors.of(study).said, hospital.draws) == (2, 1)


# --- the order: decide, charge, cosign, compute, keep, seal ------------------------------------------------------
def test_the_steps_come_in_their_order(hospital, monkeypatch):
    for owner, name, event in (
        (hospital.gate.ledger, "charge", "charge"),
        (hospital.state, "keep_release", "keep"),
        (hospital.state, "keep_sealed", "store"),
    ):
        real = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *a, real=real, event=event: (hospital.events.append(event), real(*a))[1]
        )
    monkeypatch.setattr("silo_agent.gate.decide", lambda *_, **__: hospital.events.append("decide"))
    hospital.contribute(hospital.order())
    assert hospital.events == ["decide", "charge", "cosign", "compute", "keep", "seal", "store"]


def test_whoever_computes_finds_the_whole_round_charged_on_disk(hospital):
    seen = []

    def compute(charged, release):
        (entry,) = hospital.on_disk
        seen.append(entry.debit)
        assert hospital.state.release(hospital.order().place, Tensor.HEADS, 1) is None
        return hospital.compute(charged, release)

    hospital.contribute(hospital.order(), compute)
    (debit,) = seen
    assert (debit.study, debit.round, debit.attempt) == (hospital.study.digest, 1, 1)
    assert debit.policy == hospital.gate.policy.digest
    assert debit.costs == plan(hospital.study).round_costs(1)


def test_whoever_seals_finds_the_draw_kept(hospital, monkeypatch):
    order, real = hospital.order(), hospital.seal

    def seal(kind, integers, label, masks):
        assert np.array_equal(hospital.state.release(order.place, Tensor.HEADS, 1).integers, integers)
        assert label == order.label
        assert kind == "ckks"
        return real(kind, integers, label, masks)

    monkeypatch.setattr(hospital, "seal", seal)
    path = hospital.contribute(order)
    assert path.read_bytes() == f"ckks [1, -1, 7] {order.label.digest} masks".encode()


def test_the_second_tensor_of_a_round_is_paid_for_already(hospital):
    hospital.contribute(hospital.order())
    hospital.contribute(hospital.order(Tensor.ENCODER, model="m2"))
    assert len(hospital.on_disk) == 1
    assert hospital.draws == 2


def test_without_a_durable_charge_nothing_is_computed_and_nothing_leaves(hospital, monkeypatch):
    def full(_debit):
        msg = "the disk is full"
        raise LedgerWriteError(msg)

    monkeypatch.setattr(hospital.gate.ledger, "charge", full)
    with pytest.raises(LedgerWriteError):
        hospital.contribute(hospital.order())
    assert hospital.events == []
    assert hospital.left == []
    assert hospital.on_disk == ()


def test_an_order_is_a_value_that_follows_no_spoilt_sum_unless_it_says_so(hospital):
    order = hospital.order()
    study = hospital.study.digest
    assert order.label == SumLabel(study, ROSTER, "m", 1, 1, Tensor.HEADS, 0)
    assert replace(order, spoilt=2).label == SumLabel(study, ROSTER, "m", 1, 1, Tensor.HEADS, 2)
    with pytest.raises(FrozenInstanceError):
        order.spoilt = 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"names": SILOS[:2]}, Reason.TOO_FEW_SILOS),
        ({"number": 4}, None),
        ({"attempt": 4}, Reason.TOO_MANY_ATTEMPTS),
    ],
)
def test_what_is_refused_is_neither_charged_nor_computed(hospital, changes, reason):
    with pytest.raises(Exception, match=reason or "round 4 is not in the plan"):
        hospital.contribute(hospital.order(**changes))
    assert (hospital.events, hospital.left, hospital.on_disk) == ([], [], ())


def test_a_refusal_is_counted_by_its_reason(hospital):
    with pytest.raises(Refused):
        hospital.gate.decide(hospital.study, hospital.order().place, roster_size=2)
    counted = hospital.metrics.registry.get_sample_value("fedward_silo_refusals_total", {"reason": "too_few_silos"})
    assert counted == 1
    assert hospital.on_disk == ()


def test_what_is_spent_and_left_is_measured(hospital, monkeypatch):
    timed = []
    monkeypatch.setattr("silo_agent.gate.padded", lambda *given: timed.append(given) or 64.0)
    with capture_logs() as said:
        hospital.contribute(hospital.order(number=2))
    value = hospital.metrics.registry.get_sample_value
    ((study, seconds),) = timed
    assert (study, value("fedward_silo_compute_seconds_sum", {"tensor": "heads"})) == (hospital.study, 64.0)
    assert 0 < seconds < 64
    spent = hospital.gate.ledger.spent()
    assert spent > 0
    told = {"round": 2, "attempt": 1, "tensors": ["heads"], "log_level": "info"}
    assert said == [{"event": "charged", "study": hospital.study.digest[:12], **told}]
    assert value("fedward_silo_epsilon_spent") == spent
    assert value("fedward_silo_epsilon_left") == pytest.approx(4 - spent)
    assert value("fedward_silo_charges_total") == 1
    hospital.restart()
    assert hospital.metrics.registry.get_sample_value("fedward_silo_epsilon_spent") == spent


# --- again after a crash ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("restart", [False, True])
def test_a_crash_after_the_charge_charges_nothing_twice(hospital, restart):
    def die(*_):
        raise Crash

    with pytest.raises(Crash):
        hospital.contribute(hospital.order(), die)
    assert hospital.left == []
    if restart:
        hospital.restart()
    hospital.contribute(hospital.order())
    assert len(hospital.on_disk) == 1
    assert hospital.draws == 1


def test_a_draw_is_made_under_the_place_of_its_charge(hospital):
    """With local noise the second attempt owes nothing: what it draws is what the first attempt was charged for."""

    def die(*_):
        raise Crash

    with pytest.raises(Crash):
        hospital.contribute(hospital.order(), die)
    hospital.contribute(hospital.order(attempt=2))
    assert (hospital.charged.round, hospital.charged.attempt) == (1, 1)


def test_the_charge_of_another_tensor_is_not_the_place_of_a_draw(open_hospital):
    """With distributed noise heads are charged for each attempt, the encoder once: here for the second attempt."""
    hospital = open_hospital(study=tiny_study(**DISTRIBUTED))
    for attempt in (2, 1):
        hospital.contribute(hospital.order(attempt=attempt))
        assert hospital.charged.attempt == attempt
    hospital.contribute(hospital.order(Tensor.ENCODER))
    assert hospital.charged.attempt == 2


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_crash_while_sealing_draws_nothing_twice(open_hospital, monkeypatch, restart, mode):
    hospital = open_hospital(study=tiny_study(privacy={"mode": mode}))

    def die(*_):
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(hospital, "seal", die)
        with pytest.raises(Crash):
            hospital.contribute(hospital.order())
    assert hospital.left == []
    if restart:
        hospital.restart()
    hospital.contribute(hospital.order())
    assert hospital.draws == 1
    assert hospital.sealed == [1, -1, 7]
    assert len(hospital.on_disk) == 1


@pytest.mark.parametrize("restart", [False, True])
def test_the_same_label_gives_the_stored_bytes(hospital, restart):
    path = hospital.contribute(hospital.order())
    content = path.read_bytes()
    if restart:
        hospital.restart()
    assert hospital.contribute(hospital.order()) == path
    assert path.read_bytes() == content
    assert hospital.events == ["cosign", "compute", "seal"]


def test_stored_bytes_that_were_changed_are_not_sent(hospital):
    hospital.contribute(hospital.order()).write_bytes(b"something else")
    with pytest.raises(StateError, match="missing or was changed"):
        hospital.contribute(hospital.order())
    assert hospital.events == ["cosign", "compute", "seal"]


# --- local noise: sent again at no cost -------------------------------------------------------------------------------
@pytest.mark.parametrize("restart", [False, True])
def test_with_local_noise_a_new_attempt_sends_the_same_integers_under_new_masks(hospital, restart):
    first = hospital.contribute(hospital.order())
    if restart:
        hospital.restart()
    second = hospital.contribute(hospital.order(attempt=2, roster=OTHER_ROSTER))
    assert first != second
    assert hospital.sealed == [1, -1, 7]
    assert hospital.draws == 1
    assert len(hospital.on_disk) == 1


def test_with_local_noise_attempts_use_up_nothing(open_hospital):
    hospital = open_hospital(study=tiny_study(max_attempts=20))
    for attempt in range(1, 10):
        hospital.contribute(hospital.order(attempt=attempt, roster=f"{attempt:064}"))
    assert hospital.draws == 1
    assert len(hospital.on_disk) == 1


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("spoilt", [1, 2])
def test_with_local_noise_a_spoilt_sum_makes_every_release_of_the_round_a_new_draw_and_a_new_charge(
    hospital, restart, spoilt
):
    hospital.contribute(hospital.order())
    hospital.state.promises.renew(hospital.order(attempt=spoilt + 1).place, spoilt)
    if restart:
        hospital.restart()
    for attempt in range(spoilt + 1, 4):
        hospital.contribute(hospital.order(attempt=attempt, roster=f"{attempt:064}"))
    assert (hospital.draws, len(hospital.on_disk)) == (2, 2)


# --- no noise: public data -----------------------------------------------------------------------------------------
UNNOISED = {
    "privacy": {"mode": "none", "count_noise": 0},
    "heads": {"pooled_noise": 0, "domain_noise": 0},
    "encoder": {"noise": 0},
    "evaluation": {"noise": 0},
}


def test_public_data_are_charged_as_unbounded_once_for_all_attempts(open_hospital):
    hospital = open_hospital(study=tiny_study(**UNNOISED), public=True)
    for attempt in (1, 2, 3):
        hospital.contribute(hospital.order(attempt=attempt, roster=f"{attempt:064}"))
    assert (hospital.draws, len(hospital.on_disk)) == (1, 1)
    assert hospital.metrics.registry.get_sample_value("fedward_silo_epsilon_spent") == float("inf")


def test_private_data_are_never_used_without_noise(open_hospital):
    hospital = open_hospital(study=tiny_study(**UNNOISED))
    with pytest.raises(Refused, match="not_public"):
        hospital.contribute(hospital.order())
    assert (hospital.draws, hospital.on_disk, hospital.left) == (0, (), [])


def test_an_edit_of_the_policy_cannot_make_private_data_public(open_hospital):
    hospital = open_hospital(study=tiny_study(**UNNOISED))
    hospital.close()
    write_yaml(hospital.policy, policy_document("north-ward", public=True))
    with pytest.raises(LedgerMismatchError, match="public"):
        hospital.start()
    write_yaml(hospital.policy, policy_document("north-ward"))
    hospital.start()


def test_a_silo_works_only_on_the_data_set_of_its_certificate(open_hospital):
    hospital = open_hospital()
    hospital.close()
    write_yaml(hospital.policy, policy_document("clinic"))
    (hospital.folder / "ledger.sqlite3").unlink()
    Ledger.create(
        hospital.folder / "ledger.sqlite3",
        Genesis(
            data_set="clinic",
            holdout=0.2,
            delta=1e-5,
            unit="patient",
            identified_by=("patient",),
            delimiter=",",
            columns=(),
        ),
    )
    with pytest.raises(
        CertificateError, match="data set north-ward, not for the data set clinic, and a new name does not refill"
    ):
        hospital.start()
    hospital.state.close()


# --- distributed noise: a draw is for one roster ----------------------------------------------------------------------
def test_with_distributed_noise_a_new_attempt_is_a_new_draw_and_a_new_charge(open_hospital):
    hospital = open_hospital(study=tiny_study(**DISTRIBUTED))
    hospital.contribute(hospital.order())
    spent = hospital.gate.ledger.spent()
    hospital.contribute(hospital.order(attempt=2, roster=OTHER_ROSTER))
    assert hospital.sealed == [2, -1, 7]
    first, second = hospital.on_disk
    assert set(first.debit.costs) == {"heads", "encoder"}
    assert (second.debit.attempt, set(second.debit.costs)) == (2, {"heads"})
    assert hospital.gate.ledger.spent() > spent


def test_the_encoders_noise_is_always_local(open_hospital):
    hospital = open_hospital(study=tiny_study(**DISTRIBUTED))
    hospital.contribute(hospital.order())
    hospital.contribute(hospital.order(Tensor.ENCODER))
    encoder = hospital.sealed
    hospital.contribute(hospital.order(attempt=2))
    hospital.contribute(hospital.order(Tensor.ENCODER, attempt=2))
    assert hospital.sealed == encoder
    assert hospital.draws == 3


def test_the_policy_caps_the_charged_attempts_of_a_round(open_hospital):
    limits = {**policy_document()["limits"], "charged_attempts": 2}
    hospital = open_hospital(study=tiny_study(max_attempts=20, **DISTRIBUTED), limits=limits)
    for attempt in (1, 2):
        hospital.contribute(hospital.order(attempt=attempt))
    with pytest.raises(Refused, match=r"policy\.limits\.charged_attempts allows 2") as refused:
        hospital.contribute(hospital.order(attempt=3))
    assert refused.value.reason is Reason.TOO_MANY_ATTEMPTS
    assert (len(hospital.on_disk), hospital.draws, len(hospital.left)) == (2, 2, 2)
    hospital.restart()
    with pytest.raises(Refused):
        hospital.contribute(hospital.order(attempt=4))
    hospital.contribute(hospital.order(number=2))
    assert hospital.draws == 3


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("other", [{"roster": OTHER_ROSTER}, {"model": "m2"}])
def test_shares_of_noise_are_never_sealed_for_two_rosters_or_models(open_hospital, restart, other):
    """Two sums with the same shares, one of them without this silo's neighbour, would give the neighbour away."""
    hospital = open_hospital(study=tiny_study(**DISTRIBUTED))
    hospital.contribute(hospital.order())
    if restart:
        hospital.restart()
    with pytest.raises(OutOfTurnError, match="was drawn for another roster or model"):
        hospital.contribute(hospital.order(**other))
    assert hospital.events == ["cosign", "compute", "seal"]
    assert len(hospital.left) == 1


def test_repeated_attempts_count_against_the_studys_epsilon(open_hospital):
    study = tiny_study(max_attempts=20, **DISTRIBUTED)
    limits = {**policy_document()["limits"], "study_epsilon": 0.45, "charged_attempts": 20}
    hospital = open_hospital(study=study, limits=limits)

    def repeat():
        for attempt in range(1, 20):
            hospital.contribute(hospital.order(attempt=attempt))

    with pytest.raises(Refused, match="with its repeated attempts") as refused:
        repeat()
    assert refused.value.reason is Reason.EPSILON_PER_STUDY
    assert hospital.gate.ledger.spent() <= 0.45
    assert hospital.draws == len(hospital.on_disk) >= 1


def test_the_policy_is_asked_with_all_that_was_spent_elsewhere_and_every_other_attempt(open_hospital, monkeypatch):
    hospital = open_hospital(study=tiny_study(**DISTRIBUTED))
    mine, policy = hospital.study.digest, hospital.gate.policy.digest
    costs = plan(hospital.study).round_costs(1)
    elsewhere = [("0" * 64, 1, 2), ("f" * 64, 1, 2), (mine, 0, 2), (mine, 2, 2)]
    others = {key: Cost("training", 1.0, 100.0 + place, 1) for place, key in enumerate(elsewhere)}
    for (study, number, attempt), cost in others.items():
        hospital.gate.ledger.charge(Debit(study, policy, number, attempt, {"heads": cost}))
    for attempt in (1, 2):
        hospital.contribute(hospital.order(attempt=attempt))
    asked = []
    monkeypatch.setattr("silo_agent.gate.decide", lambda *_, **facts: asked.append(facts))
    for attempt in (2, 3):
        hospital.gate.decide(hospital.study, hospital.order(attempt=attempt).place)
    assert [facts["charged_attempts"] for facts in asked] == [0, 2], "what owes nothing is no further attempt"
    assert [facts["spent_costs"] for facts in asked] == [
        [*others.values(), costs["heads"]],
        [*others.values(), costs["heads"], costs["heads"]],
    ]
    assert [facts["study_spent"] for facts in asked] == [facts["spent_costs"][2:] for facts in asked]
    assert [facts["renewed"] for facts in asked] == [0, 0]
    hospital.state.promises.renew(hospital.order(attempt=2).place, 1)
    hospital.contribute(hospital.order(Tensor.ENCODER, attempt=2))
    for attempt in (2, 3):
        hospital.gate.decide(hospital.study, hospital.order(attempt=attempt).place)
    assert [(facts["charged_attempts"], facts["renewed"]) for facts in asked[2:]] == [(1, 1), (0, 0), (2, 1)]


def test_every_decision_is_made_on_the_day_of_the_clock(hospital, monkeypatch):
    days = [datetime(2027, 5, 31, 23, tzinfo=UTC), datetime(2027, 6, 1, 1, tzinfo=UTC)]
    asked = []
    monkeypatch.setattr("silo_agent.gate.decide", lambda *_, **facts: asked.append(facts["today"]))
    for day in days:
        monkeypatch.setattr("silo_agent.gate.datetime", SimpleNamespace(now=lambda zone, day=day: day.astimezone(zone)))
        hospital.gate.decide(hospital.study, hospital.order().place)
    assert asked == [day.date() for day in days]


@pytest.mark.parametrize("hand_over", [True, False])
def test_a_model_is_handed_to_newcomers_only_as_the_policy_says(open_hospital, hand_over):
    hospital = open_hospital(hand_over=hand_over)
    earlier = tiny_study(name="earlier", silos=list(SILOS[:2]), min_silos=2)
    with contextlib.nullcontext() if hand_over else pytest.raises(Refused, match="hand_over is false"):
        hospital.gate.decide_continued(hospital.study, earlier)
    hospital.gate.decide_continued(earlier, hospital.study)


# --- policy and budget ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("changes", [{"budget": BUDGET | {"epsilon": 31.0}}, {"contact": "somebody-else"}])
def test_a_policy_that_is_edited_under_a_running_agent_stops_it_by_name(hospital, changes):
    write_yaml(hospital.policy, policy_document("north-ward", **changes))
    for ask in (
        lambda: hospital.gate.decide(hospital.study, hospital.order().place),
        lambda: hospital.contribute(hospital.order()),
    ):
        with pytest.raises(Refused, match="fedward-silo policy reload") as refused:
            ask()
        assert refused.value.reason is Reason.POLICY_CHANGED
    assert (hospital.events, hospital.on_disk) == ([], ())


def test_a_policy_that_disappears_under_a_running_agent_stops_it(hospital):
    hospital.policy.unlink()
    with pytest.raises(DocumentError, match="no such file"):
        hospital.contribute(hospital.order())
    assert (hospital.events, hospital.on_disk) == ([], ())


def test_a_policy_that_cannot_be_read_now_is_a_shortage_and_not_a_refusal(hospital, monkeypatch):
    real = Path.open

    def opened(path, *mode):
        if path == hospital.policy:
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        return real(path, *mode)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(ShortageError, match="Too many open files"):
        hospital.contribute(hospital.order())
    assert (hospital.events, hospital.on_disk) == ([], ())


def test_a_comment_does_not_change_a_policy(hospital):
    hospital.policy.write_text("# seen by the board\n" + hospital.policy.read_text())
    hospital.contribute(hospital.order())


def test_without_a_policy_there_is_no_gate(hospital):
    hospital.policy = hospital.folder / "none.yaml"
    with pytest.raises(DocumentError, match="no such file"):
        hospital.start()


def test_without_a_ledger_there_is_no_gate(hospital):
    hospital.close()
    (hospital.folder / "ledger.sqlite3").unlink()
    with pytest.raises(LedgerMissingError):
        hospital.start()


def test_a_spent_budget_is_refused_by_name(open_hospital):
    limits = {**policy_document()["limits"], "study_epsilon": 0.5, "round_epsilon": 0.5}
    hospital = open_hospital(budget=BUDGET | {"epsilon": 0.5}, limits=limits)
    costs = {"heads": Cost("training", 1.0, 9.0, 1)}
    hospital.gate.ledger.charge(Debit("8" * 64, hospital.gate.policy.digest, 1, 1, costs))
    for ask in (
        lambda: hospital.gate.decide(hospital.study, hospital.order(number=0).place),
        lambda: hospital.contribute(hospital.order(Tensor.COUNTS, 0)),
    ):
        with pytest.raises(Refused, match=r"policy\.budget\.epsilon is 0\.5") as refused:
            ask()
        assert refused.value.reason is Reason.BUDGET_SPENT
    assert hospital.events == []
    assert len(hospital.on_disk) == 1


# --- the ledger's other entries ------------------------------------------------------------------------------------
def test_the_first_start_puts_the_policy_into_force_and_an_edited_one_only_a_reload(hospital):
    first = hospital.gate.policy.digest
    hospital.restart()
    hospital.contribute(hospital.order())
    write_yaml(hospital.policy, policy_document("north-ward", contact="somebody-else"))
    with pytest.raises(ApprovalError, match=r"is not the policy in force .*policy reload"):
        hospital.restart()
    ledger = open_ledger(hospital.folder / "ledger.sqlite3", load_policy(hospital.policy), hospital.credential)
    put_into_force(ledger, hospital.policy, hospital.folder, trust)
    ledger.close()
    hospital.restart()
    second = hospital.gate.policy.digest
    hospital.contribute(hospital.order(number=2))
    events = [entry.event for entry in read_history(hospital.folder / "ledger.sqlite3")[1]]
    assert [type(event) for event in events] == [InForce, Debit, InForce, Debit]
    assert [event.policy for event in events] == [first, first, second, second]
    assert first != second


def test_what_is_spent_is_measured_by_study_and_tensor(hospital):
    hospital.contribute(hospital.order())

    def value(name, **labels):
        return hospital.metrics.registry.get_sample_value(f"fedward_silo_{name}", labels)

    digest, costs = hospital.study.digest[:12], plan(hospital.study).round_costs(1)
    spent = hospital.gate.ledger.spent()
    for _ in range(2):
        assert value("study_epsilon_spent", study=digest) == pytest.approx(spent)
        assert value("study_epsilon_left", study=digest) == pytest.approx(4 - spent)
        for tensor, cost in costs.items():
            alone = accountant.epsilon([cost], 1e-5)
            assert value("tensor_epsilon_spent", study=digest, tensor=tensor) == pytest.approx(alone)
            assert value("tensor_epsilon_left", study=digest, tensor=tensor) == pytest.approx(4 - alone)
        hospital.restart()


def test_who_has_spent_more_than_a_policy_allows_now_has_nothing_left(open_hospital):
    """A policy that was put into force later may allow less; a tensor that it does not know has no share of its own."""
    hospital = open_hospital(limits=policy_document()["limits"] | {"study_epsilon": 1.0})
    costs = {"heads": Cost("training", 1.0, 2.5, 1), "older": Cost("training", 1.0, 100.0, 1)}
    hospital.gate.ledger.charge(Debit("8" * 64, hospital.gate.policy.digest, 1, 1, costs))
    hospital.restart()

    def left(name, **labels):
        return hospital.metrics.registry.get_sample_value(f"fedward_silo_{name}_epsilon_left", labels)

    alone = accountant.epsilon([costs["older"]], 1e-5)
    assert left("study", study="8" * 12) == left("tensor", study="8" * 12, tensor="heads") == 0.0
    assert left("tensor", study="8" * 12, tensor="older") == pytest.approx(1.0 - alone)


def test_what_a_recovery_charged_counts_against_the_budget_and_no_study(hospital):
    ledger = hospital.gate.ledger
    cost = Cost("training", 1.0, 0.8, 1)
    ledger.recover(Recovery((), (cost,), "A. Weber", "fedward://silo/north", "PEM", "00"), ())
    with pytest.raises(Refused, match="budget") as refused:
        hospital.contribute(hospital.order())
    assert refused.value.reason is Reason.BUDGET_SPENT
    assert hospital.draws == 0


def test_a_ledger_that_was_edited_is_found_before_the_next_charge(hospital):
    hospital.contribute(hospital.order())
    path = hospital.folder / "ledger.sqlite3"
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"noise":15.0', b'"noise":95.0'))
    with pytest.raises(LedgerTamperedError):
        hospital.contribute(hospital.order(number=2))
    assert (hospital.draws, len(hospital.left)) == (1, 1)


def test_the_ledger_is_verified_at_the_start_at_charges_and_daily(hospital, monkeypatch):
    now, seen = [0.0], []
    monkeypatch.setattr("silo_agent.gate.monotonic", lambda: now[0])
    hospital.restart()
    verify = hospital.gate.ledger.verify
    monkeypatch.setattr(hospital.gate.ledger, "verify", lambda: (seen.append(now[0]), verify())[1])
    place = hospital.order().place
    day = 86_400.0
    assert hospital.metrics.registry.get_sample_value("fedward_silo_ledger_verification_age_seconds") < day
    now[0] = day
    hospital.gate.decide(hospital.study, place)
    assert seen == []
    now[0] = day + 1
    hospital.gate.decide(hospital.study, place)
    hospital.gate.decide(hospital.study, place)
    assert seen == [now[0]]
    hospital.contribute(hospital.order())
    assert len(seen) == 2


# --- a clock that jumps -----------------------------------------------------------------------------------------------
class Clock:
    """The machine's, for the gate and for the ledger's entries."""

    def __init__(self, monkeypatch) -> None:
        self.now = datetime(2027, 5, 31, 12, tzinfo=UTC)
        monkeypatch.setattr("silo_agent.gate._today", self.today)
        monkeypatch.setattr("policies.ledger.ledger._now", lambda: self.now.isoformat(timespec="seconds"))

    def today(self):
        return self.now.date()

    def jump(self, days):
        self.now += timedelta(days=days)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.mark.parametrize("restart", [False, True])
def test_a_clock_that_jumps_two_days_and_back_brings_no_expired_policy_back(open_hospital, clock, restart):
    hospital = open_hospital(budget=BUDGET | {"expires": "2027-06-01"})
    hospital.contribute(hospital.order())
    spent = hospital.gate.ledger.spent()
    clock.jump(2)
    with pytest.raises(Refused, match="today is 2027-06-02: no study is charged") as refused:
        hospital.contribute(hospital.order(number=2))
    assert refused.value.reason is Reason.EXPIRED
    hospital.gate.ledger.note("refresh", "case 14")
    clock.jump(-2)
    if restart:
        hospital.restart()
    with pytest.raises(Refused, match=r"written on 2027-06-02, .* clock now says 2027-05-31.*policy reload") as refused:
        hospital.contribute(hospital.order(number=2))
    assert refused.value.reason is Reason.EXPIRED
    assert (hospital.draws, len(hospital.on_disk), hospital.gate.ledger.spent()) == (1, 1, spent)
    assert hospital.contribute(hospital.order()).exists(), "what was sealed before is sent again"
    hospital.close()
    write_yaml(hospital.policy, policy_document("north-ward", budget=BUDGET | {"expires": "2027-06-02"}))
    with open_ledger(hospital.folder / "ledger.sqlite3", load_policy(hospital.policy), hospital.credential) as ledger:
        put_into_force(ledger, hospital.policy, hospital.folder, trust)
    hospital.start()
    hospital.contribute(hospital.order(number=2))
    assert hospital.draws == 2
    assert hospital.gate.ledger.spent() > spent


@pytest.mark.parametrize("days", [2, -2])
def test_a_clock_that_jumps_within_the_period_changes_no_charge(open_hospital, clock, days):
    hospital = open_hospital(budget=BUDGET | {"expires": "2027-06-30"})
    path = hospital.contribute(hospital.order())
    sent, spent = path.read_bytes(), hospital.gate.ledger.spent()
    for jump in (days, -days):
        clock.jump(jump)
        hospital.restart()
        assert hospital.contribute(hospital.order()).read_bytes() == sent, "one label, one byte string"
        assert (hospital.gate.ledger.spent(), len(hospital.on_disk), hospital.draws) == (spent, 1, 1)
    hospital.contribute(hospital.order(number=2))
    assert hospital.gate.ledger.spent() >= accountant.epsilon(hospital.gate.ledger.costs(), 1e-5)


# --- cosigned heads --------------------------------------------------------------------------------------------
def cosign(hospital, credential):
    return cosigned(hospital.gate.checkpoint(), credential, hospital.credential)


def test_an_older_copy_is_refused_at_the_start_once_a_head_was_cosigned(hospital, coordinator):
    path = hospital.folder / "ledger.sqlite3"
    older = path.read_bytes()
    hospital.contribute(hospital.order())
    hospital.gate.keep_cosigned([cosign(hospital, coordinator)])
    hospital.restart()
    hospital.close()
    path.write_bytes(older)
    with pytest.raises(LedgerRolledBackError, match="an older copy was put in its place"):
        hospital.start()
    assert read_history(path)[1][-1].sequence == 1, "a refused start writes nothing"


def test_a_cosigner_tells_a_silo_that_lost_everything_and_it_stays_told(hospital, coordinator):
    """The whole folder was put back: only who cosigned can know."""
    path = hospital.folder / "ledger.sqlite3"
    older = path.read_bytes()
    assert hospital.gate.evidence is None
    hospital.contribute(hospital.order())
    told = cosign(hospital, coordinator)
    hospital.gate.keep_cosigned([told])
    assert hospital.gate.evidence.checkpoint == told.checkpoint
    hospital.close()
    path.write_bytes(older)
    (hospital.folder / "ledger.sqlite3.countersigned.json").unlink()
    hospital.start()
    with pytest.raises(LedgerRolledBackError):
        hospital.gate.keep_cosigned([told])
    hospital.close()
    with pytest.raises(LedgerRolledBackError):
        hospital.start()


def test_a_head_that_a_thief_made_up_stops_the_silo_only_until_the_root_has_dated_the_theft(
    hospital, coordinator, monkeypatch
):
    hospital.contribute(hospital.order())
    hospital.gate.keep_cosigned([cosign(hospital, coordinator)])
    made_up = replace(hospital.gate.checkpoint(), head=EntryRef(99, "e" * 64), at="2020-01-01T00:00:00+00:00")
    with pytest.raises(LedgerRolledBackError):
        hospital.gate.keep_cosigned([cosigned(made_up, coordinator, hospital.credential)])
    hospital.close()
    with pytest.raises(LedgerRolledBackError):
        hospital.start()
    theft = datetime.now(UTC) - timedelta(minutes=1)
    monkeypatch.setattr(Trust, "stolen", lambda _, pem: theft if pem == hospital.credential.certificate_pem else None)
    hospital.start()
    assert hospital.gate.evidence is None, "all that this key signed and the silo heard of since is no evidence"
    monkeypatch.setattr(Trust, "stolen", lambda *_: None)
    again = cosign(hospital, coordinator)
    monkeypatch.setattr(Trust, "stolen", lambda _, pem: theft if pem == again.stated_certificate else None)
    hospital.gate.keep_cosigned([again])
    monkeypatch.setattr(Trust, "stolen", lambda *_: None)
    hospital.restart()
    assert hospital.gate.evidence.checkpoint == again.checkpoint, "the true head has taken the place of the made-up one"


def test_only_others_cosign_and_only_this_ledger(hospital, coordinator, credentials, enrolled):
    own = cosign(hospital, credentials["north"])
    with pytest.raises(CosignError, match="cannot cosign the ledger of north"):
        hospital.gate.keep_cosigned([own])
    for other in ("clinic", "other"):
        checkpoint = replace(hospital.gate.checkpoint(), data_set=other)
        with pytest.raises(CosignError, match=f"the ledger of {other} as this silo's.*a new name refills no budget"):
            hospital.gate.keep_cosigned([cosigned(checkpoint, coordinator, hospital.credential)])
    for silo in ("east", "west"):
        theirs = cosigned(replace(checkpoint, silo=silo), coordinator, enrolled(silo))
        with pytest.raises(CosignError, match=f"the ledger of {silo}, not this one"):
            hospital.gate.keep_cosigned([theirs])
    good = cosign(hospital, credentials["south"])
    with pytest.raises(SignatureRefused):
        hospital.gate.keep_cosigned([replace(good, checkpoint=checkpoint)])
    made_up = replace(hospital.gate.checkpoint(), head=EntryRef(99, "e" * 64))
    with pytest.raises(CosignError, match="fedward://silo/south signed a checkpoint of the ledger of north"):
        hospital.gate.keep_cosigned([cosigned(made_up, coordinator, credentials["south"])])
    with pytest.raises(SignatureRefused):
        hospital.gate.keep_cosigned([replace(good, stated_signature=good.signature)])
    assert CosignatureFile(hospital.folder / "ledger.sqlite3").latest() == ()
    hospital.gate.keep_cosigned([good, cosign(hospital, coordinator)])
    signers = [item.signer for item in CosignatureFile(hospital.folder / "ledger.sqlite3").latest()]
    assert signers == ["fedward://coordinator/hub", "fedward://silo/south"]


# --- nothing is computed before others have signed --------------------------------------------------------------------
def test_nothing_is_computed_before_the_coordinator_and_a_peer_have_signed_the_charge(hospital, signers):
    hub, south = signers
    steps = []

    def ask():
        """Nobody, then one of them, then the other."""
        steps.append(hospital.draws)
        given = {2: [hub], 3: [south]}.get(len(steps), [])
        return [cosigned(hospital.gate.checkpoint(), signer, hospital.credential) for signer in given]

    hospital.contribute(hospital.order(), ask=ask)
    assert steps == [0, 0, 0]
    assert hospital.draws == 1


@pytest.mark.parametrize("missing", ["coordinator", "peer"])
def test_one_alone_is_not_enough(hospital, signers, missing):
    def ask():
        if hospital.events.count("cosign") == 3:
            raise Crash
        hospital.events.append("cosign")
        return [cosigned(hospital.gate.checkpoint(), signers[missing == "coordinator"], hospital.credential)]

    with pytest.raises(Crash):
        hospital.contribute(hospital.order(), ask=ask)
    assert (hospital.draws, hospital.left) == (0, [])
    assert len(hospital.on_disk) == 1, "the charge stands, and is asked for again"
    hospital.contribute(hospital.order())
    assert (hospital.draws, len(hospital.on_disk)) == (1, 1)


def test_a_silo_of_another_study_does_not_count(hospital, coordinator, enrolled):
    def ask():
        if hospital.events:
            raise Crash
        hospital.events.append("cosign")
        return [
            cosigned(hospital.gate.checkpoint(), one, hospital.credential)
            for one in (coordinator, enrolled("elsewhere"))
        ]

    with pytest.raises(Crash):
        hospital.contribute(hospital.order(), ask=ask)
    assert hospital.draws == 0


def test_a_charge_that_is_not_in_the_ledger_is_no_charge(hospital, monkeypatch):
    """Should the charge itself be lost on the way, nothing is computed on the word of an older head."""
    monkeypatch.setattr(Gate, "_charge", lambda _, order: order.place.attempt)
    with pytest.raises(LedgerError, match="the ledger has no charge for the counts of round 0"):
        hospital.contribute(hospital.order(Tensor.COUNTS, 0))
    assert hospital.events == []


def test_a_head_of_before_the_charge_does_not_count(hospital, signers):
    encoder = {"encoder": plan(hospital.study).round_costs(1)["encoder"]}  # the same attempt, but another tensor
    hospital.gate.ledger.charge(Debit(hospital.study.digest, hospital.gate.policy.digest, 1, 1, encoder))
    before = [cosigned(hospital.gate.checkpoint(), signer, hospital.credential) for signer in signers]
    hospital.gate.keep_cosigned(before)
    hospital.contribute(hospital.order())
    assert hospital.events == ["cosign", "compute", "seal"]


def test_a_head_that_covers_the_charge_is_asked_for_once(hospital):
    hospital.contribute(hospital.order())
    hospital.contribute(hospital.order(Tensor.ENCODER, model="m2"))
    assert hospital.events.count("cosign") == 1
    hospital.contribute(hospital.order(number=2))
    assert hospital.events.count("cosign") == 2


@pytest.mark.parametrize("restart", [False, True])
def test_after_a_crash_it_is_asked_again_only_where_it_was_not_kept(hospital, restart):
    def die(*_):
        raise Crash

    for faults in ({"ask": die}, {"compute": die}):
        with pytest.raises(Crash):
            hospital.contribute(hospital.order(), **faults)
        if restart:
            hospital.restart()
    hospital.contribute(hospital.order(), ask=die)
    assert hospital.events == ["cosign", "compute", "seal"]
    assert len(hospital.on_disk) == 1


def test_what_was_computed_is_sent_again_without_asking(hospital):
    hospital.contribute(hospital.order())
    hospital.contribute(hospital.order(attempt=2, roster=OTHER_ROSTER))
    assert hospital.events == ["cosign", "compute", "seal", "seal"]


def test_a_signature_that_does_not_fit_computes_nothing(hospital):
    def ask():
        return [replace(item, signature=item.signature[::-1]) for item in hospital.ask()]

    with pytest.raises(SignatureRefused):
        hospital.contribute(hospital.order(), ask=ask)
    assert hospital.draws == 0


def test_who_answers_with_a_newer_head_stops_everything_by_name(hospital, coordinator, credentials):
    """A peer remembers more than this ledger has: what the silo is told, it keeps and refuses to go on with."""
    path = hospital.folder / "ledger.sqlite3"
    older = path.read_bytes()
    hospital.contribute(hospital.order())
    newer = cosign(hospital, credentials["south"])
    hospital.close()
    path.write_bytes(older)
    (hospital.folder / "ledger.sqlite3.countersigned.json").unlink()
    hospital.start()
    with pytest.raises(LedgerRolledBackError):
        hospital.contribute(hospital.order(number=2), ask=lambda: [cosign(hospital, coordinator), newer])
    assert hospital.draws == 1
    with pytest.raises(LedgerRolledBackError):
        hospital.gate.decide(hospital.study, hospital.order().place)


def test_a_cosigner_that_was_put_back_itself_can_go_on(hospital, coordinator):
    """It remembers an older head than the silo has kept of it, and signs only what contains that one."""
    gate = hospital.gate
    for _ in range(3):
        gate.ledger.note("refresh", "case")
    remembered = gate.checkpoint()
    for _ in range(5):
        gate.ledger.note("refresh", "case")
    gate.keep_cosigned([cosign(hospital, coordinator)])
    gate.ledger.note("refresh", "case")
    with pytest.raises(LedgerRolledBackError):
        advance(remembered, gate.checkpoint())
    gate.keep_cosigned([cosigned(remembered, coordinator, hospital.credential)])
    assert advance(remembered, gate.checkpoint()).head == gate.ledger.head
    (kept,) = CosignatureFile(hospital.folder / "ledger.sqlite3").latest()
    assert kept.checkpoint.head.sequence > remembered.head.sequence, "the newest stays kept"


def test_what_is_known_is_not_written_again(hospital, coordinator, monkeypatch):
    told = cosign(hospital, coordinator)
    hospital.gate.keep_cosigned([told])
    monkeypatch.setattr(CosignatureFile, "keep", lambda *_: pytest.fail("written again"))
    hospital.gate.keep_cosigned([told])


def test_a_head_that_was_lost_and_recovered_says_nothing_about_later_charges(open_hospital):
    """Its number may be higher than the charge's: the charge is cosigned all the same before it is computed."""
    hospital = open_hospital(study=tiny_study(**DISTRIBUTED))
    path = hospital.folder / "ledger.sqlite3"
    older = path.read_bytes()
    hospital.contribute(hospital.order())
    for _ in range(3):
        hospital.gate.ledger.note("refresh", "case")
    hospital.gate.keep_cosigned(hospital.ask())
    lost = [item.checkpoint for item in CosignatureFile(path).latest()]
    hospital.close()
    path.write_bytes(older)
    with open_ledger(path, load_policy(hospital.policy), hospital.credential) as ledger:
        recover(ledger, hospital.credential, lost, "A. Weber")
    hospital.start()
    asked = []

    def ask():
        asked.append(hospital.gate.ledger.head)
        return hospital.ask()

    hospital.contribute(hospital.order(number=2), ask=ask)
    assert asked == [hospital.gate.ledger.head]
    assert hospital.gate.ledger.head.sequence < max(item.head.sequence for item in lost)


def test_signatures_planted_in_the_kept_file_are_refused_at_the_start(hospital, signers):
    hospital.contribute(hospital.order())
    pairs = zip(hospital.ask(), signers, strict=True)
    planted = [replace(item, signer=one.identity.uri, signature=b"no") for item, one in pairs]
    hospital.close()
    (hospital.folder / "ledger.sqlite3.countersigned.json").unlink()
    CosignatureFile(hospital.folder / "ledger.sqlite3").keep(planted)
    with pytest.raises(SignatureRefused):
        hospital.start()
    hospital.state.close()
    (hospital.folder / "ledger.sqlite3.countersigned.json").unlink()
    hospital.start()


@pytest.mark.parametrize("kind", [CertificateError, CosignError])
def test_a_signature_of_today_takes_the_place_of_an_expired_one(hospital, signers, credentials, monkeypatch, kind):
    """What was kept still tells an older copy, but lets nothing be computed until it is signed again."""
    hospital.contribute(hospital.order())
    told = hospital.ask()
    valid, hub = hospital.gate._verify, signers[0]

    def expired(certificate, message, signature, at):
        if at is None and certificate == hub.certificate_pem:
            msg = "the certificate expired"
            raise kind(msg)
        return valid(certificate, message, signature, at)

    monkeypatch.setattr(hospital.gate, "_verify", expired)
    order = hospital.order(tensor=Tensor.ENCODER)
    steps = []

    def ask():
        steps.append("asked")
        monkeypatch.setattr(hospital.gate, "_verify", valid)
        return told

    with capture_logs() as said:
        hospital.contribute(order, ask=ask)
    assert steps == ["asked"]
    assert [(line["event"], line["why"]) for line in said if line["log_level"] == "warning"] == [
        ("a cosignature does not count any more", "the certificate expired")
    ]


# --- laws -------------------------------------------------------------------------------------------------------------
crashes = st.sampled_from([None, None, "compute", "seal"])
asked = st.tuples(st.integers(1, 2), st.sampled_from([ROSTER, OTHER_ROSTER]), crashes, st.booleans())


@settings(max_examples=25, deadline=None)
@given(mode=st.sampled_from(["local", "distributed"]), sequence=st.lists(asked, min_size=2, max_size=8))
def test_whatever_is_asked_and_whenever_it_crashes(quick_folders, credentials, signers, mode, sequence):
    hospital = Hospital(quick_folders(), credentials["north"], signers, study=tiny_study(privacy={"mode": mode}))
    sent = {}

    def die(*_):
        raise Crash

    for attempt, roster, crash, restart in sequence:
        if restart:
            hospital.restart()
        order = hospital.order(attempt=attempt, roster=roster)
        with pytest.MonkeyPatch.context() as patch:
            if crash:
                patch.setattr(hospital, crash, die)
            try:
                path = hospital.contribute(order)
            except (Crash, OutOfTurnError):
                pass
            else:
                content = path.read_bytes()
                assert sent.setdefault(order.label.digest, content) == content, "one label gave two byte strings"
    draws = {content.split(b"]")[0] for content in sent.values()}
    debits = [(e.debit.attempt, tensor) for e in hospital.on_disk for tensor in e.debit.costs]
    heads = [attempt for attempt, tensor in debits if tensor == "heads"]
    assert len(debits) == len(set(debits))
    assert len(draws) <= len(heads), "more draws left than were charged"
    if mode == "local":
        assert len(heads) <= 1
    else:
        assert len(draws) == len(sent), "one draw was sealed twice"
    hospital.close()


# --- what fails after the charge --------------------------------------------------------------------------------------
def failing(fault):
    def compute(*_):
        raise fault

    return compute


FAILURES = [MemoryError(), *(kind("secret") for kind in (ValueError, ZeroDivisionError, RuntimeError, LedgerError))]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda fault: type(fault).__name__)
def test_what_fails_after_the_charge_sends_noise_alone_and_the_ledger_says_so_first(hospital, failure):
    order = hospital.order()
    with capture_logs() as said:
        hospital.contribute(order, failing(failure))
    assert hospital.events == ["cosign", "noise alone", "seal"]
    assert hospital.sealed == [0, 0, 99]
    assert hospital.alone == (order.place, plan(hospital.study).release(1, "heads"))
    *before, entry = read_history(hospital.folder / "ledger.sqlite3")[1]
    assert entry.event == Fault(order.place.study, 1, 1, "heads")
    assert entry.epsilon == before[-1].epsilon
    (error,) = [line for line in said if line["log_level"] == "error"]
    assert (error["tensor"], error["round"], error["fault"]) == ("heads", 1, type(failure).__name__)
    assert error["where"][-1].startswith("test_gate.py:")
    assert "secret" not in str(said)


def test_after_a_fault_no_record_is_read_until_a_person_has_cleared_it(hospital):
    hospital.contribute(hospital.order(), failing(RuntimeError()))
    first = hospital.left
    hospital.restart()
    hospital.contribute(hospital.order(Tensor.ENCODER))
    assert hospital.draws == 0, "the rest of the attempt is noise too"
    assert hospital.events[-2:] == ["noise alone", "seal"]
    with pytest.raises(Refused) as caught:
        hospital.gate.require_no_fault()
    assert (caught.value.reason, caught.value.text) == (
        Reason.FAULT,
        "this silo takes no part in any study until its hospital has cleared a fault",
    )
    hospital.close()
    with open_ledger(hospital.folder / "ledger.sqlite3", load_policy(hospital.policy), hospital.credential) as ledger:
        assert ledger.clear_fault("A. Weber, data protection").event == Cleared("A. Weber, data protection")
        assert ledger.clear_fault("A. Weber, data protection") is None
    hospital.start()
    hospital.gate.require_no_fault()
    assert hospital.contribute(hospital.order()) in first, "what was sent stays what is sent"
    hospital.contribute(hospital.order(number=2))
    assert hospital.draws == 1


def test_a_crash_after_a_fault_computes_nothing_again(hospital, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(hospital, "noise_alone", failing(Crash()))
        with pytest.raises(Crash):
            hospital.contribute(hospital.order(), failing(RuntimeError()))
    hospital.restart()
    hospital.contribute(hospital.order())
    assert (hospital.draws, hospital.sealed) == (0, [0, 0, 99])
    faults = [e for e in read_history(hospital.folder / "ledger.sqlite3")[1] if isinstance(e.event, Fault)]
    assert len(faults) == 1


def test_if_even_the_noise_cannot_be_drawn_nothing_leaves(hospital, monkeypatch):
    monkeypatch.setattr(hospital, "noise_alone", failing(RuntimeError()))
    with pytest.raises(RuntimeError):
        hospital.contribute(hospital.order(), failing(ValueError()))
    assert hospital.left == []
    assert hospital.gate.ledger.fault is not None


def test_if_the_fault_cannot_be_noted_nothing_leaves(hospital, monkeypatch):
    def unwritten(_fault):
        msg = "the disk is full"
        raise LedgerWriteError(msg)

    monkeypatch.setattr(hospital.gate.ledger, "note_fault", unwritten)
    with pytest.raises(LedgerWriteError):
        hospital.contribute(hospital.order(), failing(ValueError()))
    assert (hospital.left, hospital.events) == ([], ["cosign"])
