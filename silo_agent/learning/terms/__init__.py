"""The terms of the losses (`losses`, a file each, named as in `policies.documents.terms`), and what trains beside them.

`term` says what a term may read. `registry` finds the code of the terms that a study asks for. In an upload it refuses
every term that is not per record.
"""

__all__ = ["environments", "guesser", "losses", "registry", "resumable", "term"]
