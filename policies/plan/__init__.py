"""What a study releases, round by round: tensor, noise, size, ring. Everything else reads the plan from here.

The study's public constants alone decide it. Prices are added up in accounting; the ledger remembers what was charged.
"""

__all__ = [
    "architectures",
    "cost",
    "derive",
    "disk",
    "families",
    "grids",
    "memory",
    "note_sizes",
    "person_periods",
    "quorum",
    "rare_columns",
    "release",
    "shapes",
    "terms",
]
