"""The studies of a coordinator: which of them a word means, and what is known of each."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from coordinator.core import study as studies
from coordinator.core.round import WrongPhaseError
from coordinator.core.study import Life
from coordinator.engine import script_of
from coordinator.register.catalogue import StudyCatalogue, UnknownStudyError
from protos.messages import Place
from support.databases import store_in
from support.people import audit_entry
from support.studies import tiny_study

STUDY, AGAIN, OTHER = tiny_study(), tiny_study(revision=2), tiny_study(name="other", silos=["north", "south", "east"])


@pytest.fixture
def catalogue(tmp_path):
    store, made = store_in(tmp_path), {}
    for one, after in ((STUDY, ""), (AGAIN, STUDY.digest), (OTHER, "")):
        made[one.digest] = studies.create(script_of(one))
        store.create(one.canonical(), made[one.digest], audit_entry(study=one.digest, name=one.name), after=after)
    return StudyCatalogue(store, threading.RLock(), made)


def found(catalogue, word):
    return catalogue.find(word, lambda _: True).study


def test_a_study_is_named_by_its_name_or_by_twelve_digits_of_one_digest_alone(catalogue):
    digest = OTHER.digest
    for word in ("other", digest, digest[:12], digest[:13]):
        assert found(catalogue, word) == digest
    for word in ("", "othe", digest[:11], f"{digest}0"):
        with pytest.raises(UnknownStudyError, match=f"^0 studies match {word!r}; give the whole name, or at least 12"):
            found(catalogue, word)
    with pytest.raises(UnknownStudyError, match="0 studies match 'other'"):
        catalogue.find("other", lambda study: study != digest)
    assert found(catalogue, STUDY.name) == AGAIN.digest, "the newest of its revisions"


def test_a_word_that_fits_several_studies_means_none(catalogue):
    other, digest = catalogue.of(OTHER.digest), OTHER.digest
    twin = replace(other, script=replace(other.script, study=f"{digest[:20]}{'0' * 44}", name="twin"))
    catalogue.progress[twin.script.study] = twin
    with pytest.raises(UnknownStudyError, match=f"^2 studies match {digest[:20]!r}"):
        found(catalogue, digest[:20])
    assert found(catalogue, digest) == digest
    named = replace(twin, script=replace(twin.script, study="f" * 64, name=digest[:14]))
    catalogue.progress["f" * 64] = named
    with pytest.raises(UnknownStudyError, match=r"^3 studies match"):
        found(catalogue, digest[:14])


def test_a_name_has_its_revisions_in_order(catalogue):
    assert [(one.script.study, revision) for one, revision in catalogue.named(STUDY.name)] == [
        (STUDY.digest, 1),
        (AGAIN.digest, 2),
    ]
    assert catalogue.named("tin") == []


def test_what_runs_and_what_is_over_is_told_apart(catalogue):
    held = catalogue.progress
    held[STUDY.digest] = replace(held[STUDY.digest], life=Life.ABORTED)
    held[OTHER.digest] = replace(held[OTHER.digest], life=Life.RUNNING)
    assert catalogue.live() == [held[OTHER.digest]]
    assert catalogue.not_over() == [AGAIN, OTHER]
    assert catalogue.studies_of("north") == ([OTHER], [STUDY])
    assert catalogue.studies_of("east") == ([OTHER], [])
    assert catalogue.studies_of("nobody") == ([], [])


def test_a_document_is_read_once_and_forgotten_with_its_study(catalogue, monkeypatch):
    assert catalogue.document(OTHER.digest) == OTHER
    read = catalogue._store.canonical
    monkeypatch.setattr(catalogue._store, "canonical", lambda _: None)
    assert catalogue.document(OTHER.digest) == OTHER
    catalogue.forget(OTHER.digest)
    for known in (catalogue.document, catalogue.of):
        with pytest.raises(UnknownStudyError, match=OTHER.digest):
            known(OTHER.digest)
    monkeypatch.setattr(catalogue._store, "canonical", read)
    catalogue.add(OTHER, studies.create(script_of(OTHER)))
    assert catalogue.document(OTHER.digest) == OTHER
    assert json.loads(read(OTHER.digest))["name"] == catalogue.of(OTHER.digest).script.name


def test_only_the_current_attempt_of_a_study_under_way_is_a_round(catalogue):
    place = Place(OTHER.digest, 0, 1)
    with pytest.raises(WrongPhaseError, match=r"^round 0, attempt 1 is not the current one"):
        catalogue.round(place)
    started, _ = studies.start(catalogue.of(OTHER.digest), 1e9)
    catalogue.progress[OTHER.digest] = started
    assert catalogue.round(place) is started.round
    for other in (replace(place, attempt=2), replace(place, round=1)):
        with pytest.raises(WrongPhaseError, match=f"^round {other.round}, attempt {other.attempt} is not"):
            catalogue.round(other)
    with pytest.raises(UnknownStudyError):
        catalogue.round(replace(place, study="0" * 64))
    catalogue.progress[OTHER.digest] = replace(started, life=Life.PAUSED)
    assert catalogue.round(place) is started.round
    catalogue.progress[OTHER.digest] = replace(started, life=Life.ABORTED)
    with pytest.raises(WrongPhaseError):
        catalogue.round(place)
