"""Virtual silos from arrays and from records at hand."""

from dataclasses import replace

import numpy as np
import pytest

from deploy.local.simulate.silos import Cohorts, Fixed, HeldRecords, Silo, identified, of_arrays, rows_of
from silo_agent.data.records import NOBODY, Records
from support.studies import tiny_study


def some(n, seed=0):
    """n records of about n / 2 patients."""
    rng = np.random.default_rng(seed)
    whose = rng.choice([f"p{number}" for number in range(n // 2)], n)
    return of_arrays(rng.uniform(-1, 1, (n, 2)), rng.integers(0, 2, n), rng.integers(0, 2, n), whose)


def test_arrays_become_records_with_dense_patients():
    records = of_arrays([[0.5], [1], [0]], [1, 0, 1], [0, 0, 1], ["b", "a", "b"])
    assert records.identities == ("a", "b")
    assert records.patients.tolist() == [1, 0, 1]
    assert of_arrays([[0.5], [1]], [1, 0], [0, 0]).patient_count == 2
    with pytest.raises(ValueError, match="one entry per record"):
        of_arrays([[0.5], [1]], [1], [0])


def test_a_patient_is_in_one_cohort_and_another_seed_draws_others():
    source = HeldRecords({"north": some(400)})
    study = tiny_study()
    first, again, other = (source.draw(study, seed).silos["north"] for seed in (1, 1, 2))
    assert not set(first.training.identities) & set(first.held_out.identities)
    assert 20 < first.held_out.patient_count < 80
    assert first.held_out.identities == again.held_out.identities != other.held_out.identities


def test_a_digest_is_of_all_that_the_cohorts_of_a_seed_follow_from():
    records, test = {"north": some(20), "south": some(20, 1)}, some(20, 2)
    assert HeldRecords(records).digest == HeldRecords({name: replace(own) for name, own in records.items()}).digest
    others = [
        HeldRecords(records),
        HeldRecords(records, 0.5),
        HeldRecords(records, test=test),
        HeldRecords({**records, "test": test}),
        HeldRecords({"north": records["north"], "west": records["south"]}),
        HeldRecords(
            {"north": records["north"], "south": replace(records["south"], labels=1 - records["south"].labels)}
        ),
    ]
    assert len({source.digest for source in others}) == len(others)


def test_fixed_cohorts_stay_the_same():
    cohorts = Cohorts({"north": Silo.split(some(20), "north", 0.5)})
    assert Fixed(cohorts).draw(tiny_study(), 5) is cohorts


def test_records_without_a_patient_are_told_apart_by_their_row():
    plain = some(6)
    rows = np.arange(6)
    records = Records(plain.inputs, plain.labels, plain.domains, rows, (NOBODY,) * 6)
    assert identified(records).identities == tuple(f"row {number}" for number in range(6))
    assert identified(plain) is plain


def test_some_rows_keep_their_patients():
    records = replace(some(40), environments=np.arange(40) % 4)
    kept = np.arange(40) % 3 == 0
    part = rows_of(records, kept)
    names = [records.identities[patient] for patient in records.patients[kept]]
    assert [part.identities[patient] for patient in part.patients] == names
    assert np.array_equal(part.inputs, records.inputs[kept])
    assert np.array_equal(part.environments, records.environments[kept])
    assert of_arrays([[0.5], [1]], [1, 0], [0, 0], environments=[1, 0]).environments.tolist() == [1, 0]


def test_models_are_measured_on_test_records_or_on_all_that_are_held_out():
    silos = {name: Silo.split(some(40, seed), name, 0.5) for seed, name in enumerate(("north", "south"))}
    assert Cohorts(silos).measured == (silos["north"].held_out, silos["south"].held_out)
    test = some(7)
    assert Cohorts(silos, test).measured == (test,)
