"""Which tasks are what, written out: what `protos.steps` is compared with, and what tests make messages by."""

from __future__ import annotations

from protos.steps import Note, Task

FETCHED = (Task.TAKE, Task.CATCH_UP, Task.JUDGE, Task.EXAMINE, Task.OPEN, Task.ADOPT)
"""Tasks that begin with downloads of what the work names."""
BY_OWNER = {Note.GREETING: (Task.DEAL, Task.TAKE), Note.SHARES: (Task.CHECK, Task.CONTRIBUTE, Task.OPEN)}
"""Tasks in which a silo reads its slices of notes."""
CONFIRMED = (
    Task.VOID,
    Task.TAKE,
    Task.CATCH_UP,
    Task.JUDGE,
    Task.CHECK,
    Task.EXAMINE,
    Task.SIGN,
    Task.OPEN,
    Task.RECOUNT,
    Task.ADOPT,
)
"""Tasks that end with a confirmation."""
SUMMED = (Task.CONTRIBUTE, Task.SIGN, Task.REVEAL, Task.OPEN, Task.RECOUNT, Task.SOLVE, Task.ADOPT)
"""Tasks of the sums."""
COMPLAINED = (Task.GREET, Task.DEAL, Task.TAKE, Task.CHECK)
"""Tasks in which a silo may complain."""
ADDED = SUMMED[1:]
"""Tasks after the adding."""
