"""One file for each term of a loss; each says which paper and equation it is."""

__all__ = ["cmi", "cosine", "deep_kernel", "group_dro", "l2r", "mk_mmd", "mmd_d"]
