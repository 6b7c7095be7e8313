"""Every digit has one silo, every silo two classes."""

import numpy as np
import torch

from bench.papers.local_global import deal
from bench.papers.local_global.network import Digits


def numbered(count):
    """A digit whose two pixels say where it stands."""
    places = torch.arange(count)
    return Digits(torch.stack([places // 256, places % 256], dim=1).to(torch.uint8), places % 10)


def places(digits):
    return (digits.images[:, 0].long() * 256 + digits.images[:, 1].long()).tolist()


def test_all_digits_are_dealt_in_shards_of_two_classes():
    for seed in range(5):
        dealt = deal.deal(numbered(2000), numbered(1000), seed)
        for part, count in ((dealt.training, 2000), (dealt.test, 1000)):
            assert sorted(place for digits in part for place in places(digits)) == list(range(count))
            assert [sorted(set(digits.labels.tolist())) for digits in part] == np.sort(dealt.classes).tolist()
            assert {len(digits.labels) for digits in part} == {count // 100}


def test_a_seed_deals_alike_and_another_otherwise():
    one, same, other = (deal.deal(numbered(2000), numbered(1000), seed) for seed in (1, 1, 2))
    assert [places(digits) for digits in one.training] == [places(digits) for digits in same.training]
    assert [places(digits) for digits in one.training] != [places(digits) for digits in other.training]


def test_a_new_silos_digits_are_turned_by_a_quarter():
    images = torch.tensor([[1, 2, 3, 4]], dtype=torch.uint8).repeat(5, 1)
    found = deal.turned(Digits(images, torch.arange(5)), 3, np.random.default_rng(1))
    assert found.images.tolist() == 3 * [[2, 4, 1, 3]]
    assert len(set(found.labels.tolist())) == 3
