"""A study and policies as their commands draft them of the same answers, run by real programs to published results."""

from __future__ import annotations

import numpy as np
import pytest

from common.figure_words import MOVED
from deploy.local.federation import Federation
from deploy.local.processes import run
from policies.documents.study import load_study
from policies.ledger.ledger import read_ledger

pytestmark = pytest.mark.slow
EPSILON = 2.0


def draft(folder, silos):
    """Draft all documents as people would, who know the same of the study."""
    invited = [part for silo in silos for part in ("--silo", silo)]
    columns = ("--label", "ill:yes=1:no=0", "--domain", "sex:code:F,M", "--feature", "age:number:0:120")
    expects = ("--patients", "480", "--prevalence", "0.3", "--effect", "0.7", "--epsilon", EPSILON)
    study = folder / "study.yaml"
    run("fedward-silo", "study", "new", "--name", "ward", "--purpose", "Say who falls ill.", *invited,
        "--patient", "id", *columns, *expects, "--out", study)  # fmt: skip
    policies = {}
    for silo in silos:
        told = ("--data-set", silo, "--contact", f"dpo@{silo}.example", "--patient", "id")
        out = folder / f"{silo}.yaml"
        run("fedward-silo", "policy", "new", *told, "--hospitals", len(silos), "--epsilon", 2 * EPSILON, "--out", out)
        policies[silo] = out.read_text()
    return study, policies


def patients(path, draw, count=600):
    rows = ["id,sex,age,ill"]
    for number in range(count):
        age = draw.integers(20, 95)
        rows.append(f"{path.stem}{number},{draw.choice(['F', 'M'])},{age},{int(draw.random() < age / 200)}")
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("silos", [("north", "south"), ("east", "north", "south", "west")], ids=len)
def test_what_is_drafted_of_the_same_answers_runs_to_published_results(tmp_path, silos):
    study_file, policies = draft(tmp_path, silos)
    draw = np.random.default_rng(1)
    data = {silo: patients(tmp_path / f"{silo}.csv", draw) for silo in silos}
    federation = Federation(tmp_path / "federation", study_file, data, policies)
    federation.prepare()
    study = load_study(study_file)
    assert study.privacy.mode == ("local" if len(silos) == 2 else "distributed")
    with federation:
        federation.begin()
        federation.wait_for_silos()
        with federation.author() as author:
            status, results = author.status(study.digest), author.results(study.digest)
    assert (status.state, status.attempt) == ("finished", 1)
    assert len(results.publications) == len(silos)
    agreed = {(one.figure.domain, one.figure.metric) for one in results.agreed}
    assert agreed >= {(domain, metric) for domain in study.reported for metric in study.publish}
    assert ("all patients", f"auc{MOVED}") in agreed
    for silo in silos:
        _, entries = read_ledger(federation.place.state(silo) / "ledger.sqlite3")
        assert 0 < entries[-1].epsilon <= EPSILON
