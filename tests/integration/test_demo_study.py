"""The demo's own study keeps its promise of cost: with one attempt lost in the middle, it still ends within the budget.

Study and policy are those beside `make demo`, and so are rounds, noises and the made-up patients. Only the deadlines
are longer, and pass when the test says so. `tests/deploy/test_studies.py` asks the policy alone about every round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deploy.demo import cohort
from deploy.demo.sources import DemoSource, load_source
from deploy.local.silo_policies import DATA_SET
from policies.accounting.accountant import epsilon
from policies.documents.study import Study
from policies.ledger.ledger import read_ledger
from policies.plan.release import plan
from protos.messages import Tensor
from protos.steps import Task
from support.certificates import data_set_of, make_authority
from support.moving_clock import LIMITS
from support.party_federation import HUB, PartyFederation, credentials_of
from support.task_points import TaskCrash

EXAM = Path(__file__).parents[2] / "deploy" / "demo" / "exam"
SEED = 100
"""The one that `make demo` makes patients from."""
LOST = 4
"""A round in the middle, of a head for each domain: no round costs more."""


@dataclass
class DemoFederation(PartyFederation):
    """The silos hold what the demo gives them."""

    source: DemoSource = field(kw_only=True)

    def _files(self) -> Mapping[str, Path]:
        made = cohort.generate(self.root / "data", SEED, law=self.source.law, times=self.source.times)
        return dict(zip(self.study.silos, made.sites, strict=True))

    def _policy(self, silo: str) -> str:
        return self.source.policy.replace(DATA_SET, data_set_of(silo))


def spent(study: Study, *, lost: int | None = None) -> float:
    """What the study costs a data set, where one attempt at a round may be lost."""
    planned = plan(study)
    again = [] if lost is None else [one.cost for one in planned.round(lost) if not one.resendable]
    return epsilon([*planned.costs(), *again], study.privacy.delta)


@pytest.mark.slow
def test_the_demos_study_with_one_lost_attempt_ends_within_its_budget(tmp_path, tmp_path_factory):
    """A silo is killed when its heads are charged and kept, but not sent: all six have paid for nothing."""
    source = load_source(EXAM)
    study = Study.model_validate({**source.study.model_dump(mode="json"), "deadlines": LIMITS})
    falls = {"site-3": TaskCrash("kept", Task.CONTRIBUTE, Tensor.HEADS, LOST)}
    credentials = credentials_of(make_authority(tmp_path_factory.mktemp("consortium")), study)
    federation = DemoFederation(tmp_path, study, credentials, doomed=falls, source=source)
    status = federation.run()

    assert (status.state, status.why) == ("finished", "all rounds are committed"), federation.log(HUB)
    assert federation.killed == {"site-3"}
    attempts = {(time.round, time.attempt) for time in status.times}
    last = plan(study).last
    assert attempts == {*((number, 1) for number in range(last + 1)), (LOST, 2)}
    assert [entry["outcome"] for entry in federation.entries(HUB, "attempt over")].count("aborted") == 1

    budget = source.policy_of("site-3").limits.study_epsilon
    for silo in study.silos:
        state = tmp_path / silo / "state"
        _, entries = read_ledger(state / "ledger.sqlite3")
        charged = [(entry.debit.round, entry.debit.attempt) for entry in entries]
        assert sorted(charged) == sorted(attempts), silo
        assert spent(study) < entries[-1].epsilon <= budget == 4.0, silo
        assert entries[-1].epsilon == pytest.approx(spent(study, lost=LOST), abs=1e-3), silo
        assert not federation.entries(silo, "disputed")
    models = [tmp_path / silo / "state" / "studies" / study.digest for silo in study.silos]
    for name in (f"model-{study.rounds}.safetensors", f"model-{study.rounds}.digest"):
        assert len({(folder / name).read_bytes() for folder in models}) == 1
