"""Sealing: identities and certificates, three rings to add in, and sums that nobody opens alone.

Knows vectors and bytes, nothing of models. Rooms: `pki` (who is who), `rings` (how numbers are added unread), `secagg`
(how a roster seals and opens its sum). The base below them: `errors`, `canonical`, `stream`, `entropy`.
"""
