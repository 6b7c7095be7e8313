"""A study's folder: `study.yaml`, `policy.yaml` for every silo, and `data.yaml` if real files are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from deploy.demo.cohort import LawName
from deploy.local.silo_policies import silo_policy
from policies.documents.document import Closed, read_document
from policies.documents.policy import Policy
from policies.documents.study import Name, Study, load_study


class DataFiles(Closed):
    """`data.yaml`: title of the study, and each silo's file below the folder that the user gives.

    If there are no files, the data are made up: by which law, and how many times the patients of the cohort.
    """

    title: Annotated[str, Field(min_length=1)]
    files: dict[Name, str] = Field(default_factory=dict)
    """Empty if the data are made up."""
    law: LawName = "linear"
    times: Annotated[int, Field(ge=1, le=20)] = 1


@dataclass(frozen=True)
class DemoSource:
    """What a study's folder says."""

    study: Study
    study_file: Path
    policy: str
    """Text of every silo's policy, with `silo_policies.DATA_SET` for its data set."""
    title: str
    files: Mapping[str, str]
    law: LawName
    times: int

    def policy_of(self, silo: str) -> Policy:
        """A silo's policy; its data set is named after it."""
        return silo_policy(self.policy, silo, self.study_file)


def load_source(folder: Path) -> DemoSource:
    """Read a study's folder. Raises `DocumentError`."""
    data = read_document(folder / "data.yaml", DataFiles)
    study_file = folder / "study.yaml"
    policy = (folder / "policy.yaml").read_text(encoding="utf-8")
    return DemoSource(load_study(study_file), study_file, policy, data.title, data.files, data.law, data.times)
