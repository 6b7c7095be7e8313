"""Sealing: identities, certificates, key agreement, masks and homomorphic sums.

Knows vectors and bytes, nothing of models. Public side (the coordinator may import it): `errors`, `identity`,
`certificates`, `tls`, `canonical`, `labels`, `content`, `ring`, `ckks_public`. Secret side (silos only): `agreement`,
`packages`, `pads`, `seal_format`, `ckks_secret`, `sealing`. The authority's side: `authority`, `authority_cli`.
"""
