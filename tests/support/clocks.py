"""Time that passes when a test says so."""


class Clock:
    """A clock that stands still until somebody sets `now`."""

    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now
