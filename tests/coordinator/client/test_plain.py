"""The operator's client against a running coordinator: replies as values, every fault as a sentence."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from coordinator.client.plain import CoordinatorClient
from coordinator.config import OperatorConfig
from coordinator.errors import OperatorError
from crypto.authorship import sign_study
from support.certificates import make_authority
from support.people import author_in
from support.small_cohort import write_yaml
from support.studies import tiny_study


def config(port, folder):
    files = {name: folder / f"{name}.pem" for name in ("certificate", "key", "authority")}
    return OperatorConfig(coordinator=(f"127.0.0.1:{port}",), **files)


@pytest.fixture
def client(server, operator_folder):
    made = CoordinatorClient(config(server.port, operator_folder))
    yield made
    made.close()


def signed(authority, study):
    return sign_study(author_in(authority), study.digest, study.purpose)


def test_a_study_is_created_started_watched_and_stopped(client, authority):
    study = tiny_study(name="operated")
    assert client.create(study.canonical(), signed(authority, study)) == study.digest
    assert (client.status("operated").state, client.status("operated").rounds) == ("created", 3)
    client.start("operated")
    status = client.status(study.digest)
    assert (status.state, status.phase, status.waiting_for) == ("running", "offer", study.silos)
    client.abort("operated", "enough")
    assert client.status("operated").why == "stopped by operator ops: enough"
    assert study.digest in {one.study for one in client.statuses()}


def test_a_study_is_paused_and_resumed(client, authority):
    study = tiny_study(name="halted")
    client.create(study.canonical(), signed(authority, study))
    client.start("halted")
    client.pause("halted")
    assert (client.status("halted").state, client.status("halted").why) == ("paused", "paused by operator ops")
    client.resume("halted")
    assert client.status("halted").state == "running"
    with pytest.raises(OperatorError, match=r"^the study is running; only a paused or waiting"):
        client.resume("halted")


def test_results_come_as_values(client, make_scene):
    scene = make_scene(publish=["accuracy"])
    with pytest.raises(OperatorError, match=r"^the study is running; only a finished study"):
        client.results(scene.study.name)
    scene.play(lambda status: status.state == "finished")
    assert client.results(scene.study.name) == scene.results()
    assert [one.silo for one in scene.results().publications] == sorted(scene.silos)


def test_a_refusal_is_the_coordinators_sentence_without_a_code(client):
    with pytest.raises(
        OperatorError, match=r"^0 studies match 'nothing'; give the whole name, or at least 12 digits of the digest$"
    ):
        client.start("nothing")
    with pytest.raises(
        OperatorError, match=r"^this is no study: field version: this field is missing; .*; and 8 more$"
    ):
        client.create(b"{}", None)


def test_an_operator_hears_of_a_certificate_that_ends_soon(tmp_path):
    old = make_authority(tmp_path).credential("operator", "old", period=(timedelta(days=-80), timedelta(days=10)))
    said = []
    CoordinatorClient(config(1, old), lambda level, text: said.append((level, text))).close()
    ((level, text),) = said
    assert (level, text.startswith("the certificate expires on")) == ("warning", True)


def test_nobody_answers(operator_folder):
    client = CoordinatorClient(config(1, operator_folder))
    with pytest.raises(OperatorError, match=r"no coordinator answers at 127.0.0.1:1: .*check that it is running"):
        client.statuses()
    client.close()


def test_another_authority_s_coordinator_is_not_believed(server, tmp_path):
    client = CoordinatorClient(config(server.port, make_authority(tmp_path).credential("operator", "ops")))
    with pytest.raises(OperatorError, match=r"check that authority\.pem is the same"):
        client.statuses()
    client.close()


def test_an_author_hands_in_a_file_and_follows_the_study(server, authority, client, tmp_path):
    folder = authority.credential("author", "handing-in")
    study = tiny_study(name="handed-in")
    file = write_yaml(tmp_path / "study.yaml", study.model_dump(mode="json"))
    author = CoordinatorClient(config(server.port, folder))
    assert author.submit(file) == study.digest
    author.start("handed-in")
    seen = []
    for status in author.follow("handed-in", seconds=0.01):
        seen.append((status.state, status.phase))
        if len(seen) == 1:
            client.abort("handed-in", "enough")
    assert seen[0] == ("running", "offer")
    assert [state for state, _ in seen] == ["running", "aborted"]
    author.close()


def test_a_call_of_a_silo_alone_is_no_change(client, authority):
    study = tiny_study(name="unchanged")
    client.create(study.canonical(), signed(authority, study))
    status, is_change = client.status("unchanged"), client.changes()
    heard = replace(status, members=tuple(replace(one, last_seen=one.last_seen + 10) for one in status.members))
    assert [is_change(one) for one in (status, heard, replace(status, round=1), replace(heard, round=1))] == [
        True,
        False,
        True,
        False,
    ]
