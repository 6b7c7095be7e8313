import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import policies
from policies.documents.policy import load_policy
from policies.documents.schema import study_schema
from policies.documents.study import Personal, load_study
from silo_agent.cli import answers
from silo_agent.cli import main as program
from silo_agent.cli.main import app

PAGE = (Path(__file__).parents[4] / "docs" / "studies.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Write a study\n")[2].partition("\n## ")[0]
WHOLE = {
    "--name": "readmission",
    "--purpose": "Say who comes back.",
    "--silo": ["north", "south", "west"],
    "--patient": "patient_id",
    "--label": "back:yes=<30:no=NO,>30",
    "--domain": "age:edges:40,65",
    "--feature": ["age:number:0:120:clip", "sex:code:F,M:missing=?:optional"],
    "--patients": "600,500,90",
    "--epsilon": "3.5",
}


def options(file, changes=None):
    said = {**WHOLE, "--out": str(file), **(changes or {})}
    return [
        part
        for option, value in said.items()
        if value is not None
        for one in (value if isinstance(value, list) else [value])
        for part in (option, one)
    ]


MODES = ("local", "distributed")


def run(monkeypatch, capsys, *arguments):
    """Exit code and stderr of the program, as a person sees them."""
    monkeypatch.setattr("sys.argv", ["fedward-silo", "study", *arguments])
    with pytest.raises(SystemExit) as ended:
        program.main()
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("silos", "patients", "mode"),
    [(2, 4000, "local"), *((*size, mode) for size in ((3, 100), (3, 4000), (5, 40_000)) for mode in MODES)],
)
def test_a_new_policy_takes_a_new_study_of_the_same_answers(tmp_path, silos, patients, mode):
    """One study may take half of the policy's epsilon. What the drafts leave to rules must fit, too."""
    policy, study = tmp_path / "policy.yaml", tmp_path / "study.yaml"
    given = ["--data-set", "a", "--contact", "b", "--patient", "patient_id", "--hospitals", silos, "--epsilon", 3.0]
    names = [f"silo-{number}" for number in range(silos)]
    changes = {"--silo": names, "--patients": str(patients), "--epsilon": "1.5", "--mode": mode, "--prevalence": "0.2"}
    for command in (
        ["policy", "new", *given, "--out", policy],
        ["study", "new", *options(study, changes)],
        ["policy", "check", policy, "--study", study, "--silo", names[0]],
    ):
        done = CliRunner().invoke(app, [str(part) for part in command])
        assert done.exit_code == 0, done.output
    assert "would be taken" in done.output


@pytest.mark.parametrize("name", ["three-hospitals", "consortium", "research", "published"])
def test_a_sample_policy_takes_a_new_study_that_asks_for_what_it_gives_one(tmp_path, name):
    """`strict` and `evaluation-only` take none: the one names its studies, the other trains nothing."""
    sample, study = Path(policies.__file__).parent / "samples" / f"{name}.yaml", tmp_path / "study.yaml"
    policy = load_policy(sample)
    names = [f"silo-{number}" for number in range(policy.min_silos + 1)]
    most = min(policy.limits.study_epsilon, policy.limits.round_epsilon)
    patient = {"--patient": policy.data_set.identified_by[0] if policy.data_set.unit == "patient" else None}
    changes = {"--silo": names, "--patients": "4000", "--epsilon": str(most), "--prevalence": "0.2", **patient}
    for command in (["study", "new", *options(study, changes)], ["policy", "check", sample, "--study", study]):
        done = CliRunner().invoke(app, [str(part) for part in command])
        assert done.exit_code == 0, done.output


def test_the_schema_of_a_study_is_printed():
    done = CliRunner().invoke(app, ["study", "schema"])
    assert done.exit_code == 0
    assert done.stdout == study_schema()
    assert json.loads(done.stdout)["title"] == "Study"


def test_options_become_a_study(tmp_path, told):
    file = tmp_path / "study.yaml"
    done = CliRunner().invoke(app, ["study", "new", *options(file)])
    assert done.exit_code == 0, done.output
    study = load_study(file)
    assert study.data.patient == "patient_id"
    assert study.data.domains == ("below 40", "40 to 65", "65 and over")
    assert study.data.label.codes == (("NO", ">30"), ("<30",))
    assert (study.data.features[0].outside, study.data.features[1].optional) == ("clip", True)
    assert study.expected.patients == (600, 500, 90)
    assert "epsilon 3.5" in done.stdout
    assert told == ["looking for the noises that the price allows"]


def test_a_data_dictionary_lists_the_columns(tmp_path):
    listed = tmp_path / "columns.csv"
    listed.write_text(
        "column,kind,minimum,maximum,values,unit,scale,optional\nage,number,0,120,,years,,\nstage,code,,,1|2|x,TNM,,yes\n"
    )
    file = tmp_path / "study.yaml"
    changes = {"--feature": None, "--columns": str(listed)}
    done = CliRunner().invoke(app, ["study", "new", *options(file, changes)])
    assert done.exit_code == 0, done.output
    assert load_study(file).data.features[1].values == (1, 2, "x")
    assert load_study(file).data.units == {"age": "years"}
    assert "# TNM" in file.read_text()


def test_all_wrong_answers_are_told_at_once_with_option_and_fix(tmp_path, monkeypatch, capsys):
    file, listed = tmp_path / "study.yaml", tmp_path / "columns.csv"
    listed.write_text("column,kind,minimum,maximum\nage,number,0,x\nb,code,1,\n")
    wrong = {
        "--name": "Bad Name",
        "--silo": ["one"],
        "--feature": ["a:nmbr:0:1", "b:number:5:1", "c:code:F,M:nosuch"],
        "--columns": str(listed),
        "--label": "back:yes=1",
        "--domain": "sex:code:F,M:names=f",
        "--patients": "6k",
        "--epsilon": "99",
        "--delta": "0.5",
    }
    code, told = run(monkeypatch, capsys, "new", *options(file, wrong))
    assert code == 1
    first, *faults = told.strip().splitlines()
    assert first == "fedward-silo: no study is written:"
    wanted = [
        "--feature 'a:nmbr", "--feature 'b:number", "--feature 'c:code", "line 2", "line 3", "--label", "--domain",
        "--patients", "--name", "--silo", "--epsilon", "--delta",
    ]  # fmt: skip
    assert len(faults) == len(wanted)
    assert all(any(word in fault for fault in faults) for word in wanted)
    assert all("; " in fault for fault in faults)
    assert not file.exists()


def test_what_is_missing_is_told_at_once(tmp_path, monkeypatch, capsys):
    code, told = run(monkeypatch, capsys, "new", "--out", str(tmp_path / "study.yaml"))
    missing = [line.split()[0] for line in told.strip().splitlines()[1:]]
    assert code == 1
    assert set(missing) == {
        "--name", "--purpose", "--silo", "--label", "--domain", "--patients", "--epsilon", "--feature",
    }  # fmt: skip


def test_an_existing_file_is_never_overwritten(tmp_path, monkeypatch, capsys):
    file = tmp_path / "study.yaml"
    file.write_text("mine")
    code, told = run(monkeypatch, capsys, "new", *options(file))
    assert (code, file.read_text()) == (1, "mine")
    assert "choose another name" in told


def test_a_terminal_is_asked_for_what_is_missing_and_again_for_what_is_wrong(tmp_path, monkeypatch):
    file = tmp_path / "study.yaml"
    changes = dict.fromkeys(("--silo", "--domain", "--feature", "--epsilon", "--patient")) | {"--patients": "600"}
    said = [
        "north, south",
        "",
        "sex:kode:F",
        "sex:code:F,M",
        "",
        "age:number:0:120",
        "",
        "",
        "",
        "maybe",
        "yes",
        "four",
        "4",
    ]
    monkeypatch.setattr("silo_agent.cli.studies.study.on_terminal", lambda: True)
    done = CliRunner().invoke(app, ["study", "new", *options(file, changes)], input="\n".join(said) + "\n")
    assert done.exit_code == 0, done.output
    study = load_study(file)
    assert (study.silos, study.data.domains) == (("north", "south"), ("F", "M"))
    assert study.personal == Personal(mmd=0.0)


@pytest.mark.parametrize(("option", "personal"), [("--own-models", Personal(mmd=0.0)), ("--no-own-models", None)])
def test_hospitals_may_keep_models_of_their_own(tmp_path, option, personal):
    file = tmp_path / "study.yaml"
    done = CliRunner().invoke(app, ["study", "new", *options(file), option])
    assert done.exit_code == 0, done.output
    assert load_study(file).personal == personal


def test_a_draft_is_completed_and_refused_elsewhere(tmp_path, monkeypatch, capsys):
    draft, file = tmp_path / "draft.yaml", tmp_path / "study.yaml"
    assert CliRunner().invoke(app, ["study", "new", *options(file)]).exit_code == 0
    written = load_study(file).model_dump(mode="json")
    kept = {name: written[name] for name in ("name", "purpose", "silos", "data", "expected")}
    draft.write_text(json.dumps({**kept, "privacy": {"epsilon": 2}}))
    monkeypatch.setattr("sys.argv", ["fedward-silo", "plan", str(draft)])
    with pytest.raises(SystemExit):
        program.main()
    assert "fedward-silo study complete DRAFT" in capsys.readouterr().err
    code, told = run(monkeypatch, capsys, "complete", str(draft), "--out", str(file))
    assert code == 1
    assert "choose another name" in told
    done = CliRunner().invoke(app, ["study", "complete", str(draft), "--out", str(tmp_path / "two.yaml")])
    assert done.exit_code == 0, done.output
    assert load_study(tmp_path / "two.yaml").heads.domain_noise > load_study(file).heads.domain_noise


def test_what_the_page_prints_runs_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands, columns, draft = re.findall(r"^```(?:yaml)?\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    Path("columns.csv").write_text(columns)
    Path("draft.yaml").write_text(draft)
    new = next(one for one in commands.replace("\\\n", "").splitlines() if "--name" in one)
    _, *arguments = shlex.split(new)
    whole = [*arguments[:-2], "--columns", "columns.csv", "--missing", "?", "--out", "more.yaml"]
    complete = ["study", "complete", "draft.yaml", "--out", "completed.yaml"]
    assert "`fedward-silo study complete draft.yaml --out study.yaml`" in SECTION
    for asked in (arguments, complete):
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, done.output
    assert load_study(Path("study.yaml")).data.inputs == 4
    assert load_study(Path("completed.yaml")).heads.clip == 0.4
    single = {place + more for place, one in enumerate(whole) if one == "--feature" for more in (0, 1)}
    listed = [one for place, one in enumerate(whole) if place not in single]
    assert CliRunner().invoke(app, listed).exit_code == 0
    assert load_study(Path("more.yaml")).data.inputs == 1 + 2 + 5


@pytest.mark.parametrize("example", re.findall(r"`((?:stage|days|sex):[^`]+)`", SECTION))
def test_every_answer_that_the_page_shows_is_understood(example):
    parse = answers.label if example.startswith(("stage", "days")) else answers.domain
    assert parse(example)["column"] == example.partition(":")[0]
