"""What the coordinator keeps: studies and rounds, sealed uploads in files, how far ledgers had come, who did what.

Everything is durable before anybody hears of it. What the bytes mean is not known here.
"""

__all__ = ["audit_log", "checkpoints", "closing", "shelf", "spool", "store"]
