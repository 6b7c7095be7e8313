"""The commands of `fedward-silo`, one file for each group. A command reads files, calls one function and prints.

Commands decide no rule of the protocol, of a policy or of a model. A command imports what it needs when it runs.
"""

__all__ = ["main"]
