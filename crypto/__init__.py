"""Sealing: identities, certificates, key agreement, masks and homomorphic sums.

Knows vectors and bytes, nothing of models.

- For everybody: `errors`, `canonical`, `identity`, `certificates`, `tls`, `labels`, `content`, `entropy`, `enrolment`
  (with `key_files`, `hosts`).
- For the coordinator, which adds what it cannot read: `ring`, `ckks_public`. They need neither keys nor TenSEAL.
- For silos alone: `stream`, `agreement`, `packages`, `pads`, `seal_format`, `ckks_secret`, `sealing`, `grid`.
- For the keeper of the offline authority: `authority`, `authority_cli`.
"""
