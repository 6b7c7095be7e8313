"""The documents that people write: the study, the policy and its predecessors. They are read, compared and explained.

A document with a single field that is not understood is refused, with all reasons at once. Nothing here computes a
price or records a charge.
"""

__all__ = [
    "about",
    "document",
    "draft",
    "fields",
    "policy",
    "predecessor",
    "recipes",
    "schema",
    "sections",
    "study",
    "terms",
    "words",
    "writing",
]
