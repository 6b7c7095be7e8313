"""One hospital of four uploads residues of no meaning: real processes over mutual TLS, real ledgers, one colluder.

Before there were statements of spoilt sums, all disputed the opening, and the study ended after three attempts with
nobody named. Now the round is made anew without a suspect, and the study ends with the others' model.
"""

from __future__ import annotations

import pytest

from policies.documents.study import Study
from policies.ledger.ledger import read_ledger
from support.certificates import make_authority
from support.moving_clock import LIMITS
from support.party_federation import HUB, PartyFederation, credentials_of
from support.small_cohort import study_document
from support.spoiling import Spoiling

FOUR = ("east", "north", "south", "west")
NAMED_FIRST = "north"
"""Who sits out first after a spoilt sum of round 0, attempt 1: the second of the four."""


def study(mode: str) -> Study:
    fields = {"name": "spoilt", "silos": list(FOUR), "min_silos": 3, "deadlines": LIMITS, "personal": None}
    document = study_document(**fields)
    document["privacy"] = {**document["privacy"], "mode": mode}
    document["heads"] = {
        **document["heads"],
        "pooled_rounds": 1,
        "domain_rounds": 1,
        "pooled_noise": 20.0,
        "domain_noise": 20.0,
    }
    document["encoder"] = {**document["encoder"], "steps": 1, "sampling_rate": 1.0, "noise": 20.0}
    return Study.model_validate(document)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_study_that_one_hospital_spoils_ends_with_the_others_model(tmp_path, tmp_path_factory, mode):
    of = study(mode)
    credentials = credentials_of(make_authority(tmp_path_factory.mktemp("consortium")), of)
    federation = PartyFederation(tmp_path, of, credentials, {NAMED_FIRST: Spoiling()})
    status = federation.run()
    assert (status.state, status.why) == ("finished", "all rounds are committed"), federation.log(HUB)
    states = {member.silo: member.state for member in status.members}
    assert states[NAMED_FIRST] == "aside"
    assert not any(member.state == "left" for member in status.members)
    (said,) = {member.why for member in status.members if member.silo == NAMED_FIRST}
    assert "at least one of east, north, south, west; no smaller set can be proven" in said
    for silo in set(FOUR) - {NAMED_FIRST}:
        _, entries = read_ledger(tmp_path / silo / "state" / "ledger.sqlite3")
        assert [entry.debit.attempt for entry in entries if entry.debit.round == 0] == [1, 2]
        assert [entry.debit.attempt for entry in entries if entry.debit.round == 1] == [1]
