"""The terms of the losses: one file each, named as in `policies.documents.terms`.

`term` says what a term may look at, `registry` finds the code of what a study asks for and refuses in an upload what is
not per record.
"""

__all__ = ["cmi", "registry", "term"]
