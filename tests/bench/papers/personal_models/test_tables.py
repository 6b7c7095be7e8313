"""What the table says of measured parts."""

import pytest

from bench.papers.personal_models import __main__ as bench


@pytest.mark.parametrize(("name", "beside"), [("fedavg", "paper 85.5"), ("alone", "not in the paper")])
def test_every_method_stands_beside_what_the_paper_prints(name, beside):
    part = {"accuracies": {"fedavg": [80.0, 90.0], "alone": [81.0, 92.0], "ditto": [82.0, 94.0]}}
    lines = {line.name: line for line in bench.synthetic_figures(0.5, "logits", part)}
    assert lines[f"synthetic 0.5, logits, {name}"].wanted == beside
    ditto = lines["synthetic 0.5, logits, ditto"].measured
    assert ditto.startswith("88.00, less fedavg +3.00 (")
    assert ", less alone +1.50 (" in ditto


def test_hospitals_methods_stand_beside_the_shared_model():
    shared, alone = bench.hospital_figures("heart", {"aucs": {"shared": [0.8, 0.7], "alone": [0.82, 0.74]}})
    assert shared.measured == "0.7500"
    assert alone.measured.startswith("0.7800, less shared +0.0300 (")
