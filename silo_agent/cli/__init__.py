"""The commands of `fedward-silo`, one file for each group. A command reads files, calls one function and prints.

Commands decide no rule of the protocol, of a policy or of a model. A command imports what it needs when it runs.
`options` has what other programs' commands use too: what is said on a terminal while something lasts.
"""

__all__ = ["main", "options"]
