"""Folders of local runs: what is emptied, what never is, and which file is a silo's."""

import pytest

from deploy.local.folders import MARK, begin, empty, find_data
from deploy.local.processes import FederationError


def test_a_folder_is_emptied_only_if_a_demo_made_it(tmp_path):
    mine = tmp_path / "mine"
    empty(mine)
    (mine / "old").touch()
    empty(mine)
    assert [file.name for file in mine.iterdir()] == [MARK]
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis").touch()
    with pytest.raises(FederationError, match="holds files, and no demo made it"):
        empty(theirs)
    assert (theirs / "thesis").exists()


def test_a_run_begins_in_a_new_folder_and_deletes_nothing(tmp_path):
    begin(tmp_path / "new" / "run")
    begin(tmp_path / "new" / "run")
    (tmp_path / "new" / "run" / "ledger.sqlite3").touch()
    with pytest.raises(FederationError, match="the ledgers of an earlier run are kept"):
        begin(tmp_path / "new" / "run")
    with pytest.raises(FederationError, match="is not an empty folder"):
        begin(tmp_path / "new" / "run" / "ledger.sqlite3")


def test_a_silos_file_is_named_after_it(tmp_path):
    for name in ("north.csv", "south.parquet"):
        (tmp_path / name).touch()
    assert find_data(tmp_path, ("north", "south")) == {
        "north": tmp_path / "north.csv",
        "south": tmp_path / "south.parquet",
    }
    with pytest.raises(FederationError, match=r"silo west, west\.csv or west\.parquet; it holds 0"):
        find_data(tmp_path, ("north", "west"))
    (tmp_path / "north.parquet").touch()
    with pytest.raises(FederationError, match="it holds 2"):
        find_data(tmp_path, ("north",))
