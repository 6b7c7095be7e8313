"""Which dataclasses can change, be compared and be shown: nearly none of those that hold records, and each by name."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
DECORATED = re.compile(r"^@dataclass(?:\(([^)]*)\))?.*\n(?:@.*\n)*class (\w+)", re.MULTILINE)
CHANGE = {
    "coordinator/console/pages.py:CoordinatorPages",
    "coordinator/people/silo_book.py:SiloBook",
    "silo_agent/console/pages.py:HospitalPages",
    "policies/web/sessions.py:ConsoleSession",
    "policies/web/sessions.py:Sessions",
    "coordinator/cosigning.py:_Asked",
    "coordinator/door/connections.py:_Connection",
    "coordinator/door/guard.py:_Call",
    "coordinator/door/guard.py:_Held",
    "coordinator/shortages.py:_Spell",
    "crypto/pki/authority/service/est.py:_Lists",
    "deploy/local/federation.py:Federation",
    "silo_agent/cli/drafting.py:Answers",
    "silo_agent/learning/encoder/layers.py:_Walk",
    "silo_agent/protocol/attempt.py:Attempt",
    "silo_agent/protocol/attempt.py:Running",
}
"""Those whose objects change while they are used."""
COMPARED = {
    "silo_agent/data/profiling/profile.py:Profile",
    "silo_agent/data/reader.py:Reading",
    "silo_agent/data/table.py:Table",
    "silo_agent/learning/dpsgd/training.py:EncoderUpdate",
    "silo_agent/protocol/key_store.py:RosterKeys",
    "silo_agent/protocol/key_store.py:Met",
    "silo_agent/protocol/key_store.py:Shared",
    "silo_agent/protocol/key_store.py:Stored",
    "silo_agent/storage/state.py:DrawnRelease",
}
"""Those that no log may show, and that are compared by what they hold all the same."""
SHOWN = {
    "coordinator/door/guard.py:_Call",
    "coordinator/door/guard.py:_Held",
    "silo_agent/learning/releases/possible_sums.py:MostPatients",
}
"""Those that are the same only as themselves, and that a log may show."""


@cache
def options():
    """The options of every dataclass, by file and name."""
    found = {}
    for top in ("common", "protos", "crypto", "policies", "coordinator", "silo_agent", "deploy"):
        for path in (ROOT / top).rglob("*.py"):
            for said, name in DECORATED.findall(path.read_text()):
                found[f"{path.relative_to(ROOT)}:{name}"] = dict(re.findall(r"(\w+)=(\w+)", said))
    return found


def having(option, value):
    return {name for name, said in options().items() if said.get(option) == value}


def test_a_dataclass_is_frozen_or_stands_in_the_list_of_those_that_change():
    assert set(options()) - having("frozen", "True") == CHANGE


def test_what_no_log_may_show_is_compared_by_nobody():
    """Arrays and records have no one answer to whether they are equal, and belong into no message."""
    hidden, alone = having("repr", "False"), having("eq", "False")
    assert hidden - alone == COMPARED
    assert alone - hidden == SHOWN
