"""Who comes in, and how much of the coordinator one party can hold: calls, connections, open files.

Guarantees: no certificate and no address can take from the others what they need (`docs/operating.md`, "What one member
may hold"). What a call means is not known here.
"""

__all__ = ["callers", "connections", "files", "guard", "log_limit"]
