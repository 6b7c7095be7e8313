"""Warnings for this hospital's people lie in a file, which a damage empties."""

from silo_agent.storage.warned import Warned, keep, kept


def test_warnings_are_read_back_and_a_damaged_file_is_none(tmp_path):
    path = tmp_path / "warnings.json"
    assert kept(path) == ()
    found = (Warned("reversed", None, 40, 0.31, None), Warned("worse", "b", 20, 0.7, 0.8))
    keep(path, 2, found)
    assert kept(path) == found
    keep(path, 3, ())
    assert kept(path) == ()
    path.write_text('{"warnings": [{"kind": "worse"}]}')
    assert kept(path) == ()
