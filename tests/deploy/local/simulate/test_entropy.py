"""A source that repeats."""

import hashlib
import itertools

from deploy.local.simulate.entropy import RepeatableEntropy


def test_equal_names_give_equal_bytes_and_every_call_gives_others():
    first, second = RepeatableEntropy(1, "north"), RepeatableEntropy(1, "north")
    drawn = [first.bytes(32) for _ in range(3)]
    assert drawn == [second.bytes(32) for _ in range(3)]
    assert len(set(drawn)) == 3


def test_other_names_give_other_bytes():
    names = [(1, "north"), (2, "north"), (1, "south"), (1, "north", ""), ("1n", "orth"), (1,)]
    drawn = [RepeatableEntropy(*own).bytes(16) for own in names]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))


def test_the_bytes_are_those_of_shake_over_names_and_call():
    length = (1).to_bytes(8, "big")
    content = b"fedward simulation" + length + b"7" + length
    assert RepeatableEntropy(7).bytes(40) == hashlib.shake_256(content).digest(40)
