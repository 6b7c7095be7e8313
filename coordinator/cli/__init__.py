"""The commands of `fedward-coordinator`, one file for each group. A command reads files, makes one call and prints.

A command imports what it needs when it runs. `options` has what several groups share.
"""

__all__ = ["main"]
