"""Warnings for this hospital's people lie in a file, which a damage empties."""

import pytest

from silo_agent.storage.model_warnings import Warned, keep, kept


@pytest.mark.parametrize(("domain", "where"), [(None, "this hospital"), ("b", "b at this hospital")])
def test_a_warning_says_where_and_its_figures_stay_out_of_the_log(domain, where):
    swapped, worse = Warned("reversed", domain, 40, 0.31, None), Warned("worse", domain, 20, 0.7, 0.8)
    assert swapped.brief == f"yes and no may be swapped at {where}, or the shared model is wrong there"
    assert swapped.text == f"{swapped.brief}: on 40 patients of its own the shared model has an AUC of 0.310"
    assert worse.brief == f"{where} is served worse by the shared model than by this hospital's own records"
    figures = "on 20 held-out patients the shared model has an AUC of 0.700, a regression of its own records 0.800"
    assert worse.text == f"{worse.brief}: {figures}"


def test_warnings_are_read_back_and_a_damaged_file_is_none(tmp_path):
    path = tmp_path / "warnings.json"
    assert kept(path) == ()
    found = (Warned("reversed", None, 40, 0.31, None), Warned("worse", "b", 20, 0.7, 0.8))
    keep(path, 2, found)
    assert kept(path) == found
    keep(path, 3, ())
    assert kept(path) == ()
    for damaged in ('{"warnings": [{"kind": "worse"}]}', '{"round": 3}', "[]", "{"):
        path.write_text(damaged)
        assert kept(path) == ()
