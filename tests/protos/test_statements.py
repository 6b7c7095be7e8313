from dataclasses import FrozenInstanceError

import pytest

from protos.messages import MAX_MESSAGE, MessageError
from protos.statements import MAX_STATEMENT, Countersigned, CountersignedStatement, SignedStatement

SOUND = {"statement": b"s", "certificate_pem": b"c", "signature": b"x"}


@pytest.mark.parametrize(
    ("field", "most"), [("statement", MAX_STATEMENT), ("certificate_pem", 16_384), ("signature", 256)]
)
def test_every_field_has_its_size(field, most):
    assert getattr(SignedStatement(**{**SOUND, field: b"x" * most}), field) == b"x" * most
    for wrong in (b"", b"x" * (most + 1)):
        with pytest.raises(MessageError, match=f"statement.{field}: is empty or above {most} bytes"):
            SignedStatement(**{**SOUND, field: wrong})


@pytest.mark.parametrize(("field", "most"), [("certificate_pem", 16_384), ("signature", 256)])
def test_a_countersignature_has_its_sizes_too(field, most):
    other = {"stated": SignedStatement(**SOUND), "certificate_pem": b"d", "signature": b"y"}
    assert getattr(CountersignedStatement(**{**other, field: b"x" * most}), field) == b"x" * most
    for wrong in (b"", b"x" * (most + 1)):
        with pytest.raises(MessageError, match=f"countersignature.{field}: is empty or above {most} bytes"):
            CountersignedStatement(**{**other, field: wrong})


def test_the_largest_answer_fits_a_message():
    assert 2 * (MAX_STATEMENT + 2 * (16_384 + 256)) < MAX_MESSAGE


def test_nobody_changes_what_was_signed():
    signed = SignedStatement(**SOUND)
    with pytest.raises(FrozenInstanceError):
        signed.statement = b"t"
    assert Countersigned(CountersignedStatement(signed, b"d", b"y")).peer is None
