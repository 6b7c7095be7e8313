"""The coordinator and one silo together, with the CKKS key and all that either ever saw, against another silo's upload.

One of five silos drops out when its upload of the encoder is on the way. The attack succeeds where the streams that the
attacker cannot know are missing, which is so in these tests alone, and finds nothing where they are not.
"""

import numpy as np
import pytest

from coordinator.core.state import ADDED
from crypto.errors import OpeningRefused, SealError
from crypto.rings.ckks_public import DEGREE, FRAME_VALUES, MAX_VALUE, RESIDUES, add_residues, pack
from crypto.rings.ckks_secret import CkksKey
from crypto.secagg.survivors import threshold
from policies.plan.release import plan
from policies.plan.release import plan as plan_of
from protos.messages import Tensor
from protos.steps import Task
from support.contents import read_frames
from support.memory import WINDOW, encodings, search
from support.simulated_attacker import Attacker, WeakMasks, polynomial, raw_slots, session_of, solved_key
from support.simulated_federation import NAMES, SimulatedFederation, simulated_study
from support.simulated_witness import plain

pytestmark = pytest.mark.sampled
SILOS = NAMES[:5]
VICTIM, COLLUDER, DROPPED = "alder", "birch", "fir"
HONEST = frozenset({VICTIM, "cedar", "elm", DROPPED})
VALUES = 200_000
SEALINGS = ("ckks", "ring32", "ring64")
DOMAINS = {"column": "group", "values": list("abcdefgh"), "names": list("abcdefgh")}
"""So many that the counts are a pattern to search for."""
LARGE = {
    "data": {"label": {"positive": [], "negative": [], "classes": [[0], [1], [2]]}},
    "model": {"hidden": [950], "representation": 210},
}
"""Heads and encoder have so many values."""


def round_with_a_dropout(federation):
    """Rounds 0 and 1; in round 1 the encoder of one silo arrives after its shares were asked for."""
    coordinator, silos = federation.coordinator, federation.silos
    federation.run(0)
    while federation.running and coordinator.round.place.round == 1:
        for name, silo in silos.items():
            asked = coordinator.work(name)
            late = name == DROPPED and asked and (asked.task, asked.tensor) == (Task.CONTRIBUTE, Tensor.ENCODER)
            if silo.up:
                silo.step("late" if late else "arrives")
        coordinator.add()
        if federation.idle:
            coordinator.pass_deadline()
        if coordinator.round.phase in ADDED:
            silos[DROPPED].deliver_late()


@pytest.fixture(scope="module", params=SEALINGS)
def federation(request, quick_folders, credentials):
    study = simulated_study(SILOS, 4, request.param, **LARGE)
    assert threshold(len(SILOS), study.privacy.colluders, study.min_silos) == 4
    with SimulatedFederation(quick_folders(), study, credentials) as made:
        round_with_a_dropout(made)
        yield made


@pytest.fixture(scope="module")
def attacker(federation):
    return Attacker(federation, COLLUDER)


def correlation(attacker, silo, tensor, content):
    truth = plain(attacker.study, silo, 1, tensor)
    assert truth.size >= VALUES
    return abs(np.corrcoef(attacker.uncovered(silo, tensor, content), truth)[0, 1])


def resealed(federation, attacker, silo, tensor, zero):
    """What the silo would have sent, had the streams with these silos been zero."""
    work, session = attacker.work(tensor), session_of(federation, silo)
    masks = session.within(work.roster).masks(work.place, tensor, work.participants)
    weak = WeakMasks(masks.me, masks.own, masks.pairs, masks.group, frozenset(zero))
    sealer = session.within(work.roster).sealer(federation.study.silos)
    kind, values = plan_of(federation.study).ring(tensor), plain(federation.study, silo, 1, tensor)
    return b"".join(sealer.seal(kind, values, federation.witness.labels[work.place, tensor], weak))


def unknown_to(attacker, silo, tensor):
    """With whom the silo has streams that the attacker cannot know: its own, if nobody may reveal that any more."""
    return {silo} if silo == DROPPED else HONEST.intersection(attacker.work(tensor).survivors) - {silo}


UPLOADS = [(VICTIM, Tensor.HEADS), (VICTIM, Tensor.ENCODER), (DROPPED, Tensor.ENCODER)]


@pytest.mark.parametrize(("silo", "tensor"), UPLOADS)
def test_an_upload_stays_noise(federation, attacker, silo, tensor):
    assert (DROPPED in attacker.work(tensor).survivors) == (tensor is Tensor.HEADS)
    upload = attacker.upload(silo, tensor)
    assert correlation(attacker, silo, tensor, upload) < 0.02
    if plan(federation.study).ring(tensor) != "ckks":
        assert upload == resealed(federation, attacker, silo, tensor, ()), "what the next test changes is this upload"


@pytest.mark.parametrize(("silo", "tensor"), UPLOADS)
def test_the_same_attack_succeeds_where_the_unknown_streams_are_missing(federation, attacker, silo, tensor):
    upload = resealed(federation, attacker, silo, tensor, unknown_to(attacker, silo, tensor))
    assert correlation(attacker, silo, tensor, upload) > 0.9


def test_the_stream_with_one_honest_silo_is_enough(federation, attacker):
    zero = unknown_to(attacker, VICTIM, Tensor.ENCODER) - {"elm"}
    assert zero == {"cedar"}
    upload = resealed(federation, attacker, VICTIM, Tensor.ENCODER, zero)
    assert correlation(attacker, VICTIM, Tensor.ENCODER, upload) < 0.02


def test_what_is_revealed_leaves_those_streams_unknown(federation, attacker):
    work, own, keys = attacker.work(Tensor.ENCODER), set(), set()
    for name in work.participants:
        revealed = federation.witness.revealed[work.place, Tensor.ENCODER, name]
        if revealed.own:
            own.add(name)
        if revealed.key:
            keys.add(name)
    assert own == set(work.survivors) == set(SILOS) - {DROPPED}
    assert keys == {DROPPED}


# --- the key of CKKS from what is decrypted ------------------------------------------------------------------------
def ciphertext_sum(key, vectors):
    total = np.zeros(RESIDUES, np.uint64)
    for vector in vectors:
        add_residues(total, key.encrypt(vector))
    return total


def vectors_of_five():
    generator = np.random.default_rng(7)
    return generator.integers(-MAX_VALUE, MAX_VALUE, (5, FRAME_VALUES), endpoint=True)


def opens_nothing(candidate, key):
    """Whether a key decrypts no ciphertext of another; what cannot be read as one does not either."""
    values = np.arange(9)
    try:
        return not np.array_equal(CkksKey.from_bytes(candidate).decrypt(key.encrypt(values), 9), values)
    except (OpeningRefused, SealError):
        return True


def test_a_sum_that_were_published_as_it_is_decrypted_would_give_the_key():
    key, vectors = CkksKey.create(), vectors_of_five()
    total = ciphertext_sum(key, vectors)
    published = raw_slots(key, total)
    stranger = CkksKey.create()
    assert opens_nothing(stranger.to_bytes(), key)
    found = solved_key(total, polynomial(stranger, published))
    assert found == key.to_bytes()
    assert np.array_equal(CkksKey.from_bytes(found).decrypt(key.encrypt(vectors[0]), FRAME_VALUES), vectors[0])


def test_a_sum_that_is_rounded_to_integers_does_not_give_it():
    key, vectors = CkksKey.create(), vectors_of_five()
    total = ciphertext_sum(key, vectors)
    rounded = key.decrypt(total, FRAME_VALUES)
    assert np.array_equal(rounded, vectors.sum(axis=0))
    found = solved_key(total, polynomial(key, rounded.astype(np.float64)))
    assert found != key.to_bytes()
    assert opens_nothing(found, key)


@pytest.fixture(scope="module", params=SEALINGS)
def finished(request, quick_folders, credentials):
    """A whole study with the dropout, who returns, and what the attacker had after round 1."""
    study = simulated_study(SILOS, 4, request.param, data={"domain": [DOMAINS]})
    with SimulatedFederation(quick_folders(), study, credentials) as made:
        round_with_a_dropout(made)
        attacker = Attacker(made, COLLUDER)
        made.silos[DROPPED].restart()
        made.run(plan(study).last)
        assert not made.running
        assert len(made.witness.opened) == 5
        yield made, attacker


def patterns_of(integers):
    """A sum and its mean, in every encoding that they could leave in: windows of their beginning and their end."""
    found = {}
    for part in (integers, integers[-2 * WINDOW :]):
        for step in (1.0, 1.0 / len(SILOS), 1.0 / (len(SILOS) - 1), 2.0**-16, 2.0**-30):
            for name, windows in encodings(part, step).items():
                found.setdefault(name, []).extend(windows)
    return found


def test_no_sum_leaves_a_silo_once_it_is_opened(finished):
    federation, _ = finished
    said = b"\0".join(federation.witness.said)
    for sums in federation.witness.opened.values():
        for values in sums.values():
            patterns = patterns_of(np.frombuffer(values, np.int64))
            assert search(said, patterns) == set()
            assert search(said + values, patterns) == {"int64"}, "it would be found"


def ciphertext_tensors(federation):
    return [tensor for tensor in (Tensor.HEADS, Tensor.ENCODER) if plan(federation.study).ring(tensor) == "ckks"]


def test_what_leaves_the_silos_does_not_give_the_key(finished):
    federation, attacker = finished
    said = b"\0".join(federation.witness.said)
    for tensor in ciphertext_tensors(federation):
        (masked,), (bare,) = attacker.masked_sum(tensor), attacker.bare_sum(tensor)
        decrypted = raw_slots(attacker.ckks, bare)
        exact, rounded = (polynomial(attacker.ckks, slots) for slots in (decrypted, np.rint(decrypted)))
        assert solved_key(bare, exact) == attacker.keys.ckks, "this is what would give it"
        words = np.array(exact, np.uint64)
        leaks = {"slots": decrypted, "words": words, "big-endian words": words.astype(">u8")}
        patterns = {name: [leak[:WINDOW].tobytes(), leak[-WINDOW:].tobytes()] for name, leak in leaks.items()}
        patterns["packed words"] = [pack(words[:WINDOW]), pack(words[-WINDOW:])]
        assert search(said, patterns) == set()
        # Even with the integers, even with both, the masks or the rounding stay; another upload is no plaintext either.
        uploads = [read_frames("ckks", attacker.upload(silo, tensor))[0] for silo in SILOS]
        solved = [solved_key(masked, exact), solved_key(masked, rounded), solved_key(bare, rounded)]
        solved += [solved_key(masked, upload[:DEGREE].tolist()) for upload in uploads]
        for candidate in solved:
            assert candidate != attacker.keys.ckks
            assert opens_nothing(candidate, attacker.ckks)
