from __future__ import annotations

import inspect

from crypto import errors


def test_every_error_is_in_one_tree_and_named_by_the_rule():
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    assert len(found) == 12
    for kind in found:
        assert issubclass(kind, errors.CryptoError)
        assert kind.__name__.endswith(("Error", "Refused"))


def test_a_refused_recovery_names_its_culprit_only_where_there_is_one():
    assert errors.RecoveryRefused("why").culprit == ""
    refused = errors.RecoveryRefused("why", "west")
    assert (str(refused), refused.culprit) == ("why", "west")


def test_notes_that_are_wanted_are_named():
    wanted = errors.NotesWantedError(("elm", "west"))
    assert (str(wanted), wanted.silos) == ("the whole shares notes of elm, west must be read first", ("elm", "west"))
