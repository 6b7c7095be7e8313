import inspect
from datetime import date
from pathlib import Path

import pytest

from protos.messages import Place
from silo_agent.storage.checked import write_checked
from silo_agent.storage.folders import StateFolder, StudyFolder

PLACE = Place("5" * 64, 2, 3)
HERE = f"studies/{PLACE.study}"
STATE, STUDY = StateFolder(Path("state")), StateFolder(Path("state")).study(PLACE.study)
NAMES = {
    STATE.database: "state.sqlite3",
    STATE.ledger: "ledger.sqlite3",
    STATE.session: "session.sealed",
    STATE.secret: "secret.sealed",
    STATE.withdrawn: "withdrawn.sealed",
    STATE.withdrawing: "withdrawn.lock",
    STATE.waiting: "waiting.json",
    STATE.offer("b" * 64): f"offered/{'b' * 64}.json",
    STATE.policy("d" * 64): f"policies/{'d' * 64}.json",
    STATE.stamp(date(2026, 11, 23)): "timestamps/2026-11-23.json",
    STATE.witnessed("south"): "witnessed/south.json",
    STATE.study(PLACE.study).path: HERE,
    STATE.outbox(PLACE.study): f"outbox/{PLACE.study}",
    STATE.inbox(PLACE.study): f"inbox/{PLACE.study}",
    STATE.sealed(PLACE.study, "a" * 64): f"outbox/{PLACE.study}/{'a' * 64}.sealed",
    STATE.note(PLACE, "keys"): f"outbox/{PLACE.study}/2-3-keys.note",
    STATE.received(PLACE, "shares", "south"): f"inbox/{PLACE.study}/2-3-shares-south.note",
    STUDY.model(2): f"{HERE}/model-2.safetensors",
    STUDY.model_digests(2): f"{HERE}/model-2.digest",
    STUDY.prior(2): f"{HERE}/prior-2.f32",
    STUDY.kept(2): f"{HERE}/kept-2.f64",
    STUDY.environments(2): f"{HERE}/environments-2.f64",
    STUDY.personal: f"{HERE}/personal.safetensors",
    STUDY.choice: f"{HERE}/choice.safetensors",
    STUDY.alone: f"{HERE}/alone.safetensors",
    STUDY.counts: f"{HERE}/counts.json",
    STUDY.results: f"{HERE}/results.json",
    STUDY.classes: f"{HERE}/classes.json",
    STUDY.publication: f"{HERE}/publication.json",
    STUDY.training_log: f"{HERE}/training.jsonl",
    STUDY.keys: f"{HERE}/keys.sealed",
    STUDY.rows: f"{HERE}/rows.sealed",
    STUDY.row_key: f"{HERE}/rows.key",
    STUDY.release(PLACE, "heads", 1): f"{HERE}/releases/2-heads-1.i64",
    STUDY.attempt_model("0123456789abcdef" * 4): f"{HERE}/attempt-0123456789abcdef.safetensors",
    STUDY.attempt_total("0123456789abcdef" * 4): f"{HERE}/attempt-0123456789abcdef.i64",
}
STAYING = {
    STUDY.model(2),
    STUDY.model_digests(2),
    STUDY.counts,
    STUDY.classes,
    STUDY.results,
    STUDY.publication,
    STUDY.training_log,
}


def test_every_name_is_the_one_that_older_versions_wrote():
    assert {path: str(path.relative_to("state")) for path in NAMES} == NAMES


def test_what_all_silos_hold_stays_and_all_else_goes():
    assert {path for path in NAMES if STUDY.stays(path)} == STAYING


def test_a_backup_has_no_key_and_no_rows_but_knows_who_has_withdrawn():
    left_out = {path for path, name in NAMES.items() if not StateFolder.backed_up(name)}
    assert {STUDY.keys, STUDY.rows, STUDY.row_key, STATE.session, STATE.secret, STATE.withdrawing} <= left_out
    assert not {STATE.withdrawn, STATE.ledger, STUDY.model(2), STUDY.personal} & left_out


def test_a_file_that_stays_is_no_other_file_of_that_name():
    assert not STUDY.stays(STUDY.path / "releases" / "counts.json")
    assert not STUDY.stays(STUDY.path / "model-2.safetensors.new")


def test_files_of_one_kind_are_found(tmp_path):
    study = StudyFolder(tmp_path)
    assert not [*study.releases(2), *study.attempts()]
    found = [study.release(PLACE, "heads", 1), study.release(PLACE, "encoder", 2)]
    kept = [study.attempt_model("a" * 64), study.attempt_total("b" * 64)]
    for path in (*found, *kept, study.personal, study.release(Place(PLACE.study, 22, 1), "heads", 1)):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert set(study.releases(2)) == set(found)
    assert set(study.attempts()) == set(kept)
    for name in ("kept-1.f64", "kept-12.f64", "kept-3.f64.new", "kept-x.f64"):
        (tmp_path / name).touch()
    assert study.kept_rounds() == {1, 12}
    others = [study.prior(1), study.environments(3)]
    for path in (*(study.kept(n) for n in (1, 12)), *others):
        write_checked(path, b"part")
    for path in (study.model(1), study.model_digests(2), study.model(13).with_suffix(".new")):
        path.touch()
    assert study.model_rounds() == {1, 2}
    assert {path.name for path in study.own_parts()} == {"kept-1.f64", "kept-12.f64", *(path.name for path in others)}


def test_files_and_folders_of_the_state_are_found_in_the_same_order_in_every_run(tmp_path):
    state = StateFolder(tmp_path)
    assert not [*state.studies(), *state.offers(), *state.stamps()]
    studies, offers = ([kind(f"{n:064x}") for n in (5, 3, 1, 7, 2)] for kind in (state.study, state.offer))
    stamps = [state.stamp(date(2026, month, 23)) for month in (11, 2, 7)]
    for study in studies:
        study.path.mkdir(parents=True)
    for path in (*offers, *stamps, studies[0].path.with_name("notes"), stamps[0].with_name("today.json")):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert state.studies() == sorted(studies, key=lambda study: study.path.name)
    assert state.offers() == sorted(offers)
    assert state.stamps() == sorted(stamps)


@pytest.mark.parametrize(
    "name",
    ["keys.sealed", "session.sealed", "ledger.sqlite3", "publication.json", '"witnessed', '"outbox', '"inbox', ".i64"],
)
def test_a_name_is_written_nowhere_else(name):
    here = Path(inspect.getfile(StateFolder))
    assert [path for path in here.parents[1].rglob("*.py") if name in path.read_text()] == [here]
