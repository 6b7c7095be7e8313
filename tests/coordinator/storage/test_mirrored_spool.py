"""A spool at a URL: what was acknowledged lies there, and a machine that takes over has it, to the byte."""

from __future__ import annotations

import pytest

from coordinator.config import CoordinatorConfig
from coordinator.metrics import CoordinatorMetrics
from coordinator.relay.intake import Intake
from coordinator.spools import spool_of, spool_word
from coordinator.storage.mirrored_spool import MirroredSpool, SpoolAwayError, SpoolObjects
from coordinator.storage.shortage import shortage_of
from coordinator.storage.spool import SUM_FILE, Spool, SpoolError, SpoolFullError
from coordinator.storage.words import WordDamagedError
from protos import chunks
from protos.messages import Place, Tensor, UploadHeader
from support.contents import digest_of, listed, pieces
from support.databases import store_in
from support.silos import sealed
from support.spools import KINDS, s3, spools

PLACE, OTHER = Place("5" * 64, 1, 1), Place("6" * 64, 2, 1)
CONTENT = sealed("ckks", 9)
SIZE = 1000
"""Of a chunk here: the content has 28."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "MAX_CHUNK", SIZE)


@pytest.fixture(params=KINDS)
def machine(request, tmp_path, monkeypatch):
    """Opens the spool under an epoch, at another machine each time."""
    with spools(request.param, tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture
def objects(tmp_path):
    (tmp_path / "objects").mkdir()
    return SpoolObjects(f"file://{tmp_path}/objects")


@pytest.fixture
def store(tmp_path):
    made = store_in(tmp_path)
    yield made
    made.engine.dispose()


def header(content=CONTENT, silo="north"):
    return UploadHeader(PLACE, "ckks", Tensor.HEADS, silo, 9, len(content), digest_of(content))


def send(intake, head, content, most):
    """Send so many chunks at most, from where the receiver says. Return the bytes that were sent."""
    begin = intake.begin(head, listed(content))
    sent = 0
    for number, piece in enumerate(pieces(content[begin:])):
        if number == most:
            break
        intake.take(head, listed(content), begin + sent, piece)
        sent += len(piece)
    return sent


# --- a takeover -------------------------------------------------------------------------------------------------------
def test_over_a_takeover_nothing_is_sent_again(machine, store):
    first = Intake(store, machine(1), CoordinatorMetrics())
    whole, half = header(silo="north"), header(silo="south")
    sent = send(first, whole, CONTENT, 1000)
    first.settle(whole, b"signature")
    sent += send(first, half, CONTENT, 11)
    second = Intake(store, machine(2), CoordinatorMetrics())
    assert second.offset(whole) == len(CONTENT)
    assert second.offset(half) == 11 * SIZE
    assert second.begin(whole, listed(CONTENT)) == len(CONTENT)
    sent += send(second, half, CONTENT, 1000)
    second.settle(half, b"signature")
    assert sent == 2 * len(CONTENT), "every byte came once"
    third = machine(3)
    for silo in ("north", "south"):
        assert third.complete(PLACE, "heads", silo).read_bytes() == CONTENT
        assert third.chunk_list(third.chunks(PLACE, "heads", silo)) == listed(CONTENT)
    assert not third.partial(PLACE, "heads", "south").exists()


def test_a_sum_and_what_was_cleared_are_known_after_a_takeover(machine):
    one = machine(1)
    for place in (PLACE, OTHER):
        target = one.partial(place, "heads", SUM_FILE)
        one.append(target, 0, b"sum")
        one.publish(target, one.complete(place, "heads", SUM_FILE))
    one.clear(OTHER)
    two = machine(2)
    assert two.complete(PLACE, "heads", SUM_FILE).read_bytes() == b"sum"
    assert not two.complete(OTHER, "heads", SUM_FILE).exists()
    two.sweep([])
    assert not machine(3).complete(PLACE, "heads", SUM_FILE).exists()


def test_what_was_cut_or_discarded_does_not_come_back(machine):
    one = machine(1)
    path = one.partial(PLACE, "heads", "north")
    for number in range(3):
        one.append(path, number * SIZE, bytes([number]) * SIZE)
    one.cut(path, 2 * SIZE)
    other = one.partial(PLACE, "heads", "south")
    one.append(other, 0, b"x")
    one.discard(other)
    two = machine(2)
    assert two.length(two.partial(PLACE, "heads", "north")) == 2 * SIZE
    assert not two.partial(PLACE, "heads", "south").exists()


def test_who_was_left_behind_changes_nothing(machine):
    former = machine(1)
    path = former.partial(PLACE, "heads", "north")
    former.append(path, 0, b"a" * SIZE)
    active = machine(2)
    try:
        former.append(path, SIZE, b"b" * SIZE)
        former.clear(PLACE)
        former.sweep([])
    except (OSError, ValueError):
        pass  # its folder is another's by now
    assert active.length(active.partial(PLACE, "heads", "north")) == SIZE
    active.append(active.partial(PLACE, "heads", "north"), SIZE, b"c" * SIZE)
    latest = machine(3)
    content = latest.partial(PLACE, "heads", "north").read_bytes()
    assert content == b"a" * SIZE + b"c" * SIZE


def test_an_older_epoch_is_refused(machine):
    machine(5)
    with pytest.raises(SpoolError, match=r"was used under epoch 5, and the lease .*has 4"):
        machine(4)


# --- the URL ----------------------------------------------------------------------------------------------------------
def test_a_chunk_lies_at_the_url_before_it_is_acknowledged(tmp_path, objects, monkeypatch):
    spool = MirroredSpool(tmp_path / "here", 1, objects)
    path = spool.partial(PLACE, "heads", "north")
    spool.append(path, 0, b"a" * SIZE)
    assert objects.get(f"1/{PLACE.study}/1-1/heads/north.partial/{0:015d}") == b"a" * SIZE
    spool.keep_chunk_list(spool.chunks(PLACE, "heads", "north"), listed(CONTENT))
    assert objects.get(f"1/{PLACE.study}/1-1/heads/north.chunks") == listed(CONTENT).to_bytes()
    spool.publish(path, spool.complete(PLACE, "heads", "north"))
    files = {f"1/{PLACE.study}/1-1/heads/north.{end}" for end in ("chunks", "sealed")}
    assert set(objects.names()) == files | {"1/epoch"}


def test_a_url_that_is_away_is_a_shortage_of_the_machine_and_loses_nothing(tmp_path, objects, monkeypatch):
    spool = MirroredSpool(tmp_path / "here", 1, objects)
    path = spool.partial(PLACE, "heads", "north")
    spool.append(path, 0, b"a" * SIZE)

    def away(*_given, **_named):
        msg = "no route"
        raise ConnectionError(msg)

    with monkeypatch.context() as patched:
        for name in ("pipe_file", "put_file", "find", "rm_file"):
            patched.setattr(type(objects._system), name, away)
        for act in (
            lambda: spool.append(path, SIZE, b"b" * SIZE),
            lambda: spool.publish(path, spool.complete(PLACE, "heads", "north")),
            spool.probe,
        ):
            with pytest.raises(SpoolFullError) as refused:
                act()
            assert "ConnectionError: no route" in shortage_of(refused.value).told
        spool.clear(OTHER)  # what is left is deleted at the next start
    assert not spool.complete(PLACE, "heads", "north").exists()
    again = MirroredSpool(tmp_path / "there", 2, objects)
    assert again.partial(PLACE, "heads", "north").read_bytes() == b"a" * SIZE
    spool.probe()


def test_parts_that_do_not_follow_each_other_are_not_taken(tmp_path, objects):
    spool = MirroredSpool(tmp_path / "here", 1, objects)
    path = spool.partial(PLACE, "heads", "north")
    for number in range(3):
        spool.append(path, number * SIZE, b"a" * SIZE)
    objects.remove([f"1/{PLACE.study}/1-1/heads/north.partial/{SIZE:015d}"])
    again = MirroredSpool(tmp_path / "there", 2, objects)
    assert again.length(again.partial(PLACE, "heads", "north")) == SIZE


def test_what_lies_on_the_machine_from_before_is_not_taken(tmp_path, objects):
    stale = Spool(tmp_path / "here", 9)
    stale.append(stale.partial(PLACE, "heads", "north"), 0, b"stale")
    (tmp_path / "here" / "of-somebody-else").mkdir()
    spool = MirroredSpool(tmp_path / "here", 1, objects)
    assert not spool.partial(PLACE, "heads", "north").exists()
    assert {one.name for one in (tmp_path / "here").iterdir()} == {"1", "of-somebody-else"}


def test_a_url_that_nothing_opens_is_refused_with_the_fix():
    for url in ("nothing-of-this-kind://here/there", "gs://bucket/x"):
        with pytest.raises((SpoolError, SpoolAwayError), match=r"install the extra `objects`|cannot be used"):
            SpoolObjects(url).names()


def test_at_a_start_the_operator_reads_which_url_is_away(tmp_path, monkeypatch):
    files = {name: tmp_path / f"{name}.pem" for name in ("certificate", "key", "authority")}
    config = CoordinatorConfig(port=0, metrics_port=0, data=tmp_path, spool_url=f"file://{tmp_path}/objects", **files)

    def away(*_given, **_named):
        msg = "no route"
        raise ConnectionError(msg)

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.find", away)
    for opened in (spool_word, lambda one: spool_of(one, 1)):
        with pytest.raises(SpoolError, match=r"spool_url file:.* cannot be used \(ConnectionError: no route\); check"):
            opened(config)
    with pytest.raises(ValueError, match="leave one of them out"):
        CoordinatorConfig(port=0, metrics_port=0, data=tmp_path, spool=tmp_path, spool_url="s3://a/b", **files)


def test_the_database_knows_the_spool_by_a_word_at_the_url(objects):
    word = objects.word()
    assert (len(word), objects.word(), SpoolObjects(objects.url).word()) == (32, word, word)
    objects.put("spool.id", b"nothing")
    with pytest.raises(WordDamagedError, match=r"spool\.id is damaged"):
        objects.word()


def test_a_configuration_with_a_url_opens_the_same_spool_from_two_machines(tmp_path, monkeypatch):
    files = {name: tmp_path / f"{name}.pem" for name in ("certificate", "key", "authority")}
    with s3(monkeypatch) as url:
        made = [
            CoordinatorConfig(port=0, metrics_port=0, data=tmp_path / name, spool_url=url, **files)
            for name in ("one", "two")
        ]
        assert spool_word(made[0]) == spool_word(made[1])
        first = spool_of(made[0], 1)
        first.append(first.partial(PLACE, "heads", "north"), 0, b"abc")
        second = spool_of(made[1], 2)
        assert second.partial(PLACE, "heads", "north").read_bytes() == b"abc"
    alone = CoordinatorConfig(port=0, metrics_port=0, data=tmp_path / "alone", **files)
    alone.data.mkdir()
    alone.spool_folder.mkdir()
    assert type(spool_of(alone, 1)) is Spool
    assert spool_word(alone) == (alone.spool_folder / "spool.id").read_text()
