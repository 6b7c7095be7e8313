import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.entropy import SystemEntropy
from crypto.errors import SealError
from crypto.pki.at_rest import FormerKey, Vault
from crypto.pki.identity import Identity, Role
from support.entropy import SeededEntropy

NORTH = Identity(Role.SILO, "north")


@pytest.fixture
def vault(silos):
    return Vault(silos["north"], "keys", SystemEntropy())


def test_what_is_sealed_opens_for_the_same_party_and_purpose_alone(silos, vault):
    blob = vault.seal(b"secret keys")
    assert b"secret" not in blob
    assert Vault(silos["north"], "keys", SystemEntropy()).open(blob) == b"secret keys"
    for other in (Vault(silos["south"], "keys", SystemEntropy()), Vault(silos["north"], "session", SystemEntropy())):
        with pytest.raises(SealError):
            other.open(blob)


def test_no_two_seals_are_alike(vault):
    assert vault.seal(b"same") != vault.seal(b"same")


def test_the_nonce_comes_from_the_entropy_given(silos):
    blobs = {Vault(silos["north"], "keys", SeededEntropy(1)).seal(b"same") for _ in range(2)}
    assert len(blobs) == 1


@settings(max_examples=200)
@given(st.data())
def test_any_change_is_noticed(silos, data):
    vault = Vault(silos["north"], "keys", SystemEntropy())
    blob = vault.seal(b"a secret of some length")
    place = data.draw(st.integers(0, len(blob) - 1))
    changed = {
        "flip": blob[:place] + bytes([blob[place] ^ (1 << data.draw(st.integers(0, 7)))]) + blob[place + 1 :],
        "cut": blob[:place],
        "grown": blob + b"\0",
    }[data.draw(st.sampled_from(["flip", "cut", "grown"]))]
    with pytest.raises(SealError):
        vault.open(changed)


def test_neither_a_vault_nor_a_former_key_prints_its_key(vault):
    assert repr(vault) == "Vault(secret)"
    assert repr(FormerKey(NORTH, b"the key")) == f"FormerKey(identity={NORTH!r})"
