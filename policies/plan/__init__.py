"""What a study releases, round by round: tensor, noise, size, ring. Everything else reads the plan from here.

Public constants of the study alone decide; no price is added up here (accounting), nothing is remembered (ledger).
"""

__all__ = ["architectures", "costs", "families", "note_sizes", "shapes", "terms"]
