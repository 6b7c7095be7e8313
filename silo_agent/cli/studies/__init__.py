"""Commands about studies: writing one, reading an offered one, approving it."""

__all__ = ["study"]
