"""What a dry round makes up; a whole one is slow."""

import json
import os
from pathlib import Path

import pytest
import yaml

from deploy.local import dry_round as module
from deploy.local.dry_round import dry_round, policy_for, smaller, write_records
from deploy.local.processes import FederationError
from deploy.release.locks import ROLES, pins
from policies.documents.document import parse_document
from policies.documents.policy import Policy
from policies.documents.study import Study, load_study
from silo_agent.cli.policy import refused
from silo_agent.data.errors import Faults
from silo_agent.data.reader import read_records
from silo_agent.data.table import Written
from support.studies import tiny_document, tiny_study

STUDIES = sorted((Path(__file__).parents[3] / "deploy" / "demo").glob("*/study.yaml"))


def policy_of(study, silo):
    return parse_document(json.dumps(policy_for(study, silo)), Policy, Path("policy.yaml"))


def ids(path):
    return path.parent.name


@pytest.mark.parametrize("file", STUDIES, ids=ids)
def test_the_studies_of_the_demo_are_taken_and_their_made_up_records_fit(file, tmp_path):
    dry = smaller(load_study(file), load_study(file).silos[-1])
    assert dry.silos[0] == load_study(file).silos[-1]
    held = policy_of(dry, "north")
    assert held.data_set.public
    assert refused(held, dry, dry.silos[0]) is None
    path = write_records(tmp_path / "north.csv", dry.data)
    found = read_records(path, dry.data, held.data_set.identified_by, faults=Faults(20), written=Written.of(held))
    assert found.kept >= module.RECORDS // 2, found.faults


def test_only_as_many_silos_as_the_sums_need_are_started():
    names = [f"silo-{number}" for number in range(9)]
    assert len(smaller(tiny_study(silos=names, min_silos=6), "silo-7").silos) == 6
    assert smaller(tiny_study(silos=names, min_silos=6), "silo-7").silos[0] == "silo-7"
    assert smaller(tiny_study(silos=names, min_silos=6), "stranger").silos == tuple(names[:6])


def test_a_dry_study_waits_for_no_pace_and_continues_nothing():
    study = tiny_study(pace="padded", continues="5" * 64)
    dry = smaller(study, "north")
    assert (dry.pace, dry.continues) == ("prompt", None)
    changed = {"pace", "continues", "silos"}
    assert dry.model_dump(exclude=changed) == study.model_dump(exclude=changed)


def test_records_are_written_as_the_study_expects(tmp_path):
    columns = ["ill", "extra", "age", "lactate", "group", "patient"]
    study = Study.model_validate(tiny_document(data={"columns": columns, "delimiter": ";"}))
    path = write_records(tmp_path / "a.csv", study.data)
    assert path.read_text().splitlines()[0].count(";") == 5
    written = Written(";", tuple(columns))
    assert read_records(path, study.data, faults=Faults(20), written=written).kept == module.RECORDS


def test_a_study_with_images_gets_no_record(tmp_path):
    study = tiny_study(data={"image": {"column": "scan", "height": 8, "width": 8}}, model={"encoder": "cnn"})
    path = write_records(tmp_path / "a.csv", study.data)
    assert path.read_text().splitlines() == ["ill,group,age,lactate,scan,patient"]


class Status:
    def __init__(self, **fields):
        self.state, self.round, self.phase, self.why, self.members = "running", 0, "offer", "", ()
        self.__dict__.update(fields)


class Scripted:
    """A federation whose study has these states, one after another."""

    def __init__(self, *states):
        self.states, self.study = list(states), tiny_study()

    def check(self):
        pass

    def author(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def status(self, digest):
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


def test_it_is_over_when_the_rounds_are_done(monkeypatch):
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    federation = Scripted(Status(), Status(round=1), Status(round=2))
    module._await(federation, 2, float("inf"))
    assert len(federation.states) == 1
    module._await(Scripted(Status(state="finished")), 2, float("inf"))


@pytest.mark.parametrize(
    ("status", "until", "text"),
    [
        (Status(state="ended", why="nobody came"), float("inf"), "nobody came"),
        (Status(round=1), 0.0, "it is in round 1, offer"),
    ],
)
def test_a_round_that_ends_or_lasts_too_long_is_an_error(status, until, text):
    with pytest.raises(FederationError, match=text):
        module._await(Scripted(status), 2, until)


def test_a_silo_that_leaves_is_named():
    class Member:
        silo, state, why = "north", "left", "memory: too little"

    with pytest.raises(FederationError, match="north: memory: too little"):
        module._await(Scripted(Status(members=(Member,))), 2, float("inf"))


@pytest.mark.slow
def test_a_whole_dry_round_needs_no_more_than_a_silo_installs_and_leaves_nothing_behind(tmp_path, monkeypatch):
    absent = sorted({pin.name for pin in pins(ROLES[0])} - {pin.name for pin in pins(ROLES[1])})
    without, scratch = tmp_path / "without", tmp_path / "scratch"
    without.mkdir()
    scratch.mkdir()
    (without / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({absent}))\n")
    monkeypatch.setenv("PYTHONPATH", str(without), prepend=os.pathsep)
    monkeypatch.setattr(module.tempfile, "tempdir", str(scratch))
    study = Study.model_validate(yaml.safe_load(yaml.safe_dump(tiny_document())))
    ran = dry_round(study, "north", device="cpu", limit=600)
    assert (ran.silos, ran.rounds) == (3, 2)
    assert list(scratch.iterdir()) == []
