"""The sections of a study, one file each, and how a hospital's file is written (`spelling`).

A field says there all that is told of it (`policies.documents.about`).
"""

__all__ = ["data", "encoder", "evaluation", "expected", "heads", "kinds", "model", "personal", "privacy", "spelling"]
