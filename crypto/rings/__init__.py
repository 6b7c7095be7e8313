"""Three ways to add numbers without reading them (CKKS ciphertexts, integers mod 2^32 and mod 2^64), and their grid.

A coordinator imports `rings` and `ckks_public` only. `ckks_secret` holds the key that opens sums, and `seal_format` the
byte format of SEAL, the library below it.
"""

__all__ = ["adding", "ckks_public", "ckks_secret", "grid", "rings"]
