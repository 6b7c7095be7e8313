"""`fedward-silo enrol`, by a one-time token or by a request that people carry; `rekey`, to go on under a new key.

Outside, only `command` and `rekey` are used.
"""

__all__ = ["command", "rekey"]
