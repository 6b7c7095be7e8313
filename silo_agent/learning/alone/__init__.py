"""A model of one hospital's records alone, which the shared model is held against, and mixes of the two.

It reads the records without noise, so it is as private as they are, and nothing of it leaves the hospital. Source:
docs/design/choice.md, "A model of the hospital's own records".
"""

__all__ = ["fitting", "mixing", "model"]
