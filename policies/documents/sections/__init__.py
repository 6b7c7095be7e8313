"""The sections of a study, one file each. A field says there all that is told of it (`policies.documents.about`)."""

__all__ = ["data", "encoder", "evaluation", "expected", "heads", "kinds", "model", "personal", "privacy"]
