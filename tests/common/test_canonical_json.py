import math

import pytest

from common.canonical_json import canonical_json


def test_the_same_content_has_one_text():
    assert canonical_json({"b": [1, 0.1], "a": {"d": None, "c": "é"}}) == ('{"a":{"c":"\\u00e9","d":null},"b":[1,0.1]}')


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_what_json_has_no_number_for_is_refused(number):
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"a": number})
