"""Who may do what: every role, every action, one's own study and somebody else's, with a reason and without."""

from __future__ import annotations

import pytest

from coordinator.core.rights import AUDITORS, READERS, Action, Deed, RightsError, may_see, require_right, require_role
from crypto.pki.identity import Identity, Role

ADA, OPS = Identity(Role.AUTHOR, "ada"), Identity(Role.OPERATOR, "ops")
ALLOWED = {Role.OPERATOR: set(Action), Role.AUTHOR: set(Action) - {Action.FORGIVE, Action.DRAIN, Action.FILL}}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("action", Action)
def test_a_role_says_what_its_holder_may_do_at_all(role, action):
    deed = Deed(Identity(role, "somebody"), action, "because")
    if action in ALLOWED.get(role, ()):
        require_role(deed)
        require_right(deed, deed.who.uri)
        return
    what = "the coordinator" if action in {Action.DRAIN, Action.FILL} else "a study"
    for check in (require_role, lambda refused: require_right(refused, refused.who.uri)):
        with pytest.raises(
            RightsError, match=rf"^fedward://{role}/somebody may not {action} {what}; an operator.* may$"
        ):
            check(deed)


@pytest.mark.parametrize("action", sorted(set(Action) - {Action.ABORT}))
def test_an_operator_touches_a_study_of_somebody_else_with_a_reason_alone(action):
    require_right(Deed(OPS, action), OPS.uri)
    for owner, whose in ((ADA.uri, "of fedward://author/ada, not of"), ("", "from an earlier version, which noted no")):
        require_right(Deed(OPS, action, "the disk is full"), owner)
        for reason in ("", " \t"):
            with pytest.raises(RightsError, match=rf"^the study is {whose} .*--reason why"):
                require_right(Deed(OPS, action, reason), owner)


@pytest.mark.parametrize("who", [ADA, OPS])
def test_nobody_aborts_without_a_reason_not_even_an_own_study(who):
    require_right(Deed(who, Action.ABORT, "wrong columns"), who.uri)
    with pytest.raises(RightsError, match="which every silo reads; give --reason"):
        require_right(Deed(who, Action.ABORT), who.uri)


@pytest.mark.parametrize("owner", ["fedward://author/grace", "fedward://operator/ada", "fedward://author/ad", ""])
def test_an_author_touches_and_sees_own_studies_alone(owner):
    assert may_see(ADA, ADA.uri)
    assert not may_see(ADA, owner)
    with pytest.raises(RightsError, match="may not abort a study of somebody else; its author or an operator may"):
        require_right(Deed(ADA, Action.ABORT, "because"), owner)


def test_operators_and_viewers_see_all_and_read_the_log_and_approvers_nothing():
    for role in (Role.OPERATOR, Role.VIEWER):
        assert may_see(Identity(role, "one"), ADA.uri)
    assert {Role.OPERATOR, Role.VIEWER} == AUDITORS
    assert AUDITORS | {Role.AUTHOR} == READERS


def test_what_others_read_names_role_person_and_reason():
    assert Deed(OPS, Action.PAUSE).told("paused") == "paused by operator ops"
    assert Deed(ADA, Action.ABORT, "wrong columns").told("stopped") == "stopped by author ada: wrong columns"
