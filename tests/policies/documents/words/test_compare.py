from __future__ import annotations

import json
from datetime import date
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.decision import decide
from policies.documents.policy import Policy
from policies.documents.words.compare import Change, differences, value_of
from policies.refusals import Refused

# Every patient takes part in every step: priced by a closed formula, so that hundreds of decisions are quick.
WHOLE = {"encoder.sampling_rate": 1.0, "encoder.noise": 40.0}
STUDIES = (
    {},
    {"privacy.smallest_domain": 25, "publish": ["auc"], "encoder.sealing": "ckks", "encoder.clip": 0.5},
    {"privacy.mode": "local", "model.hidden": [16], "model.representation": 8, "heads.domain_rounds": 2},
    {"encoder.noise": 80.0, "heads.domain_noise": 40, "encoder.sampling_rate": 0.5, "min_silos": 4},
    {"privacy.colluders": 0, "publish": ["accuracy", "patients"], "model.hidden": []},
)
DIGEST = "0" * 64
ADA, GRACE, HEDY = (f"fedward://approver/{name}" for name in ("ada", "grace", "hedy"))
# From the loosest to the strictest.
HEART = {"studies": "heart", "author": "fedward://author/ann", "purpose": "*"}
EXAMS = {"studies": "exam-*", "author": "fedward://author/ann", "purpose": "Say *."}
LADDERS = {
    "budget.epsilon": (8.0, 4.0, 2.0),
    "budget.expires": ("2099-12-31", "2027-06-01", "2027-05-31"),
    "retention_days": (3650, 31, 30, 1),
    "limits.study_epsilon": (2.0, 1.0, 0.5),
    "limits.round_epsilon": (32.0, 1.0, 0.6, 0.3),
    "limits.rounds": (10, 5, 4, 1),
    "limits.charged_attempts": (3, 2, 1),
    "limits.architectures": (("mlp", "cnn", "resnet18"), ("mlp", "cnn"), ("cnn",)),
    "limits.encoder_weights": (1000, 100, 84, 10),
    "limits.representation": (16, 4, 3),
    "limits.sampling_rate": (1.0, 0.5, 0.1),
    "limits.clip": (1.0, 0.5, 0.1),
    "limits.memory_mib": (512, 511, 64),
    "split.encoder": (1.0, 0.2, 0.05),
    "split.heads": (1.0, 0.5, 0.1),
    "split.counts": (1.0, 0.1, 0.01),
    "split.metrics": (1.0, 0.5, 0.1),
    "min_silos": (3, 4, 5),
    "colluders": (0, 1, 2),
    "smallest_domain": (0, 25, 26),
    "noise_modes": (("local", "distributed"), ("local",)),
    "publish": (("auc", "accuracy", "patients"), ("accuracy", "patients"), ("patients",), ()),
    "encoder_sealing": ("ring", "ckks"),
    "studies": (None, (DIGEST,), ()),
    "hand_over": (True, False),
    "polls": (20, 5, 0),
    "approved_data": ({"ward": (EXAMS, HEART)}, {"ward": (HEART,)}, {}),
}
FIXED = {
    "data_set.id": "oncology",
    "data_set.unit": "record",
    "data_set.identified_by": ["visit"],
    "data_set.holdout": 0.3,
    "data_set.file.delimiter": ";",
    "data_set.file.columns": ["pid", "y"],
    "data_set.file.encoding": "windows-1252",
    "data_set.public": True,
    "budget.delta": 1e-6,
}
SPELLINGS = {
    "spelling.missing": ([".", ""], "as studies say became ['.', '']"),
    "spelling.codes": ({"sex": {"M": "m", "F": "f"}}, "the codes of column sex are read otherwise"),
    "spelling.decimal": (",", "numbers have a comma before their fraction, before a point"),
    "spelling.absent": (["crp"], "the hospital has no column crp"),
    "spelling.dates": ({"born": "%d.%m.%Y"}, "the dates of column born are read otherwise"),
    "spelling.units": ({"crp": {"unit": "mg/l"}}, "the unit of column crp is said otherwise"),
}
BETWEEN = {
    "dates": {"born": "%d.%m.%Y", "seen": "%d.%m.%Y"},
    "between": {"age": {"start": "born", "end": "seen", "unit": "years"}},
}
APPROVERS = (None, [ADA, GRACE, HEDY], [ADA, GRACE])


def allows(policy, study, silo="site-1"):
    call = {"roster_size": 4, "spent_costs": (), "round": 1, "attempt": 2, "today": date(2027, 6, 1)}
    try:
        decide(policy, study, silo=silo, charged_attempts=1, **call)
    except Refused:
        return False
    return True


def fields(part, prefix=""):
    for name, value in part:
        if hasattr(value, "model_fields"):
            yield from fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_every_field_is_compared(make_policy):
    compared = {*LADDERS, *FIXED, *SPELLINGS, "spelling.between", "approvers", "contact"}
    # These two have one value only.
    assert {*fields(make_policy())} - compared == {"version", "budget.relation"}


def test_a_time_between_dates_is_compared(make_policy):
    old, new = make_policy({"spelling": {"dates": BETWEEN["dates"]}}), make_policy({"spelling": BETWEEN})
    for pair in ((old, new), (new, old)):
        (found,) = differences(*pair)
        assert (found.field, found.change) == ("spelling.between", Change.NEUTRAL)
        assert found.text == "column age is the time between other dates"


@pytest.mark.parametrize("field", LADDERS)
def test_each_step_up_a_ladder_is_stricter_in_words_and_in_deed(field, make_policy, make_study):
    base = {"limits.sampling_rate": 1.0, **({"noise_modes": ["local"]} if field == "colluders" else {})}
    studies = [make_study({**WHOLE, **changes}) for changes in STUDIES]
    steps = [make_policy({**base, field: value}) for value in LADDERS[field]]
    for old, new in pairwise(steps):
        assert {d.change for d in differences(old, new)} == {Change.STRICTER}
        assert {d.change for d in differences(new, old)} == {Change.LOOSER}
        assert {d.field for d in differences(old, new)} == {field}
        for study in studies:
            assert allows(old, study) or not allows(new, study)


UNDECIDED = ("budget.epsilon", "retention_days", "hand_over", "approved_data", "polls")
"""Bind the ledger, what is kept, what studies go on from, and which data they read; no study that begins anew."""


@pytest.mark.parametrize("field", [f for f in LADDERS if f not in UNDECIDED])
def test_the_strictest_step_refuses_what_the_loosest_takes(field, make_policy, make_study):
    base = {"limits.sampling_rate": 1.0, **({"noise_modes": ["local"]} if field == "colluders" else {})}
    loosest, strictest = (make_policy({**base, field: LADDERS[field][i]}) for i in (0, -1))
    changes = {"privacy.mode": "local"} if field == "colluders" else {}
    taken = [s for s in (make_study({**WHOLE, **c, **changes}) for c in STUDIES) if allows(loosest, s)]
    assert any(not allows(strictest, study) for study in taken)


@pytest.mark.parametrize("field", FIXED)
def test_what_the_ledger_is_bound_to_is_called_fixed(field, make_policy):
    (only,) = differences(make_policy(), make_policy({field: FIXED[field]}))
    assert (only.field, only.change) == (field, Change.FIXED)
    assert "fixed for the life of the data set" in only.text


@pytest.mark.parametrize("field", SPELLINGS)
def test_how_the_file_spells_things_is_neither_looser_nor_stricter(field, make_policy):
    value, text = SPELLINGS[field]
    old, new = make_policy(), make_policy({field: value})
    (only,) = differences(old, new)
    assert (only.field, only.change, only.text) == (field, Change.NEUTRAL, text)
    assert [d.field for d in differences(new, old)] == [field]
    assert differences(new, new) == ()


def test_what_a_policy_of_version_3_could_not_state_may_be_stated_once_and_a_person_looks(make_policy):
    stated = json.loads(make_policy().canonical())
    del stated["data_set"]["file"], stated["limits"]["memory_mib"]
    older = Policy.model_validate(stated | {"version": 3})
    (file, memory) = differences(older, make_policy({"data_set.file.columns": ["y", "pid"]}))
    assert (file.field, file.change) == ("data_set.file.columns", Change.LOOSER)
    assert file.text == "a header line became y, pid: only a ledger that was made before version 0.6 opens with it"
    assert (memory.field, memory.change) == ("limits.memory_mib", Change.STRICTER)
    assert memory.text == "a study may need 512 MiB of memory, before 16384"


def test_a_new_contact_is_neither(make_policy):
    (only,) = differences(make_policy(), make_policy({"contact": "new@hospital.example"}))
    assert (only.field, only.change) == ("contact", Change.NEUTRAL)


def test_more_people_who_may_sign_are_looser_and_nobody_is_loosest(make_policy):
    nobody, three, two = (make_policy({"approvers": people}) for people in APPROVERS)
    for old, new in ((nobody, three), (three, two), (nobody, two)):
        assert {d.change for d in differences(old, new)} == {Change.STRICTER}
        assert {d.change for d in differences(new, old)} == {Change.LOOSER}
    swapped = make_policy({"approvers": [ADA, HEDY]})
    assert [d.change for d in differences(two, swapped)] == [Change.LOOSER, Change.STRICTER]


def test_a_study_more_is_looser_and_one_less_stricter(make_policy):
    one, other = make_policy({"studies": ["1" * 64]}), make_policy({"studies": ["2" * 64]})
    found = {(d.change, d.text) for d in differences(one, other)}
    assert found == {
        (Change.LOOSER, f"study {'2' * 64} may now run"),
        (Change.STRICTER, f"study {'1' * 64} may no longer run"),
    }


def test_what_becomes_looser_comes_first(make_policy):
    new = make_policy({"limits.rounds": 9, "contact": "x", "colluders": 0, "data_set.holdout": 0.3})
    order = [d.change for d in differences(make_policy(), new)]
    assert order == [Change.LOOSER, Change.FIXED, Change.STRICTER, Change.NEUTRAL]


def test_the_sentences_say_both_values(make_policy):
    (only,) = differences(make_policy(), make_policy({"budget.expires": "2027-12-31"}))
    assert only.text == "studies may be charged until 2027-12-31, before until 2099-12-31"
    (only,) = differences(make_policy(), make_policy({"retention_days": 30}))
    assert only.text == "private files of a study are kept for 30 days after its end, before for 365"
    (only,) = differences(make_policy(), make_policy({"limits.study_epsilon": 1.25}))
    assert only.text == "one study may cost an epsilon of 1.25, before 2"


@st.composite
def drawn(draw, ordered=False):
    """Two sets of changes; with `ordered` the second is nowhere looser than the first."""
    first, second = {}, {}
    for field, ladder in LADDERS.items():
        places = st.integers(0, len(ladder) - 1)
        a, b = draw(places), draw(places)
        first[field], second[field] = ladder[min(a, b) if ordered else a], ladder[max(a, b) if ordered else b]
    for changes in (first, second):
        changes["min_silos"] = max(changes["min_silos"], changes["colluders"] + 2)
    return first, second


@settings(deadline=None, max_examples=60)
@given(pair=drawn())
def test_a_policy_beside_itself_differs_in_nothing_and_beside_another_in_every_field(pair, make_policy):
    old, new = (make_policy(changes) for changes in pair)
    assert differences(old, old) == () == differences(old, Policy.model_validate_json(old.canonical()))
    assert {d.field for d in differences(old, new)} == {f for f in LADDERS if value_of(old, f) != value_of(new, f)}
    back = {Change.LOOSER: Change.STRICTER, Change.STRICTER: Change.LOOSER}
    there = sorted((d.field, back[d.change]) for d in differences(old, new))
    assert there == sorted((d.field, d.change) for d in differences(new, old))


@settings(deadline=None, max_examples=150)
@given(pair=drawn(ordered=True), number=st.integers(0, len(STUDIES) - 1))
def test_a_stricter_policy_never_takes_what_the_looser_refuses(pair, number, make_policy, make_study):
    old, new = (make_policy(changes) for changes in pair)
    assert {d.change for d in differences(old, new)} <= {Change.STRICTER}
    study = make_study({**WHOLE, **STUDIES[number]})
    assert allows(old, study) or not allows(new, study)
