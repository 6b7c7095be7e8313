import re

import pytest

from common.names import PATTERN, is_name


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("ward-3", True),
        ("0", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("", False),
        ("-a", False),
        ("a-", False),
        ("A", False),
        ("a.b", False),
        ("a_b", False),
        ("\u00e9", False),
        ("a\n", False),
    ],
)
def test_a_name_is_one_label_of_a_host_name(text, holds):
    assert is_name(text) is holds
    assert (re.fullmatch(PATTERN, text) is not None) is holds
