from __future__ import annotations

from crypto.entropy import Entropy, SystemEntropy
from support.entropy import SeededEntropy


def test_the_system_gives_fresh_bytes_of_the_length_asked():
    source: Entropy = SystemEntropy()
    assert [len(source.bytes(n)) for n in (0, 1, 33)] == [0, 1, 33]
    assert source.bytes(32) != source.bytes(32)


def test_the_seeded_source_repeats_but_not_within_itself():
    first, second = SeededEntropy(1), SeededEntropy(1)
    drawn = [first.bytes(n) for n in (40, 40, 5)]
    assert drawn == [second.bytes(n) for n in (40, 40, 5)]
    assert drawn[0] != drawn[1]
    assert SeededEntropy(2).bytes(40) != drawn[0]
    assert SeededEntropy(b"a").bytes(8) != SeededEntropy(b"b").bytes(8)
