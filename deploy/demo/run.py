"""One demo from beginning to end: data, federation, study, comparison, report."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from deploy.demo import baselines, cohort, gather, report
from deploy.demo.report_data import MethodRow, PersonalResult, ReportData
from deploy.demo.sources import DemoSource, load_source
from deploy.local.federation import Federation
from deploy.local.folders import empty
from deploy.local.processes import FederationError
from deploy.local.watching import bars, stage, watch
from policies.documents.study import Study
from policies.reports.files import files as page_and_paper
from protos.status import StudyStatus
from silo_agent.data.reader import read_records
from silo_agent.data.records import Records
from silo_agent.data.sources.data_set import DataSet

STUDY_SECONDS = 900.0


@dataclass(frozen=True)
class DemoRequest:
    """What is asked for on the command line."""

    study: Path
    data: Path | None
    out: Path
    seed: int


class Demo:
    """One run. `result` leaves the report, all logs and the silos' folders below `request.out`."""

    def __init__(self, request: DemoRequest, console: Console) -> None:
        self._request, self._console = request, console
        self._source = load_source(request.study)
        self._tests: list[Path] = []

    def result(self) -> ReportData:
        """Run it, print the report and write the page."""
        empty(self._request.out)
        with bars(self._console) as progress:
            with stage(progress, "data"):
                files = self._files()
            folder = self._request.out / "federation"
            federation = Federation(folder, self._source.study_file, files, self._source.policy)
            with stage(progress, "certificates"):
                federation.prepare()
            with stage(progress, "coordinator and agents start"):
                federation.start()
            try:
                began = time.monotonic()
                federation.begin()
                status = watch(federation, progress, limit=STUDY_SECONDS)
                seconds = time.monotonic() - began
                federation.wait_for_silos()
            finally:
                federation.stop()
            data = self._gather(federation, status, seconds, progress)
        for name, content in page_and_paper(report.report(data), "report").items():
            (self._request.out / name).write_bytes(content)
        report.print_terminal(data, self._console)
        self._console.print(f"\nThe whole report: {self._request.out / 'report.html'}, on paper report.pdf")
        return data

    def _files(self) -> Mapping[str, Path]:
        """Each silo's own file; made-up patients come with public test files."""
        source, folder = self._source, self._request.data
        if not source.files:
            made = cohort.generate(self._request.out / "data", self._request.seed, law=source.law, times=source.times)
            self._tests = list(made.tests.values())
            return dict(zip(source.study.silos, made.sites, strict=True))
        if folder is None:
            names = ", ".join(source.files.values())
            msg = f"this study reads published files; give the folder that holds {names} with DATA=<folder>"
            raise FederationError(msg)
        files = {silo: folder / name for silo, name in source.files.items()}
        for silo, file in files.items():
            if not file.is_file():
                msg = f"{silo}: there is no file {file}; DATA must name the folder that holds it"
                raise FederationError(msg)
        return files

    def _gather(self, federation: Federation, status: StudyStatus, seconds: float, progress: Progress) -> ReportData:
        study = self._source.study
        with stage(progress, "ledgers and results"):
            budgets = gather.budgets(federation)
            sealed = gather.sealed_results(federation)
        methods: tuple[MethodRow, ...] = ()
        personal: tuple[PersonalResult, ...] = ()
        if self._tests:
            with stage(progress, "public test patients"):
                together = join_files(self._tests, self._request.out / "public-test.csv")
                found = gather.evaluations(federation, together)
            personal = gather.personal(found)
            shared = gather.areas(found[study.silos[0]]["shared"])
            spent = max(budget.spent for budget in budgets)
            with stage(progress, "FedAvg and hospitals alone"):
                compared = self._compare(federation.data, spent)
            methods = (MethodRow("FedWard", "a head per domain, sealed", shared, spent), *compared)
        return ReportData(
            title=self._source.title,
            study=study,
            budgets=budgets,
            seconds=seconds,
            methods=methods,
            sealed=sealed,
            uploads=gather.uploads(study, status),
            rounds=gather.rounds(status),
            phases=gather.phases(status),
            personal=personal,
            settings=settings(study),
            synthetic=not self._source.files,
        )

    def _compare(self, files: Mapping[str, Path], target: float) -> tuple[MethodRow, ...]:
        """FedAvg with DP-SGD at the same epsilon, and every hospital alone without privacy, on the same records."""
        study = self._source.study
        training = [training_records(self._source, silo, file) for silo, file in files.items()]
        public = [read_records(test, study.data).whole() for test in self._tests]
        average = baselines.fedavg(training, public, study, target, seed=self._request.seed, network=baselines.NETWORK)
        alone = baselines.alone(training, public)
        spread = tuple(
            (float(low), float(high)) for low, high in zip(alone.min(axis=0), alone.max(axis=0), strict=True)
        )
        return (
            MethodRow("FedAvg with DP-SGD", "a head per domain, noise at every silo", average.auc, average.epsilon),
            MethodRow(
                "hospitals alone", "mean of the hospitals, no privacy", tuple(np.mean(alone, axis=0)), spread=spread
            ),
        )


def training_records(source: DemoSource, silo: str, file: Path) -> Records:
    """The records that this silo's agent trains on."""
    return DataSet.of(source.policy_of(silo), file).cohorts(source.study.data)[0]


def join_files(files: list[Path], target: Path) -> Path:
    """One file of several with the same header."""
    with target.open("w", encoding="utf-8") as out:
        for i, file in enumerate(files):
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            out.writelines(lines if i == 0 else lines[1:])
    return target


def settings(study: Study) -> tuple[tuple[str, str], ...]:
    """The study's choices that a reader asks for first."""
    heads, encoder, model = study.heads, study.encoder, study.model
    inputs = f"{study.data.inputs} inputs" if study.data.image is None else f"image and {study.data.inputs} inputs"
    found = [
        ("rounds", f"{heads.pooled_rounds} on one pooled head, {heads.domain_rounds} on a head per domain"),
        ("solver of heads", heads.solver),
        ("noise of heads", f"{heads.pooled_noise:g} pooled, {heads.domain_noise:g} per domain ({study.privacy.mode})"),
    ]
    if model.encoder == "raw":
        return (("encoder", f"none: the heads read the {inputs}"), *found)
    layers = " - ".join(map(str, (inputs, *model.hidden, model.representation)))
    return (
        ("encoder", f"{model.encoder}, {layers}, tanh"),
        *found,
        ("encoder steps", f"{encoder.steps} a round, sampling rate {encoder.sampling_rate:g}, noise {encoder.noise:g}"),
        ("L2R and CMI", f"{encoder.l2r:g} and {encoder.cmi:g}, in the same clipped, noised step"),
    )
