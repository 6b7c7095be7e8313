"""The personal model's process, seen from the agent: never waited for, never heard, tried again."""

import fcntl
import hashlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from structlog.testing import capture_logs

from silo_agent.config import SqlSource
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.data.sources.snapshot import forget
from silo_agent.data.table import Written
from silo_agent.learning.alone.fitting import fit
from silo_agent.learning.alone.model import AloneModel
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal import process as personal_process
from silo_agent.learning.personal import starter
from silo_agent.learning.personal.choice import ALONE, MIXED, Choice
from silo_agent.learning.personal.cross_validation import choose, own_folds
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.learning.personal.process import Job, train_up_to, want_round, wanted_round, work_off
from silo_agent.learning.personal.starter import PersonalStarter
from silo_agent.storage.folders import StudyFolder
from support.entropy import SeededEntropy
from support.local_federation import DATA_SET, HOLDOUT, write_patients
from support.local_silos import SLOPES
from support.stores import Memory
from support.studies import tiny_study

STUDY = tiny_study(personal={"epochs": 1})
STOP = threading.Event()
TRAINS = """
import os, pathlib, sys
home = pathlib.Path(sys.argv[1])
while os.read(0, 4096):
    pass
for name in ("personal.wanted", "personal.taken"):
    (home / name).unlink(missing_ok=True)
"""


def test_it_works_again_whenever_it_is_woken_and_ends_when_nobody_asks(tmp_path, monkeypatch):
    job = Job(
        str(tmp_path), DataSet(tmp_path / "data.csv", Division(DATA_SET, HOLDOUT, ("patient",))), "cpu", 1, b"key"
    )
    worked, (heard, told), before = [], os.pipe(), os.dup(0)

    def work(one):
        worked.append(one)
        if len(worked) < 3:
            os.write(told, b"x" * len(worked))
        if len(worked) == 2:
            raise MemoryError

    for name in ("_step_back", "limit_threads", "configure"):
        monkeypatch.setattr(personal_process, name, lambda *_: None)
    monkeypatch.setattr(personal_process, "work_off", work)
    monkeypatch.setattr(personal_process, "LINGER_SECONDS", 0.01)
    try:
        os.dup2(heard, 0)
        os.write(told, job.told())
        personal_process.main(job.text())
    finally:
        os.dup2(before, 0)
        for descriptor in (heard, told, before):
            os.close(descriptor)
    assert worked == [job] * 3


@pytest.mark.parametrize(("gibibytes", "limit"), [(1, 2), (4, 2), (6, 3)])
def test_it_steps_back_and_has_half_the_memory_but_two_gibibytes_everywhere(gibibytes, limit, monkeypatch):
    nice, limits, system = [], [], {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": gibibytes << 18}
    monkeypatch.setattr(personal_process.os, "nice", nice.append)
    monkeypatch.setattr(personal_process.os, "sysconf", system.__getitem__)
    monkeypatch.setattr(personal_process.resource, "setrlimit", lambda *given: limits.append(given))
    monkeypatch.setattr(personal_process.Path, "write_text", lambda *_, **__: 0)
    personal_process._step_back("cpu")
    assert (nice, limits) == ([19], [(resource.RLIMIT_DATA, (limit << 30, resource.RLIM_INFINITY))])
    personal_process._step_back("cuda")
    assert len(limits) == 1, "a driver of a GPU reserves more than it uses"


@pytest.fixture
def job(tmp_path):
    data = write_patients(tmp_path / "site.csv", np.random.default_rng(1), SLOPES, patients=20)
    home = tmp_path / "study"
    home.mkdir()
    start = SharedModel.start(STUDY)
    for number in (1, 2):
        start.with_heads(start.heads, number).save(StudyFolder(home).model(number))
    return Job(str(home), DataSet(data, Division(DATA_SET, HOLDOUT, ("patient",))), "cpu", 1)


@pytest.fixture
def home(job):
    return StudyFolder(personal_process.Path(job.folder))


@pytest.fixture
def larger(job):
    """The same job with enough patients for a model of their own."""
    write_patients(job.data_set.source, np.random.default_rng(2), SLOPES, patients=120)
    return job


@pytest.fixture
def pretend(monkeypatch):
    """Processes that run a script instead of training; returns those that were started."""
    started = []

    def with_script(script):
        def start(job):
            command = [sys.executable, "-S", "-c", script, job.folder]
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0))
            return started[-1]

        monkeypatch.setattr(starter, "_start", start)
        return started

    return with_script


def test_a_job_is_read_back_as_it_was_written(job):
    assert Job.parse(job.text()) == job
    written = Written(";", ("patient", "ill"), ("?",), {"ill": {"yes": 1, "9": None}})
    written = replace(job, data_set=replace(job.data_set, written=written))
    assert Job.parse(written.text()) == written
    database = SqlSource(url="sqlite:////ward.db", statement="SELECT 1")
    asked = replace(job, data_set=replace(job.data_set, source=database))
    assert Job.parse(asked.text()) == asked
    assert "key" not in json.loads(job.text())


def test_every_finished_round_is_trained_in_order_and_none_twice(job, home):
    want_round(home, 2)
    work_off(job)
    assert PersonalModel.load(home.personal).round == 2
    assert wanted_round(home) == 0
    before = home.personal.read_bytes()
    want_round(home, 2)
    work_off(job)
    assert home.personal.read_bytes() == before


def test_who_withdraws_between_two_rounds_is_in_no_later_training(job, home, monkeypatch):
    """The process still runs, and has read the records for the round before."""
    store, read, people = Memory(), [], []
    monkeypatch.setattr(personal_process, "_rows", lambda *_: store)
    train = train_up_to

    def trained(folder, wanted, training, **named):
        people.append(set(training().identities))
        train(folder, wanted, training, **named)
        read.append(wanted)
        if wanted == 1:
            gone = min(people[0])
            store.people.add(gone)
            forget(store, [gone])
            want_round(home, 2)

    monkeypatch.setattr(personal_process, "train_up_to", trained)
    want_round(home, 1)
    work_off(replace(job, key=b"of the rows"))
    assert read == [1, 2]
    assert people[1] == people[0] - {min(people[0])}


def test_training_is_the_same_whether_its_rounds_came_together_or_apart(job, home):
    trained = []
    for steps in ((2,), (1, 2)):
        entropy = SeededEntropy(1)
        home.personal.unlink(missing_ok=True)
        for number in steps:
            train_up_to(home, number, lambda: _training(job), entropy=entropy)
        trained.append(home.personal.read_bytes())
    assert trained[0] == trained[1]


def test_after_the_last_round_a_hospital_chooses_once_and_anew_beside_another_model(job, home, monkeypatch):
    chosen = []
    with monkeypatch.context() as patch:
        patch.setattr(personal_process, "choose", lambda *a, **k: chosen.append(max(a[0])) or choose(*a, **k))
        want_round(home, 1)
        work_off(job)
        assert not home.choice.exists(), "the study has another round"
        for damage in (None, None, b"damaged"):
            if damage:
                home.choice.write_bytes(damage)
            want_round(home, 2)
            work_off(job)
        last = SharedModel.load(home.model(2))
        last.with_heads(last.heads + 1.0, 2).save(home.model(2))
        want_round(home, 2)
        work_off(job)
    assert chosen == [2, 2, 2], "at first, after the damage, and beside the other model"
    choice = Choice.load(home.choice)
    assert (choice.round, choice.shared) == (2, SharedModel.load(home.model(2)).digest)
    assert choice.personal == hashlib.sha256(home.personal.read_bytes()).hexdigest()
    assert home.choice.stat().st_mode & 0o777 == 0o600


def test_a_model_of_ones_own_records_is_fitted_and_chosen_among(larger, home):
    want_round(home, 2)
    work_off(larger)
    choice = Choice.load(home.choice)
    assert choice.alone == hashlib.sha256(home.alone.read_bytes()).hexdigest()
    assert {ALONE, MIXED} <= {one.candidate for one in choice.compared}


def test_without_personal_models_the_shared_one_still_has_something_to_be_held_against(larger, home, monkeypatch):
    """A model of the hospital's own records, made once: nothing is chosen, and nothing else is trained."""
    job, study, fitted = larger, tiny_study(), []
    for number in (1, 2):
        replace(SharedModel.load(home.model(number)), study=study).save(home.model(number))
    monkeypatch.setattr(personal_process, "fit", lambda *given: fitted.append(given) or fit(*given))
    for wanted in (1, 2, 2):
        want_round(home, wanted)
        work_off(job)
        assert home.alone.exists() == (wanted == 2)
    ((records, fold, of, number),) = fitted
    assert (of.digest, number) == (study.digest, 2)
    np.testing.assert_array_equal(fold, own_folds(_training(job), study.digest))
    assert records.identities == _training(job).identities, "held-out patients are never read"
    assert AloneModel.load(home.alone).study.digest == study.digest
    assert home.alone.stat().st_mode & 0o777 == 0o600
    assert not home.personal.exists()
    assert not home.choice.exists()


def test_with_too_few_patients_there_is_no_model_of_ones_own_records(larger, home, monkeypatch):
    home.alone.write_bytes(b"of an earlier study")
    monkeypatch.setattr(personal_process, "FEWEST", 10_000)
    want_round(home, 2)
    work_off(larger)
    assert not home.alone.exists()
    choice = Choice.load(home.choice)
    assert choice.alone == ""
    assert not {ALONE, MIXED} & {one.candidate for one in choice.compared}


def test_a_model_of_ones_own_records_that_fails_costs_nobody_the_choice(larger, home, monkeypatch, capsys):
    def fails(*_):
        raise MemoryError

    monkeypatch.setattr(personal_process, "fit", fails)
    want_round(home, 2)
    work_off(larger)
    choice = Choice.load(home.choice)
    assert (choice.alone, len(choice.compared)) == ("", 4)
    assert not home.alone.exists()
    assert "MemoryError" in capsys.readouterr().err


def test_a_choice_that_was_cut_off_is_made_when_the_process_runs_again(job, home, monkeypatch):
    def fails(*_, **__):
        raise MemoryError

    want_round(home, 2)
    with monkeypatch.context() as patch:
        patch.setattr(personal_process, "choose", fails)
        with pytest.raises(MemoryError):
            work_off(job)
    assert (wanted_round(home), home.choice.exists()) == (2, False)
    work_off(job)
    assert (wanted_round(home), home.choice.exists()) == (0, True)


def test_two_processes_never_train_one_model_at_once(job, home):
    """One that a killed agent left behind, and that of the next agent."""
    want_round(home, 2)
    second = threading.Thread(target=work_off, args=(job,))
    with home.personal_log.open("ab") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        second.start()
        second.join(0.5)
        assert (wanted_round(home), home.personal.exists()) == (2, False)
    second.join()
    assert (wanted_round(home), PersonalModel.load(home.personal).round) == (0, 2)


def _training(job):
    return job.data_set.cohorts(STUDY.data)[0]


def test_what_failed_or_came_meanwhile_stays_wanted(job, home, monkeypatch):
    want_round(home, 1)

    def fails(*_, **__):
        want_round(home, 2)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(personal_process, "train_up_to", fails)
        with pytest.raises(MemoryError):
            work_off(job)
    assert wanted_round(home) == 2
    work_off(job)
    assert (PersonalModel.load(home.personal).round, wanted_round(home)) == (2, 0)


@pytest.mark.parametrize("script", ["raise MemoryError", "import os; os.abort()", "import time; time.sleep(600)"])
def test_the_agent_neither_waits_for_a_training_nor_hears_of_it(job, home, pretend, script):
    """A training that crashes, is killed, or hangs."""
    started = pretend(script)
    trainer = PersonalStarter(lambda _: job)
    with capture_logs() as said:
        for number in (1, 2, 2):
            trainer.want(STUDY, number)
    assert said == []
    assert wanted_round(home) == 2
    trainer.stop()
    assert all(process.returncode is not None for process in started)


def test_a_training_that_cannot_be_started_is_nobodys_business(job, monkeypatch):
    def fails(_job):
        raise MemoryError

    monkeypatch.setattr(starter, "_start", fails)
    PersonalStarter(lambda _: job).want(STUDY, 1)
    PersonalStarter(fails).want(STUDY, 1)


def test_one_process_is_woken_again_and_the_end_waits_for_it(job, home, pretend):
    started = pretend(TRAINS)
    trainer = PersonalStarter(lambda _: job)
    trainer.want(STUDY, 1)
    trainer.want(STUDY, 2)
    trainer.finish(STOP)
    assert len(started) == 1
    assert wanted_round(home) == 0


def test_nobody_waits_for_warnings_alone(job, home, pretend):
    pretend("import time; time.sleep(600)")
    trainer = PersonalStarter(lambda _: job)
    trainer.want(tiny_study(), 1)
    trainer.finish(STOP)
    trainer.stop()
    assert wanted_round(home) == 1, "it is looked at when an agent starts"


def test_a_training_that_was_killed_is_tried_once_more_at_the_end(job, home, pretend):
    started = pretend(TRAINS)
    trainer = PersonalStarter(lambda _: job)
    trainer.want(STUDY, 1)
    started[0].kill()
    started[0].wait()
    trainer.finish(STOP)
    assert len(started) == 2
    assert wanted_round(home) == 0


def test_a_wish_to_stop_ends_the_wait(job, home, pretend):
    pretend("import time; time.sleep(600)")
    trainer, stop = PersonalStarter(lambda _: job), threading.Event()
    trainer.want(STUDY, 1)
    stop.set()
    trainer.finish(stop)
    assert wanted_round(home) == 1


def test_a_long_wait_says_what_is_waited_for(job, pretend, monkeypatch):
    pretend("import os, time\nwhile os.read(0, 4096): pass\ntime.sleep(0.5)")
    monkeypatch.setattr(starter, "_SAY_SECONDS", 0.0)
    trainer = PersonalStarter(lambda _: job)
    trainer.want(STUDY, 1)
    with capture_logs() as said:
        trainer.finish(STOP)
    assert len(said) >= 2
    assert {line["study"] for line in said} == {STUDY.digest[:12]}
    assert "waiting for the personal model's training" in said[0]["event"]
    assert said[0]["seconds"] <= said[-1]["seconds"]
    assert "end the agent" in said[0]["fix"]
    with capture_logs() as said:
        trainer.stop()
    assert said == []


def test_what_a_process_says_is_added_to_the_hospitals_log(job, home, monkeypatch):
    popen = subprocess.Popen

    def says(_command, **how):
        script = "import os\nwhile os.read(0, 4096): pass\nos.write(2, b'said ')"
        return popen([sys.executable, "-S", "-c", script], **how)

    monkeypatch.setattr(subprocess, "Popen", says)
    for _ in range(2):
        process = starter._start(job)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
        process.communicate()
    assert home.personal_log.read_text() == "said said "
    assert home.personal_log.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_real_process_trains_at_the_lowest_priority_and_says_everything_inside(job, home):
    """On a busy machine it gets next to no time: one process does it all, and only a hanging one meets the limit."""
    sound = home.model(1).read_bytes()
    home.model(1).write_bytes(b"damaged")
    trainer = PersonalStarter(lambda _: job)
    trainer.want(STUDY, 1)
    (process,) = trainer._processes.values()
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19, "while it loads its libraries, too"
    while "ModelFileError" not in home.personal_log.read_text():
        assert process.poll() is None, "it goes on after what it could not train"
        time.sleep(0.05)
    assert (wanted_round(home), home.personal.exists()) == (1, False)
    home.model(1).write_bytes(sound)
    trainer.want(STUDY, 2)
    trainer.finish(STOP)
    assert process.returncode == 0
    assert (PersonalModel.load(home.personal).round, wanted_round(home)) == (2, 0)
    assert home.personal_log.stat().st_mode & 0o777 == 0o600
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19


@pytest.mark.slow
def test_without_the_line_of_its_key_a_process_trains_nothing(job, home):
    """The agent died before it said the key: the hospital's file may still have those who have withdrawn."""
    want_round(home, 2)
    command = [sys.executable, "-P", "-m", "silo_agent.learning.personal.process", job.text()]
    subprocess.run(command, input=b"00", check=True)
    assert (home.personal.exists(), wanted_round(home)) == (False, 2)
    subprocess.run(command, input=job.told(), check=True)
    assert (home.personal.exists(), wanted_round(home)) == (True, 0)
