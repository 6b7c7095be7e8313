"""Which records would be left out, and what of a study's data makes an agent wait or refuse."""

from __future__ import annotations

import pytest

from policies.ledger.ledger import Ledger, read_history
from silo_agent.data.errors import RecordError
from silo_agent.review import data_check
from silo_agent.review.data_check import checked
from silo_agent.storage.errors import StateError
from support.ledgers import NORTH
from support.studies import tiny_study

STUDY = tiny_study()
HEADER = "patient,group,age,lactate,ill"


def write(settings, *rows, header=HEADER):
    settings.data["tiny"].write_text("\n".join([header, *rows]) + "\n")


def test_records_are_read_as_the_agent_reads_them_and_nothing_is_charged(settings, folder):
    write(settings, *(f"p{number},a,50,5,1" for number in range(5)), *(f"q{number},a,999,5,1" for number in range(4)))
    seen = []
    path, reading = checked(settings, STUDY, "tiny", 3, seen.append)
    assert (path, reading.kept, reading.left_out, len(reading.faults)) == (settings.data["tiny"], 5, 4, 3)
    assert sum(seen) == 9
    assert read_history(folder.ledger)[1] == ()


def test_what_an_agent_would_wait_for_or_refuse_is_said(settings):
    with pytest.raises(StateError, match=r"^tiny would wait for its data: .*north.csv"):
        checked(settings, STUDY, "tiny", 3)
    with pytest.raises(StateError, match="liver"):
        checked(settings, STUDY, "liver", 3)
    with pytest.raises(StateError):
        checked(settings, STUDY, None, 3)
    write(settings, "a,b", header="patient,group")
    with pytest.raises(StateError, match=r"^the agent would refuse tiny: "):
        checked(settings, STUDY, "tiny", 3)
    write(settings, "p,a,50,5,1")
    other = tiny_study(data={"delimiter": ";"})
    with pytest.raises(StateError, match=r"^the agent would refuse tiny: file: study.data.delimiter is ';'"):
        checked(settings, other, "tiny", 3)


def test_records_that_cannot_be_read_would_be_noise_alone(settings, monkeypatch):
    def fail(*_, **__):
        raise RecordError(OSError("the disk"))

    monkeypatch.setattr(data_check, "read_records", fail)
    with pytest.raises(StateError, match=r"^reading the data of tiny fails on the records, so the agent would send"):
        checked(settings, STUDY, "tiny", 3)


def test_the_policy_is_the_one_in_force(settings, folder):
    write(settings, "p,a,50,5,1")
    with Ledger.open(folder.ledger, NORTH, budget_epsilon=4.0) as ledger:
        ledger.put_into_force("f" * 64, 4.0)
    with pytest.raises(Exception, match=r"is not the policy in force \(ffffffffffff\)"):
        checked(settings, STUDY, "tiny", 3)
