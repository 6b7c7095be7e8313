"""Sealing: identities and certificates, three rings to add in, and sums that nobody opens alone.

The package knows vectors and bytes, and nothing of models. Its rooms are `pki` (who is who), `rings` (how numbers are
added without being read) and `secagg` (how a roster seals and opens its sum). Below them lies the base: `errors`,
`canonical`, `stream`, `entropy`.
"""
