"""Bounds of what silos seal for each other."""

from __future__ import annotations

from policies.plan import shapes
from policies.plan.note_sizes import BASE_BYTES, MAX_MODEL, MAX_NOTE, note_limit
from protos.steps import Note
from support.studies import tiny_study

STUDY = tiny_study()


def test_the_model_s_bound_grows_with_the_study():
    assert (note_limit(STUDY, 1, Note.KEYS), note_limit(STUDY, 1, Note.HEADS)) == (MAX_NOTE, MAX_NOTE)
    large = tiny_study(model={"hidden": [4096, 4096], "representation": 256})
    heads = 2 * (256 + 1)
    assert note_limit(large, 1, Note.MODEL) == MAX_MODEL + 8 * (shapes.encoder_values(large) + heads)
    assert note_limit(large, 1, Note.MODEL) - note_limit(STUDY, 1, Note.MODEL) > 8 * 4096 * 4096


def test_what_everybody_seals_is_bounded_by_the_roster():
    wide = tiny_study(silos=[f"silo-{number:02}" for number in range(64)])
    assert [note_limit(wide, 1, kind) for kind in (Note.GREETING, Note.SHARES, Note.REVEAL)] == [
        BASE_BYTES + 64 * 2048,
        BASE_BYTES + 64 * 2048 * 2,
        BASE_BYTES + 64 * 256,
    ]
    assert note_limit(wide, 0, Note.SHARES) == BASE_BYTES + 64 * 2048, "one tensor"
    assert note_limit(STUDY, 0, Note.SHARES) == BASE_BYTES + 3 * 2048


def test_beyond_64_silos_it_is_bounded_by_who_may_be_missing():
    names = [f"silo-{number:03}" for number in range(128)]
    bounds = {
        needed: note_limit(tiny_study(silos=names, min_silos=needed), 1, Note.REVEAL) - BASE_BYTES
        for needed in (65, 100, 120, 128)
    }
    assert bounds == {65: 128 * 256, 100: 64 * 256, 120: 64 * 256, 128: 64 * 256}
    assert note_limit(tiny_study(silos=names, min_silos=90), 1, Note.REVEAL) == BASE_BYTES + (2 * 40 + 1) * 256
