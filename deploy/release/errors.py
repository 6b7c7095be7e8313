"""What can keep a release from being made or trusted."""


class ReleaseError(Exception):
    """A release cannot be made or must not be installed. The message says why and what to do."""
