import pytest

from policies.documents.recipes import registry
from policies.documents.recipes.composition import Composition
from support.studies import tiny_study


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"heads": "solved"}, "are not trained together"),
        ({"heads": "kept", "order": "alternating"}, "are not trained alternating"),
        ({"heads": "averaged", "order": "heads-first"}, "only if they are kept"),
        ({"heads": "kept", "encoder": "kept", "order": "heads-first"}, "the encoder is averaged"),
        ({"heads": "solved", "encoder": "kept", "order": "alternating"}, "trained in its own step"),
        ({"heads": "hessians", "order": "alternating"}, "say that it is public"),
        ({"heads": "solved", "order": "alternating", "linear": True}, "say that it is public"),
    ],
)
def test_a_composition_that_makes_no_sense_is_refused_with_the_reason(given, why):
    with pytest.raises(ValueError, match=why):
        Composition("new", "nowhere", **given)


def test_a_public_recipe_is_refused_for_private_data_whatever_it_is_made_of(monkeypatch):
    """Also one that the other rules would let pass, as it clips and noises like FedAvg."""
    monkeypatch.setattr(registry, "RECIPES", {"new": Composition("new", "nowhere", "averaged", public=True)})
    with pytest.raises(ValueError, match=r"recipe new .* is only for data declared public"):
        tiny_study(recipe="new")
    tiny_study(
        recipe="new",
        heads={"pooled_noise": 0.0, "domain_noise": 0.0},
        encoder={"noise": 0.0},
        evaluation={"noise": 0.0},
        privacy={"mode": "none", "count_noise": 0.0},
    )


@pytest.mark.parametrize(
    ("heads", "encoder", "kept", "shares"),
    [
        ("averaged", "averaged", set(), True),
        ("kept", "averaged", {"heads"}, True),
        ("averaged", "kept", {"encoder"}, True),
        ("kept", "kept", {"heads", "encoder"}, False),
    ],
)
def test_what_is_kept_and_whether_anything_is_shared_follow_from_the_parts(heads, encoder, kept, shares):
    made = Composition("new", "nowhere", heads, encoder)
    assert (made.kept, made.keeps, made.shares) == (kept, bool(kept), shares)
