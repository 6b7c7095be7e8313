import dataclasses
import math

import numpy as np
import pytest
from scipy.special import expit

from policies.documents.study import CategoryFeature, DataSchema, DomainColumn, Label, NumericFeature
from silo_agent.data.inputs import Inputs
from silo_agent.data.records import Records
from silo_agent.learning.figures import subgroup_risks as module
from silo_agent.learning.figures.subgroup_risks import FEWEST, subgroup_risks

SEX = DomainColumn(column="sex", values=("f", "m"), names=("women", "men"))
SCHEMA = DataSchema(
    label=Label(column="ill", positive=(1,), negative=(0,)),
    domain=(DomainColumn(column="site", values=(1,), names=("all",)),),
    features=(
        CategoryFeature(column="ward", kind="category", values=("a", "b", "c"), optional=True),
        NumericFeature(column="smokes", kind="number", minimum=0, maximum=1, fill=0),
        NumericFeature(column="age", kind="number", minimum=0, maximum=100),
    ),
    protected=(SEX,),
)


def drawn(n=4000, seed=0, each=1):
    """Records whose smokers are ill more often, with the true risks."""
    rng = np.random.default_rng(seed)
    patients = np.repeat(np.arange(n), each)
    ward, smokes, sex = rng.integers(0, 4, n), rng.choice([-1.0, 1.0], n, p=[0.9, 0.1]), rng.integers(0, 2, n)
    cells = np.column_stack([ward, smokes, rng.uniform(-1, 1, n)]).astype(np.float32)
    risks = expit(-1.5 + 1.2 * (smokes > 0))
    labels = (rng.random(n) < risks).astype(np.int64)
    inputs = Inputs(cells[patients], SCHEMA.features, (math.nan, -1.0, math.nan))
    zeros = np.zeros(len(patients), np.int64)
    names = tuple(f"p{one}" for one in range(n))
    records = Records(inputs, labels[patients], zeros, patients, names, protected=sex[patients][:, None])
    return records, risks[patients]


def found(records, risks):
    return {(one.column, one.group): one for one in subgroup_risks(SCHEMA, records, risks)}


def test_every_code_protected_group_and_yes_or_no_is_looked_at():
    assert list(found(*drawn())) == [
        ("sex", "women"), ("sex", "men"), ("ward", "a"), ("ward", "b"), ("ward", "c"), ("ward", "absent"),
        ("smokes", "0"), ("smokes", "1"),
    ]  # fmt: skip


def test_right_risks_stand_out_nowhere_and_a_column_that_is_left_out_does():
    records, risks = drawn()
    right = found(records, risks)
    assert not [one for one in right.values() if one.stands_out]
    blind = np.full(len(risks), records.labels.mean())
    wrong = found(records, blind)
    assert {place for place, one in wrong.items() if one.stands_out} == {("smokes", "0"), ("smokes", "1")}
    value, low, high = wrong["smokes", "1"].ratio
    smokers = records.inputs.held(slice(None))[:, 1] == 1.0
    assert value == pytest.approx(blind[smokers].sum() / records.labels[smokers].sum())
    assert value < 0.6
    assert low < value < high < 1.0
    assert wrong["smokes", "1"].patients == smokers.sum()
    assert wrong["smokes", "1"].events == records.labels[smokers].sum()


def test_in_nineteen_of_twenty_tables_no_group_stands_out_by_chance():
    out = [any(one.stands_out for one in found(*drawn(800, seed)).values()) for seed in range(60)]
    assert sum(out) <= 8


def test_intervals_hold_what_was_true():
    held = []
    for seed in range(60):
        _, low, high = found(*drawn(500, seed))["sex", "men"].ratio
        held.append(low <= 1.0 <= high)
    assert 52 <= sum(held) <= 60


def test_all_records_of_a_patient_count_as_one():
    once, often = found(*drawn(600)), found(*drawn(600, each=4))
    for place, one in once.items():
        assert often[place].ratio == pytest.approx(one.ratio)
        assert (often[place].patients, often[place].events) == (one.patients, one.events)


def test_too_few_with_the_outcome_are_counted_and_not_judged():
    records, risks = drawn(40)
    few = {place: one for place, one in found(records, risks).items() if one.events < FEWEST}
    assert few
    assert all(one.ratio is None and not one.stands_out for one in few.values())
    assert all(one.patients > 0 for one in found(*drawn(3)).values()), "a group that nobody is in is none"


def test_a_number_with_values_between_its_ends_is_no_yes_or_no():
    records, risks = drawn(200)
    cells = records.inputs.held(slice(None)).copy()
    cells[:, 2] = np.where(np.arange(200) % 2, 1.0, 0.25)
    inputs = dataclasses.replace(records.inputs, cells=cells)
    assert "age" not in {column for column, _ in found(dataclasses.replace(records, inputs=inputs), risks)}


def test_the_more_groups_are_judged_the_farther_one_must_be_off_to_stand_out():
    """A risk that is off by just more than its own interval stands out alone, and not among seven judged groups."""
    records, risks = drawn(4000, seed=3)
    men = found(records, risks)["sex", "men"]
    value, low, _ = men.ratio
    off = risks / value * (1.0 + 1.1 * (value / low - 1.0))
    _, least, _ = found(records, off)["sex", "men"].ratio
    assert least > 1.0
    assert not found(records, off)["sex", "men"].stands_out
    alone = SCHEMA.model_copy(update={"features": (SCHEMA.features[2],), "protected": (SEX,)})
    only = dataclasses.replace(records, inputs=np.zeros((4000, 1), np.float32), protected=records.protected * 0 + 1)
    only = only.of_patients(records.protected[:, 0] == 1)
    (one,) = subgroup_risks(alone, only, off[records.protected[:, 0] == 1])
    assert one.ratio == pytest.approx(found(records, off)["sex", "men"].ratio)
    assert one.stands_out


def test_outcomes_that_all_lie_in_one_part_give_no_interval():
    records, risks = drawn(1000)
    labels = (np.arange(1000) % 100 == 0).astype(np.int64)
    only = dataclasses.replace(records, labels=labels, protected=np.zeros((1000, 1), np.int64))
    women = found(only, risks)["sex", "women"]
    assert (women.events, women.ratio, women.stands_out) == (10, None, False)
    assert all(one.ratio is None for one in found(records, risks * 0.0).values()), "nobody is predicted to fall ill"


def test_only_groups_that_are_judged_share_the_level(monkeypatch):
    levels = []
    monkeypatch.setattr(module, "_ratio", lambda *given: levels.append(given[3]) or (1.0, 0.9, 1.1))
    groups = found(*drawn(60)).values()
    judged = sum(one.events >= FEWEST for one in groups)
    assert 0 < judged < len(groups)
    assert levels == [0.05, 0.05 / judged] * judged
