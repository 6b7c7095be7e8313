"""No file can be opened for seconds, by the system's own limit, in a running process: the study ends as if it could."""

from __future__ import annotations

import pytest

from support.certificates import make_authority
from support.party_federation import HUB, PartyFederation, credentials_of
from support.starving import Starving
from tests.reliability.test_crash_points import crash_study

pytestmark = pytest.mark.slow
SECONDS = 4.0


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("party", "number"), [(HUB, 30), ("south", 40)])
def test_a_process_that_can_open_no_file_for_seconds_ends_no_attempt(party, number, tmp_path):
    study, fed = crash_study(), tmp_path / "fed"
    starving = Starving(number, SECONDS, fed / "lifted")
    federation = PartyFederation(
        tmp_path / "run", study, credentials_of(make_authority(tmp_path), study), {party: starving}
    )
    fed.mkdir()
    status = federation.run()
    assert starving.note.exists(), "the limit was reached"
    short = federation.entries(party, "the machine is short")
    assert short
    assert all("open" in line["why"] or "cannot be" in line["why"] for line in short)
    assert status.state == "finished"
    assert {time.attempt for time in status.times} == {1}, "no attempt was used up"
    assert not [*federation.entries(party, "disputed"), *federation.entries(party, "study refused")]
    outcome = federation.outcome()
    ledgers = [outcome[f"{silo} ledger"] for silo in study.silos]
    assert ledgers[0] == ledgers[1] == ledgers[2]
    assert (federation.root / party / "log.jsonl").stat().st_size < 200_000, "and the log was not filled"
