"""Releases for tests of whoever draws noise: one by itself, or one of a study's plan."""

from policies.plan.release import Release, plan


def a_release(**fields):
    """One Gaussian draw over the training cohort; fields as wanted."""
    usual = {
        "tensor": "heads",
        "cohort": "training",
        "noise": 5.0,
        "sampling_rate": 1.0,
        "count": 1,
        "values": 1,
        "ring": "ckks",
        "solved": False,
        "resendable": True,
    }
    return Release(**usual | fields)


def contribution(learner, tensor, place, model, silos):
    """What the gate would ask of this learner in a round of its study's plan."""
    return learner.contribution(plan(learner.study).release(place.round, tensor), place, model, silos)
