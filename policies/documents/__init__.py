"""What people write: the study, the policy and its predecessors, read closed and in full, compared and explained.

A document that is not understood to the last field is refused with all reasons at once. Nothing here counts a price
or remembers a charge.
"""

__all__ = ["compare", "document", "explain", "policy", "predecessor", "schema", "study", "terms"]
