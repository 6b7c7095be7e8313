"""A process that trains one study's personal model: `python -m silo_agent.learning.personal.process JOB`.

It reads shared models from the disk, and the rows that the study began with, and writes the personal model, and after
the study's last round this hospital's choice of the model that it predicts with. It tells the agent nothing: not by a
message, not by an exit code that is looked at, and not by the processor or memory that it takes (lowest priority, a
limit on memory, and the first to be ended if memory runs out). What it has to say goes to `personal.log`, beside the
model. `starter` starts it and wakes it by a byte on its standard input; it ends when that is closed, or when there was
nothing to do for a while.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import select
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Final

import structlog

from common.file_lock import lock
from crypto.entropy import Entropy, SystemEntropy
from policies.documents.study import Study
from policies.plan import shapes
from silo_agent.data.image_store import reserve
from silo_agent.data.records import Records
from silo_agent.data.sources.data_set import DataSet
from silo_agent.learning.alone.fitting import FittedAlone, fit
from silo_agent.learning.alone.model import AloneModel
from silo_agent.learning.device import choose_device, limit_threads
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model import files
from silo_agent.learning.model.kept_parts import completed
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.choice import FEWEST, Choice
from silo_agent.learning.personal.cross_validation import choose, own_folds
from silo_agent.learning.personal.model import PersonalModel, train_round
from silo_agent.learning.personal.own_patients import warnings
from silo_agent.logs import configure
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StudyFolder
from silo_agent.storage.model_warnings import keep
from silo_agent.storage.rows import SealedRows

log = structlog.get_logger()
LINGER_SECONDS: Final = 10.0
"""How long it waits for the next round before it ends. Starting anew costs more than waiting."""
LOWEST: Final = 19
"""Priority (nice) of the process: whatever else the machine has to do goes first."""
_LEAST_BYTES: Final = 2 << 30
_WAKE_BYTES: Final = 4096


@dataclass(frozen=True)
class Job:
    """All that the training of one study's personal model reads, beside the models in `folder`."""

    folder: str
    data_set: DataSet
    device: str
    threads: int | None = None
    key: bytes | None = field(default=None, repr=False)
    """Opens the rows that the study began with. The process is told it on its standard input, where nobody sees it."""

    def text(self) -> str:
        """The job as an argument of the process."""
        document = self.data_set.document()
        return json.dumps({"folder": self.folder, "data_set": document, "device": self.device, "threads": self.threads})

    def told(self) -> bytes:
        """The first line of the process's standard input: the key."""
        return (self.key or b"").hex().encode() + b"\n"

    @classmethod
    def parse(cls, text: str) -> Job:
        """Inverse of `text`."""
        fields = json.loads(text)
        return cls(**{**fields, "data_set": DataSet.parse(fields["data_set"])})


def want_round(folder: StudyFolder, round_number: int) -> None:
    """Write down, at once or not at all, up to which round the personal model is to be trained."""
    beside = folder.personal_wanted.with_suffix(".new")
    beside.write_text(str(round_number), encoding="ascii")
    beside.replace(folder.personal_wanted)


def wanted_round(folder: StudyFolder) -> int:
    """The round up to which the personal model is still to be trained; 0 if nothing is left to do."""
    return max(_read(folder.personal_wanted), _read(folder.personal_taken))


def _read(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return 0


def _take(folder: StudyFolder) -> int:
    """Take what is wanted; what is wanted from now on stands beside it. What failed before is still taken."""
    with suppress(FileNotFoundError):
        folder.personal_wanted.replace(folder.personal_taken)
    return _read(folder.personal_taken)


def train_up_to(
    folder: StudyFolder, round_number: int, training: Callable[[], Records], *, entropy: Entropy, device: str = "cpu"
) -> None:
    """Train on every finished round of the heads up to this one that the personal model has not read, in order."""
    first = PersonalModel.load(folder.personal).round + 1 if folder.personal.exists() else 1
    for number in range(first, round_number + 1):
        shared = _finished(folder.model(number))
        if shared is not None and shapes.head_round(shared.study, number) is not None:
            train_round(folder.personal, shared, training, entropy=entropy, device=choose_device(device))


def choose_after(
    folder: StudyFolder, round_number: int, training: Callable[[], Records], *, entropy: Entropy, device: str = "cpu"
) -> None:
    """Fit a model of this hospital's records alone, if this round was the study's last, and choose what predicts here.

    Without personal models nothing is chosen: the model alone is what the shared one is held against. Known choices
    stay, and so does a model that is there if nothing is to be chosen.
    """
    last = _finished(folder.model(round_number))
    if last is None or round_number != last.study.rounds or _is_done(folder, last):
        return
    alone = _fit_alone(folder, last, training())
    if last.study.personal is None:
        return
    kept = {number: _finished(folder.model(number)) for number in range(round_number + 1)}
    models = {number: model for number, model in kept.items() if model is not None}
    plan, on = last.study.personal, choose_device(device)
    choice = choose(models, training(), plan, entropy=entropy, alone=alone, device=on)
    personal, own = (_sha256(path) for path in (folder.personal, folder.alone))
    replace(choice, personal=personal, alone=own).save(folder.choice)


def _fit_alone(folder: StudyFolder, last: SharedModel, training: Records) -> FittedAlone | None:
    """Fit and keep it; None with too few patients, or if that fails, and then none is kept.

    What this model lacks (memory, a library) must not cost the hospital its choice among the others.
    """
    found = None
    if training.patient_count >= FEWEST:
        try:
            found = fit(training, own_folds(training, last.study.digest), last.study, last.round)
        except Exception:  # noqa: BLE001  # the hospital reads it in `personal.log`
            traceback.print_exc()
    if found is None:
        folder.alone.unlink(missing_ok=True)
    else:
        found.model.save(folder.alone)
    return found


def _sha256(path: Path) -> str:
    return hashlib.sha256(files.read(path)).hexdigest() if path.exists() else ""


def warn_after(
    folder: StudyFolder, round_number: int, cohorts: Callable[[], tuple[Records, Records]], *, device: str = "cpu"
) -> None:
    """Hold a round's shared model against this hospital's own patients, and tell its people what is found."""
    shared = _finished(folder.model(round_number))
    if shared is None:
        return
    found = warnings(shared, *cohorts(), choose_device(device))
    keep(folder.warnings, round_number, found)
    for one in found:
        log.warning(
            "look at this study's model", study=shared.study.digest[:12], round=round_number, why=one.brief,
            fix="see the figures with `fedward-silo studies`; check the label's codes and the units",
        )  # fmt: skip


def _is_done(folder: StudyFolder, shared: SharedModel) -> bool:
    """Whether what comes after the last round is there for this very model. What cannot be read is made anew."""
    try:
        if shared.study.personal is None:
            return AloneModel.load(folder.alone).study.digest == shared.study.digest
        return Choice.load(folder.choice).shared == shared.digest
    except ModelFileError:
        return False


def _finished(path: Path) -> SharedModel | None:
    """A round's complete model; None without one, or if the agent removes it meanwhile, as those of sealed steps."""
    try:
        model = SharedModel.load(path)
        return completed(model, StudyFolder(path.parent), model.round + 1)
    except ModelFileError:
        if path.exists():
            raise
        return None


@contextmanager
def _alone(folder: StudyFolder) -> Iterator[None]:
    """Wait until no other process works on this study's personal model, and keep others from it.

    One that an agent left behind when it was killed still trains when the next agent starts another.
    """
    held = os.open(folder.personal_log, os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(held, "wb"):  # the lock ends with the process, however that ends
        lock(held)
        yield


def work_off(job: Job) -> None:
    """Train, and choose after the last round, until nothing is wanted any more. Raises whatever the training raises."""
    with _alone(StudyFolder(Path(job.folder))):
        _work_off(job)


def _work_off(job: Job) -> None:
    folder, entropy = StudyFolder(Path(job.folder)), SystemEntropy()
    while wanted := _take(folder):
        # Of one round: a patient may withdraw before the next.
        cohorts = cache(partial(_cohorts, job, folder, wanted))
        warn_after(folder, wanted, cohorts, device=job.device)
        training = partial(_first, cohorts)
        if _finished_study(folder, wanted).personal is not None:
            train_up_to(folder, wanted, training, entropy=entropy, device=job.device)
        choose_after(folder, wanted, training, entropy=entropy, device=job.device)
        folder.personal_taken.unlink(missing_ok=True)


def _first(cohorts: Callable[[], tuple[Records, Records]]) -> Records:
    return cohorts()[0]


def _finished_study(folder: StudyFolder, round_number: int) -> Study:
    return SharedModel.load(folder.model(round_number)).study


def _cohorts(job: Job, folder: StudyFolder, wanted: int) -> tuple[Records, Records]:
    """The records for training and for evaluation as they are now. The model of the round `wanted` has the study."""
    study = _finished_study(folder, wanted)
    image = study.data.image
    room = None if image is None else reserve(image, study.privacy.max_patients)
    kept = None if job.key is None else _rows(folder, job.key)
    return job.data_set.cohorts(study.data, kept=kept, room=room)


def _rows(folder: StudyFolder, key: bytes) -> SealedRows:
    """The rows that the study began with. The agent, who alone can open the list of withdrawals, keeps them by it."""
    rows = SealedRows(folder, lambda: key, frozenset, SystemEntropy())
    if rows.stamp() is not None and not rows.kept():
        msg = "somebody has withdrawn, and no rows of this study were kept; its personal model is not trained further"
        raise StateError(msg)
    return rows


def _told() -> bytes | None:
    """Read the key from standard input. Raises EOFError if its line never ends: the agent died before it said it."""
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            raise EOFError
        line += byte
    return bytes.fromhex(line.decode("ascii")) or None


def _step_back(device: str) -> None:
    """Leave processor and memory to the agent."""
    os.nice(LOWEST)
    with suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    if device == "cpu":
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        resource.setrlimit(resource.RLIMIT_DATA, (max(half, _LEAST_BYTES), resource.RLIM_INFINITY))


def main(text: str) -> None:
    """Work until standard input is closed or nothing was wanted for `LINGER_SECONDS`."""
    try:
        job = replace(Job.parse(text), key=_told())
    except EOFError:
        return  # without the key, the rows that a patient has left could not be told from the others
    configure(sys.stdout)  # the agent's own log; what goes wrong here goes to the standard error, `personal.log`
    _step_back(job.device)
    limit_threads(job.threads)
    woken = True
    while woken:
        try:
            work_off(job)
        except Exception:  # noqa: BLE001  # it is tried again for the next round
            traceback.print_exc()
        woken = bool(select.select([0], [], [], LINGER_SECONDS)[0]) and bool(os.read(0, _WAKE_BYTES))


if __name__ == "__main__":
    main(sys.argv[1])
