import re

import pytest

from policies import decision
from policies.errors import PolicyError
from policies.refusals import Reason, Refused


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_a_label(reason):
    assert re.fullmatch("[a-z]+(_[a-z]+)*", reason)


def test_a_refusal_is_one_sentence_with_its_reason_in_front():
    refusal = Refused(Reason.BATCH_NORM, "the layer mixes records; use GroupNorm")
    assert isinstance(refusal, PolicyError)
    assert (refusal.reason, refusal.text) == ("batch_norm", "the layer mixes records; use GroupNorm")
    assert str(refusal) == "batch_norm: the layer mixes records; use GroupNorm"


def test_one_refusal_stands_for_all_reasons_with_their_labels_in_front():
    clip, delta, again = (Reason.CLIP, "clip less"), (Reason.DELTA, "a smaller delta"), (Reason.CLIP, "and here")
    alone = Refused.of([clip])
    assert (alone.reason, alone.text, alone.reasons) == (Reason.CLIP, "clip less", (clip,))
    assert str(alone) == "clip: clip less"
    several = Refused.of([clip, delta, again])
    assert (several.reason, several.reasons) == (Reason.CLIP, (clip, delta, again))
    assert several.text == "3 reasons (clip, delta): (1) clip less. (2) a smaller delta. (3) and here."
    assert str(several) == f"clip: {several.text}"


def test_what_decides_refuses_by_the_same_type():
    assert (decision.Reason, decision.Refused) == (Reason, Refused)
