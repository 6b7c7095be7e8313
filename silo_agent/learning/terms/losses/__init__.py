"""One file for each term of a loss; each says which paper and equation it is."""

__all__ = [
    "adversary",
    "cmi",
    "cosine",
    "cross_entropy",
    "deep_kernel",
    "ditto",
    "group_dro",
    "irm",
    "l2r",
    "l2r_plain",
    "mk_mmd",
    "mmd_d",
    "proximal",
]
