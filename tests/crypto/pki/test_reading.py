"""What keys and signatures count at all."""

from unittest.mock import Mock

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from crypto.pki.reading import is_issued, is_p256, parse_certificate


@pytest.mark.parametrize(
    ("key", "counts"),
    [
        (ec.generate_private_key(ec.SECP256R1()).public_key(), True),
        (ec.generate_private_key(ec.SECP256K1()).public_key(), False),
        (ec.generate_private_key(ec.SECP384R1()).public_key(), False),
        (rsa.generate_private_key(65537, 2048).public_key(), False),
        (ed25519.Ed25519PrivateKey.generate().public_key(), False),
        (ec.generate_private_key(ec.SECP256R1()), False),
        (None, False),
    ],
)
def test_only_public_keys_of_ecdsa_p_256_count(key, counts):
    assert is_p256(key) is counts


def test_a_certificate_is_issued_by_whose_key_signed_it_and_nothing_that_cannot_be_checked_is(silos, authority_folder):
    root = parse_certificate((authority_folder / "authority.pem").read_bytes())
    leaf = parse_certificate(silos["north"].certificate_pem)
    assert is_issued(leaf, root)
    assert is_issued(root, root)
    assert not is_issued(root, leaf)
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    for fault in (UnsupportedAlgorithm("unknown"), ValueError("the names differ"), TypeError("a key of another kind")):
        for failing in ("verify_directly_issued_by", "public_key"):
            certificate = Mock(signature_hash_algorithm=hashes.SHA256(), **{"public_key.return_value": key})
            assert is_issued(certificate, root)
            getattr(certificate, failing).side_effect = fault
            assert not is_issued(certificate, root)
