import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from deploy.demo import cohort
from policies.documents.study import CategoryFeature, NumericFeature, load_study
from silo_agent.data.reader import read_records

STUDY = Path(__file__).parents[2] / "deploy" / "demo" / "exam" / "study.yaml"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return cohort.generate(tmp_path_factory.mktemp("cohort"), 7)


@pytest.fixture(scope="module")
def study():
    return load_study(STUDY)


@pytest.fixture(scope="module")
def records(made, study):
    return [read_records(path, study.data).whole() for path in made.sites]


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_file_fits_the_studys_schema_and_the_patients_are_counted(made, records):
    assert [r.patient_count for r in records] == list(cohort.SITE_PATIENTS)
    assert sum(r.patient_count for r in records) == made.patients == 7681


def test_schema_and_columns_publish_the_same_ranges(study):
    numbers = [f for f in study.data.features if isinstance(f, NumericFeature)]
    assert [(f.column, f.minimum, f.maximum, f.scale == "log") for f in numbers] == [
        (c.name, c.minimum, c.maximum, c.log) for c in cohort.MEASUREMENTS
    ]
    (category,) = [f for f in study.data.features if isinstance(f, CategoryFeature)]
    assert category.values == cohort.OXYGEN_DEVICES
    assert len(study.data.features) == cohort.FEATURES == 22
    assert study.data.domains == cohort.GROUPS


def test_equal_seeds_write_equal_files_and_others_do_not(made, tmp_path):
    again = cohort.generate(tmp_path / "again", 7)
    other = cohort.generate(tmp_path / "other", 8)
    for one, two in zip((*made.sites, *made.tests.values()), (*again.sites, *again.tests.values()), strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert made.sites[0].read_bytes() != other.sites[0].read_bytes()


def test_the_nonlinear_law_shows_the_same_patients_other_outcomes_that_no_line_of_the_state_tells():
    laws = [law(np.random.default_rng(3)) for law in cohort.LAWS.values()]
    explained = []
    for law in laws:
        states = law.states(4000, 1)
        score = law._score(states, 1)
        design = np.column_stack([states, np.ones(len(states))])
        rest = score - design @ np.linalg.lstsq(design, score, rcond=None)[0]
        explained.append(1 - rest.var() / score.var())
        assert abs(law.labels(states, 1).mean() - cohort.PREVALENCE[1]) < 0.03
    assert explained[0] == pytest.approx(1)
    assert 0.4 < explained[1] < 0.7


def test_a_cohort_may_be_made_of_several_times_as_many_patients(tmp_path, monkeypatch):
    monkeypatch.setattr(cohort, "SITE_PATIENTS", (20, 10))
    monkeypatch.setattr(cohort, "SITE_SHARES", cohort.SITE_SHARES[:2])
    monkeypatch.setattr(cohort, "TEST_PATIENTS", 2)
    made = cohort.generate(tmp_path, 1, law="nonlinear", times=3)
    assert made.patients == 90
    assert [len({row[cohort.PATIENT] for row in rows(path)}) for path in made.sites] == [60, 30]


def test_groups_are_mixed_as_in_the_table(made):
    for path, patients, shares in zip(made.sites, cohort.SITE_PATIENTS, cohort.SITE_SHARES, strict=True):
        groups = Counter({row[cohort.PATIENT]: row[cohort.GROUP] for row in rows(path)}.values())
        for name, share in zip(cohort.GROUPS, shares, strict=True):
            expected = share / sum(shares)
            slack = 5 * np.sqrt(expected * (1 - expected) / patients)
            assert abs(groups[name] / patients - expected) <= slack
    assert set(groups) == {"Asian"}


def test_a_patient_has_one_to_three_records_that_differ_in_values_but_not_in_label_or_group(made):
    visits = {}
    for row in rows(made.sites[0]):
        visits.setdefault(row[cohort.PATIENT], []).append(row)
    sizes = Counter(map(len, visits.values()))
    assert set(sizes) == {1, 2, 3}
    for several in visits.values():
        assert len({(row[cohort.GROUP], row[cohort.LABEL]) for row in several}) == 1
        if len(several) > 1:
            assert len({tuple(row.values()) for row in several}) > 1


def test_public_test_patients_are_new_and_4000_of_each_group_with_the_stated_prevalence(made, study):
    known = {row[cohort.PATIENT] for path in made.sites for row in rows(path)}
    for index, (name, prevalence) in enumerate(zip(cohort.GROUPS, cohort.PREVALENCE, strict=True)):
        test = read_records(made.tests[name], study.data).whole()
        assert test.patient_count == len(test) == 4000
        assert set(test.domains) == {index}
        assert known.isdisjoint(test.identities)
        assert abs(test.labels.mean() - prevalence) < 5 * np.sqrt(prevalence * (1 - prevalence) / 4000)


def test_values_are_rounded_like_measurements(made):
    for row in rows(made.sites[5])[:50]:
        for column in cohort.MEASUREMENTS:
            assert len(row[column.name].partition(".")[2]) == column.digits
