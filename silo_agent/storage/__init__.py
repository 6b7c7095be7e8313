"""What a silo keeps on its disk: durable state, the names of its files, and when they are removed.

Every write is complete or absent. The room does not know what the bytes mean.
"""

__all__ = [
    "approvals",
    "backup",
    "checked",
    "durable",
    "errors",
    "folders",
    "keyed",
    "model_warnings",
    "offered",
    "opening",
    "own_files",
    "promises",
    "retention",
    "rows",
    "state",
]
