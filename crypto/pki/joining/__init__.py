"""How a party gets its certificate from an issuing authority, and keeps it fresh: for silos, coordinators, operators.

`enrol` redeems a token, `renewal` renews and brings lists while a program runs, `link` speaks with the authority, and
`enrol_commands` has what the commands share.
"""

__all__ = ["enrol", "enrol_commands", "link", "renewal"]
