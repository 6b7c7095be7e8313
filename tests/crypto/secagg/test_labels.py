from __future__ import annotations

import dataclasses
import hashlib

import pytest

from crypto.errors import SealError
from crypto.secagg.labels import SumLabel

LABEL = SumLabel("study", "roster", "model", 1, 0, "heads")


def test_every_field_counts():
    others = [
        dataclasses.replace(LABEL, **{field.name: 7 if field.type == "int" else "other"})
        for field in dataclasses.fields(LABEL)
    ]
    assert len({LABEL.canonical(), *(other.canonical() for other in others)}) == 8
    assert LABEL.digest == hashlib.sha256(LABEL.canonical()).hexdigest()


def test_fields_do_not_run_into_each_other():
    assert SumLabel("ab", "c", "m", 1, 0, "t").canonical() != SumLabel("a", "bc", "m", 1, 0, "t").canonical()
    assert SumLabel("a", "b", "m", 1, 11, "t").canonical() != SumLabel("a", "b", "m", 11, 1, "t").canonical()


def test_a_negative_round_has_no_label():
    with pytest.raises(SealError):
        dataclasses.replace(LABEL, round=-1).canonical()
