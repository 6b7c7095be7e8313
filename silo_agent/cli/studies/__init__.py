"""Commands about studies: writing one, reading an offered one, approving it, reporting on a finished one."""

__all__ = ["listing", "report", "study"]
