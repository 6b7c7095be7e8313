"""The bench of a large sum, at the least roster that stands on a circle by itself."""

from bench.speed import crowd
from bench.speed.crowd import cost_of


def test_sixty_six_silos_open_their_sum_without_those_that_are_gone(tmp_path):
    cost = cost_of(66, tmp_path)
    assert (cost.right, cost.refused) == (True, True)
    assert cost.predicted == cost.note
    assert cost.fetched * 2 < cost.note * 66


def test_a_sum_that_does_not_open_and_one_that_opens_with_a_mask_on_it_are_missed(monkeypatch):
    made = crowd.CrowdCost(70, 10, 10, 69, right=True, refused=True, own=1, opening=1, reading=1, verifying=1)
    monkeypatch.setattr("sys.argv", ["crowd", "--silos", "70"])
    monkeypatch.setattr(crowd, "judge", lambda _name, figures, _details: [one.met for one in figures])
    for change, met in (
        ({}, [True, True, True, True]),
        ({"right": False}, [False, True, True, True]),
        ({"refused": False}, [False, True, True, True]),
        ({"note": 11}, [True, False, True, True]),
        ({"note": 9}, [True, False, False, True]),
        ({"fetched": 70}, [True, True, False, True]),
    ):
        monkeypatch.setattr(crowd, "cost_of", lambda *_, change=change: crowd.dataclasses.replace(made, **change))
        assert crowd.main() == met
