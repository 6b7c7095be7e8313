"""The consortium's authorities: the offline root, the online authority under it, their register, their lists.

Whoever keeps an authority runs `cli`. No party of a study imports this room.
"""

__all__ = ["issuing", "root"]
