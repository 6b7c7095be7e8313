"""The rule that fills in a draft."""

import pytest

from policies.documents.draft import Draft
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
    assert (few["encoder"]["rounds"], many["encoder"]["rounds"]) == (0, 2)


def test_an_image_gets_an_encoder_that_is_trained():
    image = {"column": "scan", "height": 32, "width": 32}
    found = derived(data=dict(derived()["data"], image=image))
    assert found["model"]["encoder"] == "cnn"
    assert found["encoder"]["rounds"] > 0


def test_a_number_is_solved_by_newton():
    found = derived(label={"column": "days", "minimum": 0, "maximum": 60})
    assert (found["heads"]["solver"], found["heads"]["clip"], found["publish"]) == ("newton", 0.3, ["mae", "r2"])


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


@pytest.mark.parametrize(("patients", "delta"), [(740, 1e-4), (7681, 1e-5), (10_000, 1e-5), (18_000, 1e-6)])
def test_delta_is_a_power_of_ten_at_most_a_tenth_of_one_patient(patients, delta):
    assert derived(silos=2, patients=(patients // 2, patients - patients // 2))["privacy"]["delta"] == delta


@pytest.mark.parametrize(("patients", "bound"), [(90, 1000), (1000, 5000), (6000, 50_000), (3_000_000, 10_000_000)])
def test_the_bound_on_patients_leaves_room(patients, bound):
    assert derived(patients=(patients,))["privacy"]["max_patients"] == bound
