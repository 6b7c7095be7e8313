"""What the coordinator's commands report as one sentence."""


class OperatorError(Exception):
    """The coordinator could not be asked, or refused; says why."""


class StoreError(Exception):
    """The database cannot be used; says why."""
