"""What can be wrong with the agent's folder."""


class StateError(Exception):
    """The agent's folder is not as the agent left it, or would not be. Names the file and the mend."""


class SurvivorsError(StateError):
    """A second survivor list is asked for. Names only what the coordinator knows."""
