from dataclasses import FrozenInstanceError

import pytest

from protos.checkpoints import MAX_CHECKPOINT, Cosigned, CosignedCheckpoint, SignedCheckpoint
from protos.messages import MAX_MESSAGE, MessageError

SOUND = {"checkpoint": b"s", "certificate_pem": b"c", "signature": b"x"}


@pytest.mark.parametrize(
    ("field", "most"), [("checkpoint", MAX_CHECKPOINT), ("certificate_pem", 16_384), ("signature", 256)]
)
def test_every_field_has_its_size(field, most):
    assert getattr(SignedCheckpoint(**{**SOUND, field: b"x" * most}), field) == b"x" * most
    for wrong in (b"", b"x" * (most + 1)):
        with pytest.raises(MessageError, match=f"checkpoint.{field}: is empty or above {most} bytes"):
            SignedCheckpoint(**{**SOUND, field: wrong})


@pytest.mark.parametrize(("field", "most"), [("certificate_pem", 16_384), ("signature", 256)])
def test_a_cosignature_has_its_sizes_too(field, most):
    other = {"stated": SignedCheckpoint(**SOUND), "certificate_pem": b"d", "signature": b"y"}
    assert getattr(CosignedCheckpoint(**{**other, field: b"x" * most}), field) == b"x" * most
    for wrong in (b"", b"x" * (most + 1)):
        with pytest.raises(MessageError, match=f"cosignature.{field}: is empty or above {most} bytes"):
            CosignedCheckpoint(**{**other, field: wrong})


def test_the_largest_answer_fits_a_message():
    assert 2 * (MAX_CHECKPOINT + 2 * (16_384 + 256)) < MAX_MESSAGE


def test_nobody_changes_what_was_signed():
    signed = SignedCheckpoint(**SOUND)
    with pytest.raises(FrozenInstanceError):
        signed.checkpoint = b"t"
    assert Cosigned(CosignedCheckpoint(signed, b"d", b"y")).peer is None
