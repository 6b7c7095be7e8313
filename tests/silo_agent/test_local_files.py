"""What a round needs from the disk is opened before its charge, and no answer is timed by records."""

import shutil

import pytest
from structlog.testing import capture_logs

from protos.messages import Tensor
from protos.steps import Task
from silo_agent.learning.learner import Learner
from silo_agent.storage import rows
from silo_agent.storage.folders import StudyFolder
from support.planted import goes_on, refused
from support.studies import tiny_study

SITS_OUT = ("no_data", "this silo has no data for the study")
LOCAL_TABLES = {"encoder": {"prior": "local", "l2r": 0.001, "cmi": 0.001}}


def home(silo):
    return silo.state.files.study(silo.coordinator.study.digest)


def charged(silo):
    return [entry for entry in silo.charges if entry[0] > 0]


def damage(path, how):
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "how"),
    [("rows.sealed", "flipped"), ("rows.sealed", "gone"), ("rows.key", "gone"), ("prior-1.f32", "cut")],
)
def test_a_silo_that_lacks_a_file_of_its_own_sits_out_before_any_charge(federate, name, how):
    own = name.startswith("prior")
    coordinator, silos = federate(tiny_study(**LOCAL_TABLES) if own else None)
    north, number = silos["north"], 2 if own else 1
    for done in range(number):
        coordinator.run_round(done)
    before, path = north.charges, home(north).path / name
    content, key = path.read_bytes(), home(north).row_key.read_bytes()
    damage(path, how)
    for restarts in (False, True):
        if restarts:
            north.restart()
        with capture_logs() as said:
            coordinator.ask("north", coordinator.work(Task.DECIDE, coordinator.place(number), ()))
        answer = north.client.answers[-1]
        assert (answer.refusal, answer.explanation, answer.member) == (*SITS_OUT, None)
        (told,) = (entry["why"] for entry in said if entry["event"] == "study refused")
        assert str(path) in told
        assert "put back" in told or "restore it from a backup" in told
        assert north.charges == before
        assert north.gate.ledger.fault is None
        assert path.exists() == (how != "gone"), "nothing is made anew"
    path.write_bytes(content)
    assert home(north).row_key.read_bytes() == key
    coordinator.run_round(number)
    assert len({silo.model(number).read_bytes() for silo in silos.values()}) == 1
    assert len(north.charges) > len(before)


def test_a_list_of_withdrawals_that_does_not_open_makes_its_silo_sit_out(federate, monkeypatch):
    coordinator, silos = federate()
    north = silos["north"]
    coordinator.run_round(0)
    north.state.files.withdrawn.write_bytes(b"damaged")
    coordinator.ask("north", coordinator.work(Task.DECIDE, coordinator.place(1), ()))
    answer = north.client.answers[-1]
    assert (answer.refusal, answer.explanation) == SITS_OUT
    assert charged(north) == []


@pytest.mark.parametrize("how", ["flipped", pytest.param("gone", marks=pytest.mark.slow)])
def test_a_silo_without_the_domains_sizes_takes_them_from_a_peer_with_the_model(five, how):
    coordinator, silos = five()
    north = silos["north"]
    coordinator.run_round(0)
    coordinator.run_round(1)
    counts = home(north).counts.read_bytes()
    damage(home(north).counts, how)
    with capture_logs() as said:
        coordinator.ask("north", coordinator.work(Task.DECIDE, coordinator.place(2), ()))
    assert any(str(home(north).path) in str(entry.get("folder")) for entry in said)
    assert north.client.answers[-1].member is not None
    assert north.running.turn.behind
    coordinator.run_round(2)
    assert home(north).counts.read_bytes() == counts
    assert north.gate.ledger.fault is None
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1


@pytest.mark.parametrize("name", ["rows.sealed", "counts.json"])
def test_a_process_that_begins_again_in_an_attempt_looks_before_it_charges(federate, name):
    coordinator, silos = federate()
    north = silos["north"]
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    damage(home(north).path / name, "flipped")
    north.restart()
    with capture_logs() as said:
        coordinator.ask("north", coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.ENCODER))
    confirm = coordinator.said("north")
    assert (confirm.dispute, confirm.explanation) == ("local_file", "see the silo's log")
    assert any(name in str(entry.get("why")) for entry in said)
    assert charged(north) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_no_record_is_read_between_the_work_and_the_request_to_cosign(federate, monkeypatch, restarts):
    """The request leaves at once, so it would tell how long the reading took."""
    coordinator, silos = federate(tiny_study(pace="padded", pace_seconds=1))
    north, order, waited = silos["north"], [], []
    place, roster = coordinator.begin(0)
    if restarts:
        north.restart()
    load, cosign, opened = Learner.load, north.client.cosign, rows.SealedRows.recall

    def noted(what, call):
        def wrapped(*given):
            order.append(what)
            return call(*given)

        return wrapped

    monkeypatch.setattr(Learner, "load", noted("load", load))
    monkeypatch.setattr(rows.SealedRows, "recall", noted("open", opened))
    north.client.cosign = noted("cosign", cosign)
    north.client.upload = noted("upload", north.client.upload)
    north.agent._wait = noted("wait", waited.append)
    coordinator.ask("north", coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS))
    looked = ["open", "wait"] if restarts else []
    then = ["load", "open"] if restarts else ["load"]
    assert order == [*looked, "cosign", *then, "wait", "upload"]
    assert len(waited) == len(looked) // 2 + 1


@pytest.mark.parametrize(
    "until",
    [
        Task.EXCHANGE,
        pytest.param(Task.CONTRIBUTE, marks=pytest.mark.slow),
        pytest.param(Task.SIGN, marks=pytest.mark.slow),
        Task.REVEAL,
    ],
)
def test_a_silo_whose_folder_is_put_back_without_the_ledger_says_nothing_more_in_the_round(five, until):
    """It has forgotten its draw, its upload, its list and its reveal, and is asked for another of each."""
    coordinator, silos = five()
    north, others = silos["north"], tuple(name for name in silos if name != "north")
    coordinator.run_round(0)
    first, tensor = coordinator.place(1), Tensor.HEADS
    if until is not Task.EXCHANGE:  # at the offer, the folder is older by a whole attempt
        first, roster = coordinator.begin(1)
    north.die()
    older = shutil.copytree(north.folder / "state", north.folder / "older")
    north.restart()
    if until is Task.EXCHANGE:
        first, roster = coordinator.begin(1)
    coordinator.gather(first, roster, tensor)
    if until in {Task.SIGN, Task.REVEAL}:
        coordinator.sign(first, roster, tensor)
    if until is Task.REVEAL:
        coordinator.reveal(first, roster, tensor)
    before, uploads = north.charges, dict(north.client.uploads)
    north.die()
    shutil.rmtree(north.folder / "state")
    older.rename(north.folder / "state")
    north.restart()
    if until is not Task.EXCHANGE:
        coordinator.ask("north", coordinator.work(Task.CONTRIBUTE, first, roster, tensor))
        assert coordinator.said("north").dispute == "state_rolled_back"
    with capture_logs() as said:
        coordinator.ask("north", coordinator.work(Task.DECIDE, coordinator.place(1, 2), ()))
    answer = north.client.answers[-1]
    assert (answer.refusal, answer.explanation, answer.member) == (*SITS_OUT, None)
    assert any("older than the ledger" in str(entry.get("why")) for entry in said)
    assert (north.charges, north.client.uploads) == (before, uploads)
    if until is not Task.REVEAL:  # whoever has revealed is bound to the list with north in it
        coordinator.run_round(1, attempt=3, silos=others, void=tensor if until is Task.SIGN else None)
        coordinator.run_round(2)
        assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1


def test_a_silo_whose_folder_is_put_back_shares_no_second_secrets_in_the_attempt(federate):
    coordinator, silos = federate()
    north = silos["north"]
    coordinator.run_round(0)
    place = coordinator.place(1)
    roster = coordinator.offer(place)
    coordinator.deal(place, roster)
    north.die()
    older = shutil.copytree(north.folder / "state", north.folder / "older")
    north.restart()
    coordinator.exchange(place, roster)
    coordinator.gather(place, roster, Tensor.HEADS)
    shared = dict(north.client.uploads)
    north.die()
    shutil.rmtree(north.folder / "state")
    older.rename(north.folder / "state")
    north.restart()
    coordinator.ask("north", coordinator.work(Task.EXCHANGE, place, roster))
    assert coordinator.said("north").dispute == "state_rolled_back"
    assert north.client.uploads == shared
    assert not north.state.note_path(place, "note-shares").exists()


def test_keys_that_are_gone_in_mid_study_are_told_and_the_attempt_is_sat_out(federation):
    """Another attempt has new keys; nothing is charged in between."""
    coordinator, silos = federation
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    north = silos["north"]
    charged = north.charges
    keys = StudyFolder(north.state.study_folder(place.study)).keys
    keys.unlink()
    with capture_logs() as logs:
        north.restart()
        coordinator.ask("north", coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.HEADS))
    (told,) = [one for one in logs if one["event"] == "stored keys are not usable; new ones are made"]
    assert (told["file"], told["why"]) == (str(keys), "it is gone")
    refused(coordinator, "north", Task.CONTRIBUTE, "seal", "its stored keys were lost since it took its seat")
    assert north.charges == charged
    goes_on(coordinator, silos, 1, 2)
