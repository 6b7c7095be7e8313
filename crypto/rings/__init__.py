"""Three ways to add numbers without reading them: CKKS ciphertexts, integers mod 2^32 and mod 2^64, and their grid.

`rings` and `ckks_public` are all that a coordinator imports. `ckks_secret` holds the key that opens, and `seal_format`
its sealed form.
"""

__all__ = ["ckks_public", "ckks_secret", "grid", "rings"]
