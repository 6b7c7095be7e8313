"""The rule that fills in a draft."""

import pytest

from policies.documents.draft import Draft
from policies.documents.sections.encoder import LARGEST_BATCH
from policies.plan.derive import derive
from policies.plan.quorum import least


def derived(*, silos=6, patients=(1000,), inputs=4, label=None, **sections):
    document = {
        "name": "drafted",
        "purpose": "Try the rule.",
        "silos": [f"silo-{number}" for number in range(silos)],
        "data": {
            "label": label or {"column": "ill", "positive": [1], "negative": [0]},
            "domain": [{"column": "sex", "values": [0, 1], "names": ["f", "m"]}],
            "features": [{"kind": "number", "column": f"x{i}", "minimum": 0, "maximum": 1} for i in range(inputs)],
        },
        "expected": {"patients": list(patients)},
    }
    for name, fields in ({"privacy": {}} | sections).items():
        document[name] = document.get(name, {}) | fields if isinstance(fields, dict) else fields
    document["privacy"]["epsilon"] = 4
    return derive(Draft.model_validate(document))


def test_few_patients_read_the_inputs_themselves():
    found = derived(inputs=7)
    assert (found["model"]["encoder"], found["model"]["representation"], found["encoder"]["rounds"]) == ("raw", 7, 0)
    assert found["heads"]["solver"] == "hierarchical"


def test_more_inputs_than_a_representation_holds_pass_through_an_encoder():
    few, many = derived(inputs=300), derived(inputs=300, patients=(20_000,))
    assert few["model"]["encoder"] == many["model"]["encoder"] == "mlp"
    assert few["model"]["start"] == many["model"]["start"] == "hadamard"
    assert (few["encoder"]["rounds"], many["encoder"]["rounds"]) == (0, 2)


def test_an_image_gets_an_encoder_that_is_trained():
    image = {"column": "scan", "height": 32, "width": 32}
    found = derived(data=dict(derived()["data"], image=image))
    assert found["model"]["encoder"] == "cnn"
    assert found["encoder"]["rounds"] > 0


def test_a_number_is_solved_by_newton():
    found = derived(label={"column": "days", "minimum": 0, "maximum": 60})
    assert (found["heads"]["solver"], found["heads"]["clip"], found["publish"]) == (
        "newton",
        0.3,
        ["mae", "mean_error"],
    )


@pytest.mark.parametrize(
    ("silos", "stated", "mode", "least_silos"),
    [
        (2, {}, "local", 2),
        (3, {}, "local", least(3, 1)),
        (4, {}, "distributed", 4),
        (8, {}, "distributed", 7),
        (8, {"mode": "local"}, "local", least(8, 1)),
        (4, {"colluders": 2}, "local", least(4, 2)),
    ],
)
def test_noise_is_shared_where_that_makes_it_smaller(silos, stated, mode, least_silos):
    found = derived(silos=silos, privacy=stated)
    assert (found["privacy"]["mode"], found["min_silos"]) == (mode, least_silos)


@pytest.mark.parametrize(("patients", "delta"), [(740, 1e-5), (7681, 1e-5), (10_000, 1e-5), (18_000, 1e-6)])
def test_delta_is_a_power_of_ten_at_most_a_tenth_of_one_patient(patients, delta):
    assert derived(silos=2, patients=(patients // 2, patients - patients // 2))["privacy"]["delta"] == delta


@pytest.mark.parametrize(("patients", "bound"), [(90, 1000), (1000, 5000), (6000, 50_000), (3_000_000, 10_000_000)])
def test_the_bound_on_patients_leaves_room(patients, bound):
    assert derived(patients=(patients,))["privacy"]["max_patients"] == bound


def inside(found, *fields):
    return tuple(found[field.split(".")[0]][field.split(".")[1]] for field in fields)


WIDE = {"inputs": 300, "patients": (20_000,)}
NUMBER = {"label": {"column": "days", "minimum": 0, "maximum": 60}}


@pytest.mark.parametrize(
    ("draft", "pooled", "domain", "clip", "pooled_noise"),
    [
        ({}, 2, 5, 0.5, 2.5),
        ({"patients": (4999,)}, 2, 5, 0.5, 2.5),
        ({"patients": (5000,)}, 2, 5, 1.0, 2.5),
        ({"patients": (5000,), "heads": {"solver": "newton"}}, 4, 3, 0.5, 3.0),
        ({"heads": {"solver": "newton", "domain_rounds": 0}}, 4, 0, 0.5, 1.0),
        (WIDE, 3, 5, 1.0, 2.5),
        (NUMBER, 2, 1, 0.3, 2.0),
        ({"silos": 1200 // 200, "inputs": 257}, 2, 5, 0.5, 2.5),
    ],
)
def test_rounds_clip_and_proportions_are_those_of_the_rule(draft, pooled, domain, clip, pooled_noise):
    """docs/design/heads.md, "The rule for a new study"."""
    heads = derived(**draft)["heads"]
    assert (heads["pooled_rounds"], heads["domain_rounds"], heads["clip"]) == (pooled, domain, clip)
    assert (heads["pooled_noise"], heads["domain_noise"]) == (pooled_noise, 1.0)
    spent = pooled / pooled_noise**2 + domain
    assert derived(**draft)["privacy"]["count_noise"] == pytest.approx((0.01 * spent) ** -0.5)


@pytest.mark.parametrize(
    ("draft", "clip_by"),
    [
        ({}, "own"),
        ({"patients": (5000,)}, "worst"),
        ({"patients": (5000,), "heads": {"clip": 0.9}}, "own"),
        ({"heads": {"clip": 1.0}}, "worst"),
        ({"heads": {"clip": 1.0, "clip_by": "own"}}, "own"),
        ({"heads": {"clip_by": "worst"}}, "worst"),
        (NUMBER, "own"),
    ],
)
def test_the_outcome_blind_clip_is_the_default_where_it_costs_nothing(draft, clip_by):
    assert derived(**draft)["heads"]["clip_by"] == clip_by


@pytest.mark.parametrize(("inputs", "scale"), [(256, "counted"), (257, "even")])
def test_inputs_that_heads_read_are_divided_by_what_they_are(inputs, scale):
    assert derived(inputs=inputs)["model"]["input_scale"] == scale


@pytest.mark.parametrize(("inputs", "encoder"), [(256, "raw"), (257, "mlp")])
def test_heads_read_as_many_inputs_as_a_representation_may_have(inputs, encoder):
    assert derived(inputs=inputs)["model"]["encoder"] == encoder


def test_a_trained_encoder_takes_two_fifths_of_the_budget():
    """By the variance of the privacy loss at much noise: steps rate^2 / noise^2 in each round, 1 / noise^2 of heads."""
    found = derived(**WIDE)
    rounds, steps, rate, noise = inside(
        found, "encoder.rounds", "encoder.steps", "encoder.sampling_rate", "encoder.noise"
    )
    assert (rounds, steps, rate) == (2, 30, 0.2)
    heads = 3 / 2.5**2 + 5
    share = rounds * steps * rate**2 / noise**2
    assert share / (share + heads) == pytest.approx(0.4)
    assert inside(found, "encoder.batch_size") == (round(0.2 * 20_000),)
    assert inside(derived(**WIDE | {"patients": (10_000,) * 5 + (70_000,)}), "encoder.batch_size") == (4000,)
    assert inside(derived(), "encoder.batch_size", "encoder.steps", "encoder.noise") == (1, 1, 1.0)


def test_the_bound_on_patients_leaves_room_for_the_largest_hospital():
    assert derived(patients=(100, 100, 100, 100, 100, 6000))["privacy"]["max_patients"] == 50_000


@pytest.mark.parametrize(
    ("draft", "calibration", "noise"),
    [
        ({}, "pooled", 2.5),
        ({"model": {"bias": False}}, "none", 0.0),
        ({"heads": {"calibration": "domain"}}, "domain", 2.5),
        ({"heads": {"calibration": "none"}}, "none", 0.0),
    ],
)
def test_the_calibration_takes_as_much_as_a_pooled_round_or_nothing(draft, calibration, noise):
    assert inside(derived(**draft), "heads.calibration", "heads.calibration_noise") == (calibration, noise)


@pytest.mark.parametrize(
    ("patients", "prevalence", "bins"),
    [
        (2000, None, 20),
        (1999, None, 10),
        (10_000, 0.1, 20),
        (10_000, 0.9, 20),
        (9999, 0.1, 10),
        (3000, 0.1, 10),
        (2999, 0.1, 6),
    ],
)
def test_there_are_as_many_bins_as_held_out_events_of_a_domain_bear(patients, prevalence, bins):
    """A fifth is held out, of two domains; 100 patients of the rarer class in each for 20 bins, 30 for 10."""
    each = (*[patients // 6] * 5, patients - 5 * (patients // 6))
    assert derived(expected={"patients": each, "prevalence": prevalence})["evaluation"]["bins"] == bins


def test_six_bins_are_for_studies_that_have_few_events_in_all():
    """All patients together have figures, too, and six bins are too few for some hundreds of events."""
    domain = {"column": "ward", "values": list(range(20)), "names": [f"w{i}" for i in range(20)]}
    data = derived()["data"] | {"domain": [domain]}
    few, many = ({"patients": [each], "prevalence": 0.1} for each in (1600, 1700))
    assert derived(data=data, expected=few)["evaluation"]["bins"] == 6
    assert derived(data=data, expected=many)["evaluation"]["bins"] == 10


@pytest.mark.parametrize(
    ("label", "published", "auc", "bins"),
    [
        (None, ["auc", "calibration", "expected_observed"], "fitted", 20),
        (
            {"column": "ill", "classes": [[0], [1], [2]]},
            ["balanced_accuracy", "calibration", "expected_observed"],
            "cells",
            10,
        ),
        (NUMBER["label"], ["mae", "mean_error"], "cells", 10),
    ],
)
def test_what_is_published_fits_the_outcome(label, published, auc, bins):
    found = derived(label=label)
    assert found["publish"] == published
    assert inside(found, "evaluation.auc", "evaluation.bins", "evaluation.together") == (auc, bins, True)
    assert found["evaluation"]["together_share"] == 0.2
    assert derived(label=label, evaluation={"together": False})["evaluation"]["together_share"] == 0.0


def test_nothing_that_is_stated_is_overruled():
    stated = {"heads": {"clip": 0.9, "pooled_rounds": 7}, "evaluation": {"bins": 31}, "encoder": {"steps": 2}}
    found = derived(**stated, min_silos=6)
    assert inside(found, "heads.clip", "heads.pooled_rounds", "evaluation.bins", "encoder.steps") == (0.9, 7, 31, 2)
    assert found["min_silos"] == 6


def test_fields_that_depend_on_nothing_are_those_of_the_rule():
    found = derived()
    assert (found["version"], found["model"]["hidden"]) == (1, [])
    fields = ("privacy.smallest_domain", "model.seed", "heads.max_step", "encoder.learning_rate", "evaluation.noise")
    assert inside(found, *fields) == (20, 1, 30.0, 0.5, 1.0)
    assert inside(found, "encoder.sampling_rate") == (0.01,)


def test_a_representation_is_as_wide_as_its_encoder_needs():
    image = {"column": "scan", "height": 32, "width": 32}
    assert inside(derived(**WIDE), "model.representation") == (128,)
    assert inside(derived(data=dict(derived()["data"], image=image)), "model.representation") == (16,)


@pytest.mark.parametrize(("inputs", "solver"), [(127, "hierarchical"), (128, "newton")])
def test_all_releases_are_solved_together_up_to_a_width_of_a_head(inputs, solver):
    label = {"column": "ill", "classes": [[0], [1], [2], [3]]}
    assert inside(derived(inputs=inputs, label=label), "heads.solver") == (solver,)


def test_a_batch_has_a_largest_size_and_one_patient_at_least():
    assert inside(derived(**WIDE | {"patients": (9_000_000,)}), "encoder.batch_size") == (LARGEST_BATCH,)
    few = WIDE | {"patients": (1,), "encoder": {"rounds": 1}}
    assert inside(derived(**few), "encoder.batch_size") == (1,)


def test_one_domain_alone_has_no_rounds_of_its_own():
    one = [{"column": "sex", "values": [0], "names": ["f"]}]
    found = derived(data=dict(derived()["data"], domain=one), heads={"solver": "newton"})
    assert inside(found, "heads.domain_rounds") == (0,)


@pytest.mark.parametrize(("patients", "second"), [(20_000, "r2"), (19_998, "mean_error")])
def test_the_r2_of_few_patients_is_not_published(patients, second):
    """A fifth of them are held out, of two domains; below 2,000 in each its interval says nothing."""
    each = (*[patients // 6] * 5, patients - 5 * (patients // 6))
    assert derived(label=NUMBER["label"], expected={"patients": each})["publish"] == ["mae", second]
