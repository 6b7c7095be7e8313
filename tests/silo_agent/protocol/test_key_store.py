import json

import pytest

from crypto.secagg.agreement import EphemeralKey
from silo_agent.protocol.key_store import KeyStore, Met, RosterKeys, Shared
from support.sessions import PLACE, STUDY

MET = Met("roster", b"greeting", b"secrets")
DEALT = RosterKeys("roster", b"ckks", b"group", b"check", PLACE, b"package")
SHARED = Shared("roster", PLACE, b"secrets", b"bundle")


@pytest.fixture
def store(credentials):
    kept = []
    store = KeyStore(EphemeralKey.create(credentials["north"], STUDY), kept.append)
    store.greeted(MET)
    store.met(MET)
    store.dealt(DEALT)
    store.shared(SHARED)
    assert (store.stored.met, store.stored.dealt, store.stored.shared) == (MET, DEALT, SHARED)
    return store, kept


def test_a_fresh_key_is_kept_at_once_and_a_stored_one_is_not_kept_again(credentials):
    kept = []
    key = EphemeralKey.create(credentials["north"], STUDY)
    store = KeyStore(key, kept.append)
    assert [json.loads(plain)["met"] for plain in kept] == [None]
    assert KeyStore(key, kept.append, store.stored).stored == store.stored
    assert len(kept) == 1


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda store: store.greeted(MET), (MET, None, None)),
        (lambda store: store.met(MET), (MET, DEALT, SHARED)),
        (lambda store: store.dealt(DEALT), (MET, DEALT, None)),
        (lambda store: store.shared(None), (MET, DEALT, None)),
    ],
    ids=["greeted", "met", "dealt", "forgotten"],
)
def test_each_step_erases_what_came_after_it(store, change, left):
    store, _ = store
    change(store)
    assert (store.stored.met, store.stored.dealt, store.stored.shared) == left


def test_what_cannot_be_kept_is_not_used(credentials):
    full = [False]

    def keep(_plain):
        if full[0]:
            raise OSError(28, "No space left on device")

    store = KeyStore(EphemeralKey.create(credentials["north"], STUDY), keep)
    full[0] = True
    with pytest.raises(OSError, match="No space"):
        store.greeted(MET)
    assert store.stored.met is None


def test_secrets_are_not_printed(store):
    store, _ = store
    assert repr(store) == "KeyStore(secret)"
    assert "secrets" not in repr((store.stored, store.stored.met, store.stored.shared))
