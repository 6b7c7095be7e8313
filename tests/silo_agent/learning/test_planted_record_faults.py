"""A fault planted for one record, in every function of `silo_agent.learning` and `silo_agent.data`.

docs/design/total.md, "A record on its own": whatever a function raises for one record moves the un-noised release by at
most that record's patient, or nothing is released at all (the gate then sends noise, tests/silo_agent/test_gate.py).
The functions are found by walking the modules. A function is called for the record if it is given one of the record's
cells, or while a chunk or a batch with the record is evaluated.
"""

import importlib
import inspect
import pkgutil
import sys
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np
import pytest

import silo_agent.data
import silo_agent.learning
from policies.plan.release import encoder_release, plan
from protos.messages import Place, Tensor
from silo_agent.data.reader import read_records
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.data.split import split
from silo_agent.learning import each_record
from silo_agent.learning.dpsgd import training
from silo_agent.learning.dpsgd.gradients import Gradients
from silo_agent.learning.dpsgd.step import PrivateStep
from silo_agent.learning.dpsgd.training import Training, train_encoder
from silo_agent.learning.encoder.encoder import build_encoder
from silo_agent.learning.learner import Learner
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.noise.draws import FreshDraws
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.releases.noising import SumGrid
from silo_agent.learning.terms.losses.cmi import Prior
from silo_agent.storage.folders import StudyFolder
from silo_agent.storage.rows import SealedRows
from support.entropy import SeededEntropy
from support.local_federation import DATA_SET, HOLDOUT, write_patients
from support.local_silos import SLOPES
from support.studies import tiny_study

FAULTS = (ValueError, MemoryError, ZeroDivisionError, RuntimeError)
AGES = ("97.125", "98.125")
"""The age of the record that the fault is planted for: of a patient who trains, and of one who evaluates."""
MARKS = (*AGES, "marked-")
STUDY = tiny_study(
    heads={"pooled_noise": 0, "domain_noise": 0},
    encoder={"noise": 0, "sampling_rate": 1.0},
    evaluation={"noise": 0},
    privacy={"mode": "none", "count_noise": 0},
)
RELEASES = ((0, Tensor.COUNTS), (2, Tensor.HEADS), (3, Tensor.METRICS))
APART = frozenset({"personal", "personal_process", "apart", "lean", "files"})
"""Modules that no release calls: the personal model and its process, the loading of libraries, model files."""


def functions():
    """Every function and method that the modules of the two rooms define: (module, owner, name)."""
    for room in (silo_agent.data, silo_agent.learning):
        for info in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
            if info.ispkg or info.name.rpartition(".")[2] in APART:
                continue
            module = importlib.import_module(info.name)
            for owner in (module, *(c for _, c in inspect.getmembers(module, inspect.isclass))):
                if owner is not module and owner.__module__ != module.__name__:
                    continue
                for name, found in vars(owner).items():
                    if inspect.isfunction(found) and found.__module__ == module.__name__:
                        yield module, owner, name


EVERY = {
    ".".join([m.__name__.removeprefix("silo_agent."), *([] if o is m else [o.__name__]), n]): (o, n)
    for m, o, n in functions()
}


class Planted:
    """The record, and whether code runs for it now."""

    def __init__(self):
        self.rows, self.now, self.fired = frozenset(), False, 0

    def concerns(self, given):
        return self.now or any(isinstance(one, str) and any(mark in one for mark in MARKS) for one in _flat(given))

    @contextmanager
    def within(self, rows):
        before, self.now = self.now, bool(self.rows & set(np.asarray(rows).ravel().tolist()))
        try:
            yield
        finally:
            self.now = before


def _flat(given):
    for one in given:
        # A longer tuple is all patients' and not one record's.
        yield from one if isinstance(one, tuple) and len(one) < 3 else (one,)


@contextmanager
def fault_in(owner, name, fault, planted):
    """The function raises whenever it is called for the record, under whatever name others imported it."""
    real = vars(owner)[name]

    def raises(*given, **words):
        if planted.concerns((*given, *words.values())):
            planted.fired += 1
            raise fault
        return real(*given, **words)

    with ExitStack() as stack:
        stack.enter_context(patch.object(owner, name, raises))
        for module in [m for n, m in sys.modules.items() if n.startswith("silo_agent.")]:
            for alias, found in list(vars(module).items()):
                if found is real:
                    stack.enter_context(patch.object(module, alias, raises))
        yield


@contextmanager
def watched(planted):
    """Chunks of sums, and those of DP-SGD, say for which records code runs."""
    attempted, integers = each_record._attempted, Gradients._integers

    def chunk(term, rows, values):
        def within(rows):
            with planted.within(rows):
                return term(rows)

        return attempted(within, rows, values)

    def of_gradients(self, batches, drawn, latent):
        with planted.within(drawn):
            return integers(self, batches, drawn, latent)

    with patch.object(each_record, "_attempted", chunk), patch.object(Gradients, "_integers", of_gradients):
        yield


@pytest.fixture(params=["patient", pytest.param("record", marks=pytest.mark.slow)])
def study(request):
    data = STUDY.data if request.param == "patient" else STUDY.data.model_copy(update={"patient": None})
    return STUDY.model_copy(update={"data": data})


@pytest.fixture
def home(tmp_path, study):
    write_patients(tmp_path / "site.csv", np.random.default_rng(3), SLOPES, patients=24)
    lines = (tmp_path / "site.csv").read_text().splitlines()
    names = [f"marked-{number}" for number in range(50)]
    (tmp_path / "names.csv").write_text("\n".join([lines[0], *(f"{name},a,{i},4,1" for i, name in enumerate(names))]))
    cohorts = split(read_records(tmp_path / "names.csv", study.data, ["patient"]).whole(), DATA_SET, HOLDOUT)
    chosen = [names[round(float((cohort.inputs[:][0, 0] + 1) * 60))] for cohort in cohorts]
    # A blank that Arrow knows of no number: the cell is read by itself, by every function that reads cells.
    lines[5:5] = [f"{name},a,\u00a0{age},4,1" for name, age in zip(chosen, AGES, strict=True)]
    (tmp_path / "site.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def called(run, *given):
    """Names of the functions that a run without a fault calls at all."""
    codes = set()
    sys.setprofile(lambda frame, event, _: codes.add(frame.f_code) if event == "call" else None)
    try:
        run(*given, Planted())
    finally:
        sys.setprofile(None)
    return [name for name, (owner, function) in EVERY.items() if vars(owner)[function].__code__ in codes]


def released(home, study, planted):
    """The un-noised releases, as statistics; None for one that is not released."""
    folder = home / "state" / "studies" / study.digest
    folder.mkdir(parents=True, exist_ok=True)
    given = {"draws": FreshDraws(SeededEntropy(1)), "device": "cpu"}
    found = {}
    kept = SealedRows(StudyFolder(folder), lambda: bytes(32), frozenset, SeededEntropy(2))
    StudyFolder(folder).rows.unlink(missing_ok=True)
    learner = Learner(
        study, DataSet(home / "site.csv", Division(DATA_SET, HOLDOUT, ("patient",))), folder, **given, kept=kept
    )
    model = SharedModel.start(study)
    learner.read()
    for number, tensor in RELEASES:
        release = plan(study).release(number, tensor)
        try:
            cohort = learner.cohort(release.cohort)
            ages, marked = (cohort.inputs[:][:, 0] + 1) * 60, float(AGES[tensor is Tensor.METRICS])
            planted.rows = frozenset(np.flatnonzero(np.abs(ages - marked) < 1e-4).tolist())
            integers = learner.contribution(release, Place(study.digest, number, 1), model, 3)
        except FAULTS:
            found[tensor] = None
        else:
            found[tensor] = integers * SumGrid.of(study).step
    return found


def test_a_fault_for_one_record_moves_a_release_by_that_record_alone(home, study):
    whole, step = released(home, study, Planted()), SumGrid.of(study).step
    fired, nobody = set(), set()
    for place, name in enumerate(called(released, home, study)):
        planted = Planted()
        with watched(planted), fault_in(*EVERY[name], FAULTS[place % len(FAULTS)], planted):
            found = released(home, study, planted)
        if planted.fired:
            fired.add(name)
        for tensor, expected in whole.items():
            if found[tensor] is None:
                nobody.add(name)
            else:
                moved = np.linalg.norm(found[tensor] - expected)
                assert moved <= 1.0 + step * np.sqrt(len(expected)), (name, tensor, moved)
    identifying = "data.split._position" if study.data.patient else "data.table._identity_part"
    assert {"data.cells.number", identifying, "learning.heads.sums.pack"} <= fired
    assert len(fired) >= 35, sorted(fired)
    assert nobody == set(), sorted(nobody)


def trained(study, records, planted):
    """The integers of the first step of DP-SGD, which everybody enters. The last record is the planted one."""
    encoding = study.encoder.model_copy(update={"steps": 2, "sampling_rate": 1.0, "learning_rate": 1e-9})
    planted.rows = frozenset([LAST])
    stochastic = encoding.cmi > 0
    found, take = [], PrivateStep.take
    with (
        patch.object(
            PrivateStep,
            "take",
            lambda self: found.append(np.concatenate([t.numpy() for t in self.totals])) or take(self),
        ),
        # The others' normals must not follow from how many records are drawn.
        patch.object(training, "gaussian", lambda _, shape: np.random.default_rng(0).normal(size=shape)),
    ):
        train_encoder(
            Training(
                encoder=build_encoder(study.model, study.data, stochastic=stochastic),
                heads=np.linspace(-2, 2, 15).reshape(3, 5),
                records=records,
                plan=encoding,
                release=encoder_release(study.model_copy(update={"encoder": encoding})),
                family=family_of(2),
                domain_weights=np.ones(3),
                prior=Prior(4, 2) if stochastic else None,
            ),
            mode="local",
            entropy=SeededEntropy(0),
        )
    return found[0]


LAST = 6
TRAININGS = {"table": {"cmi": 0.1}, "images": {"image": 8, "encoder": "cnn", "channels": (4, 4)}}


@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        pytest.param("table", FAULTS, id="table, in turn"),
        *(pytest.param(kind, (fault,), marks=pytest.mark.slow) for kind in TRAININGS for fault in FAULTS),
    ],
)
def test_a_fault_for_one_record_takes_its_gradient_alone_out_of_training(make_study, make_records, kind, faults):
    study = make_study(**TRAININGS[kind])
    records = make_records(LAST + 1, image=TRAININGS[kind].get("image"))
    whole = trained(study, records, Planted())
    without = trained(study, records.of_patients(np.arange(LAST + 1) != LAST), Planted())
    assert 0 < np.linalg.norm(whole - without) <= 2.0**26
    fired = set()
    for place, name in enumerate(called(trained, study, records)):
        planted = Planted()
        with watched(planted), fault_in(*EVERY[name], faults[place % len(faults)], planted):
            found = trained(study, records, planted)
        fired |= {name} if planted.fired else set()
        assert np.array_equal(found, without if planted.fired else whole), name
    assert PLACES[kind] <= fired, sorted(fired)


PLACES = {
    "table": {"learning.dpsgd.batches.Batches.take", "learning.dpsgd.clipping.to_integers"},
    "images": {"data.images.Images.take"},
}
