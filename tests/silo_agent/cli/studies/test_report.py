"""`fedward-silo report` on a finished study: two private files, figures of all and of this hospital, and refusals."""

import html as entities
import json
import re
from datetime import date

import pytest
import yaml
from typer.testing import CliRunner

from policies.documents.study import Study
from policies.reports.guarantee import guarantee
from silo_agent.cli import main
from silo_agent.storage.state import Ending, State
from support.finished import ESTIMATE, finished_hospital
from support.models import random_model
from support.small_cohort import write_yaml
from support.studies import tiny_study, with_label

STUDY = tiny_study(purpose="A <b> purpose.")


@pytest.fixture
def hospital(quick_path, homes):
    """A hospital that took part in a study, which is over."""
    return finished_hospital(quick_path, homes["north"], STUDY)


@pytest.fixture
def report(hospital):
    """Runs the command; returns how it ended and the page, if there is one."""

    def run(*arguments):
        out = hospital.parent / "made"
        done = CliRunner().invoke(main.app, ["report", "tiny", "--out", str(out), "-c", str(hospital), *arguments])
        page = out / "tiny.html"
        return done, page.read_text() if page.exists() else ""

    return run


def text_of(page):
    return " ".join(entities.unescape(re.sub(r"<[^>]+>", " ", page.partition("<body>")[2])).split())


def test_a_board_gets_a_page_and_a_document_that_only_their_maker_can_read(report, hospital):
    done, page = report()
    out = hospital.parent / "made"
    assert done.stdout.splitlines() == [str(out / "tiny.html"), str(out / "tiny.pdf")]
    assert "stays inside this hospital" in done.stderr
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}
    assert out.stat().st_mode & 0o777 == 0o700
    assert (out / "tiny.pdf").read_bytes().startswith(b"%PDF")
    assert "<b>" not in page
    said = text_of(page)
    for wanted in (
        "figures of this hospital's own patients: not noised, stays inside",
        "0.812 0.700 to 0.900",
        "north in the last sum south in the last sum west not in the last sum",
        "held-out patients, whom training never saw",
        "a, shared",
        "b, personal",
        "Beside a model of this hospital's records alone",
        "The other model is a regression of this hospital's training patients alone.",
        "No forecast was handed in",
        "This hospital's budget for all studies together 4",
        f"Charged at this hospital, repeated attempts included {guarantee(STUDY, None).planned:.4f}",
        "Not a medical device",
        "TRIPOD+AI",
    ):
        assert wanted in said, wanted


def test_own_figures_stand_in_sections_that_say_that_they_stay(report):
    _, page = report()
    sections = re.findall(r'<section class="inside">.*?</section>', page, re.DOTALL)
    inside, outside = "".join(sections), page
    for section in sections:
        outside = outside.replace(section, "")
    assert len(sections) == page.count('class="stays"') >= 2
    for own in ("whom training never saw", "a, shared", "records alone (", "The shared model: none of"):
        assert own not in outside
    assert "0.812" not in inside
    assert "0.812" in outside


def test_no_name_of_a_file_or_folder_is_in_it(report, hospital):
    _, page = report()
    assert "north.csv" not in page
    assert str(hospital.parent) not in page


def test_the_same_study_gives_the_same_files(report, hospital):
    _, first = report()
    kept = (hospital.parent / "made" / "tiny.pdf").read_bytes()
    (hospital.parent / "made").rename(hospital.parent / "before")
    assert report()[1] == first
    assert (hospital.parent / "made" / "tiny.pdf").read_bytes() == kept


def test_a_forecast_of_this_study_is_shown_and_another_refused(report, hospital):
    one = {"middle": 0.8, "low": 0.7, "high": 0.9}
    rows = [{"effect": 0.85, "mean": one, "worst": one, "plain_mean": one, "alone": one}]
    forecast = {"figure": "auc", "draws": 24, "rows": rows, "sentences": ["It may gain nothing."]}
    path = hospital.parent / "plan.json"
    path.write_text(json.dumps({"digest": "ab" * 32, "forecast": forecast}))
    done, page = report("--forecast", str(path))
    assert (done.exit_code, page) == (1, "")
    assert "forecasts another study" in str(done.exception)
    path.write_text(json.dumps({"digest": STUDY.digest, "forecast": forecast}))
    assert "It may gain nothing." in report("--forecast", str(path))[1]


def test_without_records_there_is_a_report_that_says_why_and_may_go_out(report, hospital):
    write_yaml(hospital, yaml.safe_load(hospital.read_text()) | {"data": {}})
    done, page = report()
    assert done.exit_code == 0
    assert "It has no figures of this hospital's own: agent.yaml names no data" in done.stderr
    assert "stays inside" not in text_of(page)
    assert "Not measured: no records of this study could be read here" in text_of(page)
    assert 'class="inside"' not in page


def test_what_is_wrong_with_the_records_is_told_to_who_asked_and_not_to_the_board(report, hospital):
    """A fault quotes the cell, and such a report says of nothing that it stays inside."""
    (hospital.parent / "north.csv").write_text("patient,group,age,lactate,ill\nann,a,secret-age,1,0\n")
    done, page = report()
    assert done.exit_code == 0
    assert "Not measured" in text_of(page)
    assert "secret-age" not in page
    assert "secret-age" in done.stderr


def test_a_study_that_runs_or_has_no_model_has_no_report(report, hospital):
    state = State(hospital.parent / "state")
    folder = state.study_folder(STUDY.digest)
    state.commit(STUDY.digest, 1)
    state.close()
    done, _ = report()
    assert "no finished round of this study" in str(done.exception)
    random_model(STUDY).save(folder / "model-1.safetensors")
    done, page = report()
    assert (done.exit_code, page) == (1, "")
    assert "is in round 1 of 2; a report is of a finished study" in str(done.exception)


def test_without_a_folder_it_goes_beside_the_person_who_asked(hospital, monkeypatch):
    monkeypatch.chdir(hospital.parent)
    done = CliRunner().invoke(main.app, ["report", STUDY.digest[:12], "-c", str(hospital)])
    assert done.stdout.splitlines() == ["tiny-report/tiny.html", "tiny-report/tiny.pdf"]
    assert (hospital.parent / "tiny-report").stat().st_mode & 0o777 == 0o700


def test_nothing_is_overwritten(report, hospital):
    report()
    before = (hospital.parent / "made" / "tiny.html").read_bytes()
    done, _ = report()
    assert done.exit_code == 1
    assert "never overwritten; give a new folder" in str(done.exception)
    assert (hospital.parent / "made" / "tiny.html").read_bytes() == before


def test_a_removed_personal_model_is_not_looked_for(report, hospital):
    _, page = report()
    assert "a, personal" in text_of(page)
    (hospital.parent / "made").rename(hospital.parent / "before")
    state = State(hospital.parent / "state")
    state.finish(STUDY.digest, "finished", date(2026, 1, 1))
    state.begin_removal(Ending(STUDY.digest, date(2026, 1, 1), removed=date(2026, 2, 1)))
    state.close()
    assert "a, personal" not in text_of(report()[1])


@pytest.mark.parametrize(
    ("label", "metric", "said"),
    [
        ({"column": "kind", "classes": [[1], [2], [3]]}, "balanced_accuracy", "column kind, 3 classes"),
        ({"column": "days", "minimum": 0, "maximum": 60}, "mae", "column days, a number from 0 to 60"),
    ],
)
def test_other_outcomes_have_a_report_too(hospital, label, metric, said):
    study = Study.model_validate(with_label(label).model_dump(mode="json") | {"name": "other"})
    state = State(hospital.parent / "state")
    state.add_study(study.digest, study.canonical())
    state.commit(study.digest, study.rounds)
    folder = state.study_folder(study.digest)
    state.close()
    random_model(study).save(folder / f"model-{study.rounds}.safetensors")
    results = {"study": study.digest, "domains": ["a", "b"], "by_domain": [{metric: ESTIMATE}, {metric: ESTIMATE}]}
    (folder / "results.json").write_text(json.dumps(results))
    out = hospital.parent / "made"
    done = CliRunner().invoke(main.app, ["report", "other", "--out", str(out), "-c", str(hospital)])
    assert done.exit_code == 0, done.exception
    page = text_of((out / "other.html").read_text())
    assert said in page
    assert "0.812 0.700 to 0.900" in page
    assert "counts as ill" not in page
