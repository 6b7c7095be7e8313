"""Where the seeds of a simulation are computed: in this process, in others beside it, or on a cluster."""

__all__ = ["cluster", "processes", "task"]
