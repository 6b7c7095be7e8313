"""Following a study to its end."""

from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from rich.console import Console

from deploy.local.processes import FederationError
from deploy.local.watching import bars, stage, watch
from policies.documents.study import Study
from policies.plan.release import plan
from support.studies import tiny_study


@dataclass
class Status:
    state: str = "running"
    round: int = 0
    phase: str = "offer"
    tensor: str = ""
    attempt: int = 1
    waiting_for: tuple[str, ...] = ()
    why: str = ""


@dataclass
class Watched:
    """A federation whose coordinator says one status after the other."""

    said: list[Status]
    checks: int = 0
    study: Study = field(default_factory=tiny_study)

    @contextmanager
    def author(self):
        yield self

    def status(self, digest):
        return self.said.pop(0) if len(self.said) > 1 else self.said[0]

    def check(self):
        self.checks += 1


@pytest.fixture
def progress():
    with bars(Console(quiet=True)) as made:
        yield made


def test_a_study_is_followed_to_its_end_and_its_processes_are_checked(progress):
    told = [Status(), Status(round=1, tensor="heads", attempt=2, waiting_for=("north",)), Status("finished", 3)]
    watched = Watched(told)
    assert watch(watched, progress, limit=60, pause=0).state == "finished"
    assert watched.checks == 3
    assert progress.tasks[0].finished
    assert progress.tasks[0].completed == plan(watched.study).last + 1


def test_what_is_awaited_stands_beside_the_bar(progress):
    with pytest.raises(FederationError, match="it is in round 1, gather"):
        watch(Watched([Status("running", 1, "gather", "heads", 2, ("north",))]), progress, limit=0, pause=0)
    assert progress.tasks[0].fields["note"] == "gather heads, waiting for 1, attempt 2"


def test_a_study_that_ends_without_a_model_says_why(progress):
    with pytest.raises(FederationError, match="the study ended: epsilon_per_study"):
        watch(Watched([Status("ended", why="epsilon_per_study")]), progress, limit=60, pause=0)


def test_a_stage_is_full_when_its_work_is_done(progress):
    with stage(progress, "certificates"):
        assert not progress.tasks[0].finished
    assert progress.tasks[0].finished
