"""Who is who: identities, certificates, the consortium's authority, TLS, and files sealed under a certificate's key.

The room stands on the base of `crypto` alone and knows nothing of rosters, sums or masks. Private keys stay in the
files that `key_files` writes.
"""

__all__ = [
    "at_rest",
    "authority",
    "certificates",
    "dated",
    "enrolment",
    "identity",
    "joining",
    "key_files",
    "known_keys",
    "reading",
    "standing",
    "timestamps",
    "tls",
]
