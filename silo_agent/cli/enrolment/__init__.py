"""`fedward-silo enrol`: by a one-time token, or by a request that people carry.

Outside, only `command` is used.
"""

__all__ = ["command"]
