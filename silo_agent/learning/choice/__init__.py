"""Which model a hospital predicts with: compared on its own training patients, inside the hospital alone.

The agent calls nothing of this room; the personal model's process does, and the commands that use a finished model.
"""

__all__ = ["choice", "choosing"]
