"""The terms of the losses: one file for each, named as in `policies.documents.terms`.

`term` says what a term may read. `registry` finds the code of the terms that a study asks for. In an upload it refuses
every term that is not per record.
"""

__all__ = ["cmi", "cosine", "deep_kernel", "group_dro", "l2r", "mk_mmd", "mmd_d", "registry", "term"]
