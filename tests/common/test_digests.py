import pytest

from common.digests import is_sha256


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("0a" * 32, True),
        ("0A" * 32, False),
        ("0" * 63, False),
        ("0" * 65, False),
        ("0" * 64 + "\n", False),
        (b"0a" * 32, False),
        (None, False),
        ("g0" * 32, False),
    ],
)
def test_a_sha256_is_64_lowercase_digits(text, holds):
    assert is_sha256(text) is holds
