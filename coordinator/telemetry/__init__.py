"""What an operator sees of a running coordinator beside its answers: figures of the moment, and spans of rounds."""

__all__ = ["current", "round_traces"]
