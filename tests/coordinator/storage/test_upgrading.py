"""Studies that older versions stored: what was over stays to be read, what was not is stopped by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import text

from coordinator.core.state import Phase
from coordinator.core.study import OVER, Life, Progress, create
from coordinator.describing import describe
from coordinator.engine import script_of
from coordinator.storage.upgrading import WHY, upgraded
from protos import record
from support.databases import store_in
from support.people import audit_entry
from support.studies import tiny_study

VERSIONS = ("0.1", "0.2")
OLD = {
    (version, says): document
    for version in VERSIONS
    for says, document in json.loads((Path(__file__).parent / f"states-{version}.json").read_text()).items()
}
"""States as these versions stored them: a study of four silos in every life and many phases."""


def test_the_samples_have_every_life():
    assert {document["life"] for document in OLD.values()} == set(Life)


@pytest.mark.parametrize("sample", OLD, ids=" ".join)
def test_a_state_of_an_older_version_is_loaded(sample):
    old = OLD[sample]
    state = record.load(Progress, json.dumps(upgraded(old)))
    assert (state.script.study, state.script.name, state.script.silos) == (
        old["script"]["study"],
        "tiny",
        tuple(silo["name"] for silo in old["silos"]),
    )
    if old["life"] in OVER:
        assert (state.life, state.why) == (old["life"], old["why"])
    else:
        assert (state.life, state.why) == (Life.ABORTED, WHY)
    if old["round"] is None:
        assert state.round is None
    else:
        assert state.round.phase is (Phase.COMMITTED if old["life"] == "finished" else Phase.ABORTED)
        assert (state.round.place.round, state.round.place.attempt) == (
            old["round"]["place"]["round"],
            old["round"]["place"]["attempt"],
        )
        assert state.round.names == (), "its members lack keys"
    status = describe(state, {}, 1e9)
    assert (status.state, status.waiting_for) == (state.life, ())


def test_a_state_of_today_is_left_as_it_is():
    document = json.loads(record.dump(create(script_of(tiny_study()))))
    assert upgraded(document) is document


def test_the_store_of_an_older_version_is_read(tmp_path):
    study, old = tiny_study(), OLD["0.2", "gather of heads in round 1"]
    store = store_in(tmp_path)
    store.create(study.canonical(), create(script_of(study)), audit_entry())
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE studies SET progress = :old"), {"old": json.dumps(old)})
    (state,) = store.load()
    store.engine.dispose()
    assert (state.life, state.why) == (Life.ABORTED, WHY)
