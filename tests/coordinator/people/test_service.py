"""The calls of people over the wire: each role with a real certificate."""

from __future__ import annotations

import hashlib

import grpc
import pytest

from crypto.authorship import author_message, sign_study
from protos.steps import Task
from protos.v1 import common_pb2, operator_pb2, silo_pb2
from support.certificates import load
from support.people import create_request
from support.silos import Caller, refused
from support.studies import tiny_study

Code = grpc.StatusCode
ROLES = ("operator", "author", "viewer", "approver")


@pytest.fixture(scope="module")
def people(server, authority):
    made = {role: Caller(server.port, authority.credential(role, "pat")) for role in ROLES}
    yield made
    for one in made.values():
        one.close()


def signed_by(caller, study):
    made = sign_study(caller.credential, study.digest, study.purpose)
    return operator_pb2.CreateStudyRequest(
        canonical=study.canonical(),
        author=common_pb2.AuthorSignature(certificate_pem=made.certificate, signature=made.signature),
    )


def test_nobody_hands_in_what_no_author_stands_behind(people, authority, scene):
    """The owner alone is the coordinator's word; the signature is not."""
    study, other = tiny_study(name="unsigned"), tiny_study(name="unsigned", purpose="Another one.")
    bare = operator_pb2.CreateStudyRequest(canonical=study.canonical())
    swapped = signed_by(people["author"], other)
    swapped.canonical = study.canonical()
    for who in ("author", "operator"):
        calls = people[who].operator
        with refused(Code.PERMISSION_DENIED, "no author has signed the study 'unsigned'; sign it"):
            calls.CreateStudy(bare)
        with refused(Code.PERMISSION_DENIED, "signature of the study 'unsigned' does not count"):
            calls.CreateStudy(swapped)
    theirs = create_request(authority, study)
    with refused(
        Code.PERMISSION_DENIED, "fedward://author/ann has signed the study, and fedward://author/pat hands it in"
    ):
        people["author"].operator.CreateStudy(theirs)
    people["operator"].operator.CreateStudy(theirs)
    certificate = load(scene.folders[next(iter(scene.folders))])
    forged = signed_by(people["author"], other)
    forged.author.certificate_pem = certificate.certificate_pem
    forged.author.signature = certificate.sign(author_message(other.digest, other.purpose))
    with refused(Code.PERMISSION_DENIED, "does not count"):
        people["operator"].operator.CreateStudy(forged)


def test_an_author_carries_a_study_and_every_step_is_in_the_log(people):
    author, viewer = people["author"].operator, people["viewer"].operator
    study = tiny_study(name="authored")
    author.CreateStudy(signed_by(people["author"], study))
    author.StartStudy(operator_pb2.StudyRequest(study="authored"))
    author.PauseStudy(operator_pb2.StudyRequest(study=study.digest, reason="lunch"))
    author.ResumeStudy(operator_pb2.StudyRequest(study=study.digest[:12]))
    author.AbortStudy(operator_pb2.AbortStudyRequest(study="authored", reason=" wrong\x1b[31m columns "))
    assert viewer.GetStudyStatus(operator_pb2.StudyRequest(study="authored")).why.endswith(
        "by author pat: wrong [31m columns"
    )
    entries = [entry for part in viewer.GetAuditLog(operator_pb2.GetAuditLogRequest(first=0)) for entry in part.entries]
    mine = [entry for entry in entries if entry.study == study.digest]
    assert [(one.action, one.reason) for one in mine] == [
        ("create", ""),
        ("start", ""),
        ("pause", "lunch"),
        ("resume", ""),
        ("abort", "wrong [31m columns"),
    ]
    shown = hashlib.sha256(people["author"].credential.certificate_pem).hexdigest()
    assert {(one.who, one.certificate, one.name, one.outcome) for one in mine} == {
        ("fedward://author/pat", shown, "authored", "done")
    }


def test_one_person_s_certificates_are_two_parties(people):
    study = tiny_study(name="pats-own")
    people["author"].operator.CreateStudy(signed_by(people["author"], study))
    with refused(Code.PERMISSION_DENIED, "of fedward://author/pat, not of fedward://operator/pat; say with --reason"):
        people["operator"].operator.StartStudy(operator_pb2.StudyRequest(study="pats-own"))
    people["operator"].operator.StartStudy(operator_pb2.StudyRequest(study="pats-own", reason="pat is ill"))
    people["operator"].operator.AbortStudy(operator_pb2.AbortStudyRequest(study="pats-own", reason="over"))


def test_an_author_hears_nothing_of_others_studies(people, scene):
    author = people["author"].operator
    wanted = operator_pb2.StudyRequest(study=scene.study.digest)
    for call in (author.StartStudy, author.PauseStudy, author.ResumeStudy, author.GetStudyStatus):
        with refused(Code.NOT_FOUND, "0 studies match"):
            call(wanted)
    with refused(Code.NOT_FOUND, "0 studies match"):
        author.AbortStudy(operator_pb2.AbortStudyRequest(study=scene.study.name, reason="spite"))
    with refused(Code.NOT_FOUND, "0 studies match"):
        next(author.GetResults(wanted))
    listed = author.ListStudies(operator_pb2.ListStudiesRequest()).studies
    assert scene.study.name not in {one.name for one in listed}
    assert scene.status().state == "running"


@pytest.mark.parametrize("role", ["viewer", "approver", "author"])
def test_what_a_role_may_not_do_is_refused(people, scene, role):
    calls, study = people[role].operator, scene.study.digest
    forbidden = {
        calls.ForgiveSilo: operator_pb2.ForgiveSiloRequest(study=study, silo=next(iter(scene.silos)), reason="so"),
    }
    if role != "author":
        one = operator_pb2.StudyRequest(study=study, reason="so")
        forbidden |= dict.fromkeys((calls.StartStudy, calls.PauseStudy, calls.ResumeStudy), one)
        forbidden[calls.AbortStudy] = operator_pb2.AbortStudyRequest(study=study, reason="so")
        forbidden[calls.CreateStudy] = operator_pb2.CreateStudyRequest(canonical=tiny_study(name="no").canonical())
    if role == "approver":
        forbidden[calls.GetStudyStatus] = operator_pb2.StudyRequest(study=study)
        forbidden[calls.ListStudies] = operator_pb2.ListStudiesRequest()
    for call, request in forbidden.items():
        with refused(Code.PERMISSION_DENIED, f"fedward://{role}/pat"):
            call(request)
    if role != "viewer":
        with refused(Code.PERMISSION_DENIED, f"fedward://{role}/pat"):
            list(calls.GetAuditLog(operator_pb2.GetAuditLogRequest()))
    assert scene.status().state == "running"


def test_a_poll_asks_silos_and_burns_no_name(people, authority, scene):
    silo = next(iter(scene.silos.values()))
    study = tiny_study(name="polled", silos=[*scene.silos])
    author, request = people["author"].operator, signed_by(people["author"], study)
    assert {one.verdict for one in author.PollStudy(request).answers} == {""}
    asked = silo.silo.NextPoll(silo_pb2.NextPollRequest())
    assert asked.canonical == study.canonical()
    assert asked.author == request.author
    with refused(Code.INVALID_ARGUMENT, "poll.verdict: is none of allowed, person, refused, silent"):
        silo.silo.AnswerPoll(silo_pb2.AnswerPollRequest(study=study.digest, verdict="epsilon 3.1 of 4 is spent"))
    silo.silo.AnswerPoll(silo_pb2.AnswerPollRequest(study=study.digest, verdict="person"))
    assert not silo.silo.NextPoll(silo_pb2.NextPollRequest()).canonical
    answers = {one.silo: one.verdict for one in author.PollStudy(request).answers}
    assert answers == {name: "person" if name == silo.name else "" for name in scene.silos}
    with refused(Code.NOT_FOUND, "0 studies match"):
        author.GetStudyStatus(operator_pb2.StudyRequest(study="polled"))
    with refused(Code.PERMISSION_DENIED, "no author has signed"):
        author.PollStudy(operator_pb2.CreateStudyRequest(canonical=study.canonical()))
    for role in ("viewer", "approver"):
        with refused(Code.PERMISSION_DENIED, ""):
            people[role].operator.PollStudy(request)
    entries = [
        one for part in people["viewer"].operator.GetAuditLog(operator_pb2.GetAuditLogRequest()) for one in part.entries
    ]
    assert [one.outcome for one in entries if one.action == "poll" and one.study == study.digest] == ["done", "refused"]
    author.CreateStudy(request)


def test_while_it_drains_a_round_ends_and_no_other_begins(people, scene):
    """The offer that is open waits, and no time passes for it; what has begun goes on, and silos of others wait."""
    calls = people["operator"].operator

    def drain(*, undo=False):
        reply = calls.Drain(operator_pb2.DrainRequest(undo=undo, reason="a new disk"), timeout=60)
        return list(reply.within)

    status = scene.play(lambda one: one.phase == "deal")
    try:
        assert drain() == [scene.study.digest]
        status = scene.play(lambda one: one.round > status.round)
        assert (status.phase, drain()) == ("offer", [])
        for _ in range(2):
            scene._jump()  # every limit would have passed
            assert [silo.poll().task for silo in scene.silos.values()] == [Task.WAIT] * 3
        again = scene.status()
        there = (again.state, again.phase, again.round, again.attempt)
        assert there == ("running", "offer", status.round, status.attempt)
        assert "an operator drains the coordinator" in again.why
        for role, said in (("author", "may not"), ("viewer", "may not"), ("approver", "is needed")):
            with refused(Code.PERMISSION_DENIED, said):
                people[role].operator.Drain(operator_pb2.DrainRequest(), timeout=60)
        assert drain() == [], "who may not undo it has not"
    finally:
        drain(undo=True)
    assert scene.play(lambda one: one.state == "finished").state == "finished"
    parts = calls.GetAuditLog(operator_pb2.GetAuditLogRequest(first=0), timeout=60)
    noted = [one for part in parts for one in part.entries if one.action in {"drain", "undo-drain"}]
    mine = [(one.action, one.outcome, one.reason) for one in noted if one.outcome == "done"]
    assert mine == [("drain", "done", "a new disk"), ("undo-drain", "done", "a new disk")], "again is no new action"
    assert [one.who for one in noted if one.outcome == "refused"] == ["fedward://author/pat", "fedward://viewer/pat"]
