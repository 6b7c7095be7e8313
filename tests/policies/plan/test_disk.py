from policies.plan import disk, shapes
from policies.plan.release import plan
from support.studies import tiny_study


def test_a_small_study_takes_little_and_more_rounds_take_a_model_each():
    few, many = (tiny_study(heads={"domain_rounds": rounds}) for rounds in (2, 6))
    model = 4 * shapes.encoder_values(few) + 8 * len(few.data.domains) * shapes.head_width(few)
    assert disk.needed(many) - disk.needed(few) == 4 * model
    assert disk.needed(few) < 8 << 20


def test_what_the_hierarchical_solver_keeps_stands_with_every_model():
    plain, solved = (
        tiny_study(heads={"solver": solver, "domain_rounds": 3}, encoder={"rounds": 0})
        for solver in ("newton", "hierarchical")
    )
    models = 1 + 4 + 2
    uploads = [max(sum(release.values for release in round_) for round_ in plan(one).rounds) for one in (plain, solved)]
    kept, summed = 8 * shapes.evidence_values(solved), 22 * (uploads[1] - uploads[0])
    assert disk.needed(solved) - disk.needed(plain) == models * kept + summed > 0


def test_the_study_that_the_docs_tell_of_takes_what_they_say():
    study = tiny_study(
        data={"image": {"column": "scan", "height": 64, "width": 64}},
        model={"encoder": "resnet18", "representation": 64, "hidden": []},
        heads={"domain_rounds": 9},
        encoder={"momentum": 0.9, "sealed_steps": True, "rounds": 9, "sampling_rate": 1.0, "sealing": "ring64"},
    )
    assert 1.1e9 < disk.needed(study) < 1.7e9
