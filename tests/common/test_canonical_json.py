import math

import pytest

from common.canonical_json import canonical_json, lower_hex


def test_the_same_content_has_one_text():
    assert canonical_json({"b": [1, 0.1], "a": {"d": None, "c": "é"}}) == ('{"a":{"c":"\\u00e9","d":null},"b":[1,0.1]}')


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_what_json_has_no_number_for_is_refused(number):
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"a": number})


@pytest.mark.parametrize(
    ("text", "holds"), [("0a", True), ("0A", False), ("0", False), ("0aa", False), (b"0a", False), ("g0", False)]
)
def test_lower_hex(text, holds):
    assert lower_hex(text, 2) is holds
