"""Sealing: identities, certificates, key agreement, masks and homomorphic sums.

Knows vectors and bytes, nothing of models.

- For everybody: `errors`, `canonical`, `identity`, `certificates`, `tls`, `labels`, `entropy`, `enrolment` (with
  `key_files`, `hosts`), `at_rest`.
- For the coordinator, which adds what it cannot read: `rings`, `ckks_public`, `layout`, `survivors`. They need neither
  keys nor TenSEAL.
- For silos alone. Keys: `agreement`, `packages`, `stream`. What survives a dropout: `shamir`, `recovery`. Sums:
  `masks`, `checks`, `seal_format`, `ckks_secret`, `sealing`, `grid`.
- For the keeper of the offline authority: `authority`, `authority_cli`.
"""
