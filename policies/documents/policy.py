"""The policy: what one silo allows, written by its data-protection officer.

Guarantees: a policy that loads is complete and consistent. Only `data_set.public`, `data_set.file.encoding`,
`hand_over`, `spelling`, `approved_data` and `polls` may be left out: the data are then private, the file is UTF-8 and
read as studies say, no model is handed over, no study gets data that nobody named for it, and no poll is answered, so
nothing is allowed by omission. Every field is enforced: by decision.py and file_fit.py for each study, by ledger.py for
the budget and for the fields that the ledger is bound to, by the agent's reader for the file, by its approval.py for
signatures, and by its retention.py for the removal of files. The policy's digest is in every ledger entry.
docs/policy.md explains the fields; `policy.schema.json` is generated from here (schema.py).
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from common import names
from policies import file_kinds
from policies.documents.document import read_document
from policies.documents.sections.data import ColumnName
from policies.documents.sections.evaluation import METRICS, Metric
from policies.documents.sections.kinds import Name, PolicyPart, printable
from policies.documents.sections.spelling import UTF_8, FileFormat, Spelling

NoiseMode = Literal["local", "distributed"]
Architecture = Literal["mlp", "cnn", "resnet18"]
Approver = Annotated[str, Field(pattern=f"^fedward://(approver|operator)/{names.PATTERN}$")]
"""Operators stand in policies of versions up to 0.6. They stay readable, and no new one comes into force."""
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Names = Annotated[str, Field(pattern=r"^[a-z0-9*]([a-z0-9*-]{0,61}[a-z0-9*])?$")]
"""Names of studies: one, or with `*` for any text."""
Epsilon = Annotated[float, Field(gt=0, le=32)]
Share = Annotated[float, Field(gt=0, le=1)]

VERSION = 4
OLDEST = 3
"""The oldest version that is read and may stay in force."""
_ADDED = {
    2: (
        "budget.relation",
        "budget.expires",
        "encoder_sealing",
        "smallest_domain",
        "limits.round_epsilon",
        "limits.architectures",
        "split",
        "publish",
        "retention_days",
        "approvers",
    ),
    3: ("data_set.identified_by",),
    4: ("data_set.file", "limits.memory_mib"),
}
"""Fields that policies of older versions did not have to state, by the version that first requires them."""
_MEANT: dict[str, dict[str, object]] = {
    "data_set": {"file": {"delimiter": ",", "columns": []}},
    "limits": {"memory_mib": 16_384},
}
"""What a policy of version 3 means by the fields that it cannot state. A study that needs anything else is refused, so
nothing is allowed by omission."""
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _written_day(value: object) -> object:
    """Accept only YYYY-MM-DD, because pydantic would read a number as seconds since 1970."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _DAY.fullmatch(value):
        msg = "write the day as YYYY-MM-DD"
        raise ValueError(msg)
    return value


Day = Annotated[date, BeforeValidator(_written_day)]


class DataRule(PolicyPart):
    """Studies that get data without anybody being asked: by name, purpose and author, whose signature is verified."""

    studies: Names
    """Names of studies."""
    author: Annotated[str, Field(pattern=f"^fedward://author/{names.PATTERN}$")]
    """Who must have signed the study."""
    purpose: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(printable)]
    """What the study must state as its purpose, with `*` for any text."""

    @property
    def text(self) -> str:
        """The rule in words, as part of a sentence."""
        purpose = "any purpose" if self.purpose == "*" else f"the purpose {self.purpose!r}"
        return f"named {self.studies}, signed by {self.author}, with {purpose}"

    def gives(self, study: str, purpose: str, author: str) -> bool:
        """Whether a study of this name, purpose and author gets the data."""
        return author == self.author and fnmatchcase(study, self.studies) and _fits(purpose, self.purpose)


def _fits(text: str, pattern: str) -> bool:
    """Whether a text fits a pattern in which only `*` means something."""
    parts = map(re.escape, pattern.split("*"))
    return re.fullmatch(".*".join(parts), text, re.DOTALL) is not None


class DataSet(PolicyPart):
    """Whose budget it is. All fields are fixed once anything was charged: the ledger is bound to them."""

    id: Name
    """Stable name, known to the authority and the peers, so that a new name refills no budget."""
    unit: Literal["patient", "record"]
    """What differential privacy protects. Use `record` only if the data have no patient column."""
    identified_by: Annotated[tuple[ColumnName, ...], Field(min_length=1)]
    """The columns of the data whose cells together say whose record it is. With unit `patient` it is one column, which
    every study must name as `data.patient`; with unit `record` it is one or more. The patients for training and for
    evaluation are drawn by these columns alone, in this order, so that no study can draw other cohorts."""
    holdout: Annotated[float, Field(ge=0.05, le=0.5)]
    """Public fraction of the patients kept for evaluation, drawn by a public hash of the cells of `identified_by`."""
    file: FileFormat
    """How the file is parted into rows and cells, whatever a study expects."""
    public: bool = False
    """Whether the data are published. Studies may then run on them without noise, and the ledger says "unbounded". The
    field is fixed when the ledger is created, so that an edit of the policy cannot turn a hospital's protection off."""


class Budget(PolicyPart):
    """What the data set may lose over all studies, restarts and years. It never refills."""

    epsilon: Epsilon
    """Privacy loss, without unit: all releases together change the odds of any outcome by at most exp(epsilon) for one
    patient (or record), except with a chance of delta."""
    delta: Annotated[float, Field(ge=1e-12, lt=1e-2)]
    """Probability; well below 1 / number of patients. The ledger is bound to it."""
    relation: Literal["add_remove"]
    """Which data sets count as neighbours: those that differ by one patient (or record). There is no other choice."""
    expires: Day
    """Last day of the validity period, YYYY-MM-DD in UTC. From the next day on nothing is charged. A later day in a new
    policy lengthens the period, but the spent budget stays spent."""


class Split(PolicyPart):
    """The largest share of `limits.study_epsilon`, above 0 to 1, that each kind of release may take alone.

    "Alone" means accounted for without the others, in a run without repeated attempts. Epsilons do not add up, so the
    shares may sum to more than 1.
    """

    encoder: Share
    """All encoder updates of a study together."""
    heads: Share
    """All head sums (curvature and gradient) of a study together."""
    counts: Share
    """The counts of patients by domain."""
    metrics: Share
    """The histograms of the held-out patients."""


class Limits(PolicyPart):
    """The most that any single study may ask for."""

    study_epsilon: Epsilon
    """Epsilon of a whole study, repeated attempts included, at `budget.delta`."""
    round_epsilon: Epsilon
    """Epsilon of any single round, repeated attempts included, at `budget.delta`."""
    rounds: Annotated[int, Field(ge=1, le=400)]
    """Training rounds."""
    charged_attempts: Annotated[int, Field(ge=1, le=100)]
    """Attempts of one round that may be charged, so that nobody can use up the budget by aborting."""
    architectures: Annotated[tuple[Architecture, ...], Field(min_length=1, max_length=3)]
    """Encoders that may be trained: `mlp` reads only table columns, `cnn` and `resnet18` read images."""
    encoder_weights: Annotated[int, Field(ge=1)]
    """Number of weights of the shared encoder."""
    representation: Annotated[int, Field(ge=1, le=256)]
    """Width of the encoder's output."""
    sampling_rate: Annotated[float, Field(gt=0, le=1)]
    """Chance with which a patient takes part in one step of the encoder's training."""
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """l2 norm to which one patient's gradient is cut."""
    memory_mib: Annotated[int, Field(ge=64, le=16_777_216)]
    """Most memory, in MiB, that a study may need here by its public constants alone: the records of
    `privacy.max_patients` patients, the encoder with its gradients, the heads' sums, the personal model."""


class Policy(PolicyPart):
    """A silo's whole policy. `digest` names it in the ledger."""

    KIND: ClassVar[str] = file_kinds.POLICY

    version: Literal[3, 4]
    """Version of this format. Version 3 cannot state `data_set.file` and `limits.memory_mib`: it means a file with a
    header line and commas, and 16,384 MiB."""
    contact: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(printable)]
    """The person who answers for this policy. It is shown to people whose study is refused."""
    data_set: DataSet
    budget: Budget
    min_silos: Annotated[int, Field(ge=2, le=256)]
    """Least number of silos, this one included, in a sum that this silo joins."""
    noise_modes: Annotated[tuple[NoiseMode, ...], Field(min_length=1, max_length=2)]
    """Who may add the noise of count, head and metric sums: with `local` this silo adds all of its own noise, with
    `distributed` the silos add it together."""
    colluders: Annotated[int, Field(ge=0, le=254)]
    """t: the number of colluding silos that a study's sums and its distributed noise must withstand at least."""
    encoder_sealing: Literal["ring", "ckks"]
    """The weakest sealing of encoder updates that this silo uses: `ring` allows masked integers and masked CKKS, `ckks`
    only masked CKKS."""
    smallest_domain: Annotated[int, Field(ge=0, le=10_000_000)]
    """Least number of patients, by the opened and noised sums, with which a domain gets a head and figures of its own.
    A study must state `privacy.smallest_domain` at least as large; 0 sets no limit."""
    limits: Limits
    split: Split
    spelling: Spelling = Spelling()
    """How this hospital's file spells what studies ask for. Without it the file is read as studies say."""
    approved_data: dict[Name, Annotated[tuple[DataRule, ...], Field(min_length=1, max_length=256)]] = Field(
        default_factory=dict, max_length=256
    )
    """By the name of data in agent.yaml: studies that may use them without anybody being asked, if nobody decided about
    them. Left out, no study may."""
    polls: Annotated[int, Field(ge=0, le=100)] = 0
    """Words that each author may have a day about whether this silo would take part in a study that is not created:
    allowed, a person is needed, or refused. Left out, no poll is answered."""
    publish: Annotated[tuple[Metric, ...], Field(max_length=len(METRICS))]
    """Metrics that a study may publish from the noised sums; `[]` allows none."""
    hand_over: bool = False
    """Whether a shared model that this silo has helped to train may be handed over to silos that have not: as a file
    (`fedward-silo hand-over`), or by a study that continues it with them. Left out, it may not."""
    retention_days: Annotated[int, Field(ge=1, le=36_500)]
    """Whole days, after the day on which a study ended, for which the agent keeps the study's private and secret files:
    personal models, local priors, releases before their sealing, keys and shares, sealed bytes. The ledger, the shared
    models and the record of what was used up stay. The agent's log gives a day's notice."""
    studies: tuple[Digest, ...] | None
    """Digests of the studies that may run; `null` allows every study within the limits, `[]` allows none."""
    approvers: Annotated[tuple[Approver, ...], Field(min_length=2, max_length=16)] | None
    """People, by the identity in their certificate, two of whom must have signed before this policy, and before the one
    that replaces it, comes into force; `null` asks for no signature."""

    @model_validator(mode="before")
    @classmethod
    def _read_older(cls, content: object) -> object:
        """Complete a policy of version 3 by what it means, and refuse older ones with what they lack."""
        stated = content.get("version") if isinstance(content, dict) else None
        if not isinstance(content, dict) or not isinstance(stated, int) or isinstance(stated, bool):
            return content
        unknown = [name for name in ("spelling", "approved_data", "polls") if name in content]
        if stated == OLDEST and unknown:
            msg = f"version 3 has no {' and no '.join(unknown)}; write version: {VERSION} and all of its new fields"
            raise ValueError(msg)
        if stated == OLDEST:
            return content | {part: _completed(content.get(part), part) for part in _MEANT}
        if 1 <= stated < OLDEST:
            lacks = [field for version, fields in _ADDED.items() if version > stated for field in fields]
            msg = (
                f"version {stated} is too old to be read; write version: {VERSION} and add its new fields:"
                f" {', '.join(lacks)}. docs/policy.md explains each, policies/samples shows them"
            )
            raise ValueError(msg)
        return content

    @model_validator(mode="after")
    def _check(self) -> Self:
        limits = self.limits
        lists: dict[str, tuple[Any, ...]] = {
            "data_set.identified_by": self.data_set.identified_by,
            "data_set.file.columns": self.data_set.file.columns,
            "noise_modes": self.noise_modes,
            "limits.architectures": limits.architectures,
            "publish": self.publish,
            "studies": self.studies or (),
            "approvers": self.approvers or (),
        }
        for field, values in lists.items():
            if len(set(values)) != len(values):
                msg = f"{field} lists a value twice; keep one"
                raise ValueError(msg)
        unnamed = [name for name in self.data_set.identified_by if name not in self.data_set.file.columns]
        if self.data_set.file.columns and unnamed:
            msg = (
                f"data_set.file.columns does not list {', '.join(unnamed)} of data_set.identified_by; a file without a"
                " header line has the listed columns only"
            )
            raise ValueError(msg)
        if self.data_set.unit == "patient" and set(self.data_set.identified_by) & self.spelling.codes.keys():
            msg = (
                "spelling.codes names the column of data_set.identified_by; a patient is told by the cells as they"
                " stand in the file, so remove that column"
            )
            raise ValueError(msg)
        whose = set(self.data_set.identified_by)
        for name, listed in (("absent", self.spelling.absent), ("between", self.spelling.between)):
            if named := sorted(whose.intersection(listed)):
                msg = (
                    f"spelling.{name} lists {', '.join(named)} of data_set.identified_by; whose a record is, is told by"
                    " cells as they stand in the file, so remove it there"
                )
                raise ValueError(msg)
        if self.data_set.unit == "patient" and len(self.data_set.identified_by) > 1:
            msg = (
                "data_set.identified_by lists several columns, but with data_set.unit patient one column must name the"
                " patient; keep that column"
            )
            raise ValueError(msg)
        if limits.study_epsilon > self.budget.epsilon:
            msg = f"limits.study_epsilon {limits.study_epsilon} exceeds budget.epsilon {self.budget.epsilon}; lower it"
            raise ValueError(msg)
        if "distributed" in self.noise_modes and self.min_silos <= self.colluders + 1:
            msg = f"distributed noise needs min_silos above colluders + 1 = {self.colluders + 1}; raise min_silos"
            raise ValueError(msg)
        return self

    def canonical(self) -> bytes:
        """Return the policy as canonical JSON (sorted keys, no spaces), which is hashed and signed.

        A policy of version 3 has no field that it cannot state, so that its digest stays what it was. `spelling`,
        `approved_data`, `hand_over` and `polls` stand there only if they say something.
        """
        document = self.model_dump(mode="json")
        if not self.hand_over:
            del document["hand_over"]
        if self.spelling == Spelling():
            del document["spelling"]
        else:
            document["spelling"] = self.spelling.said()
        if self.data_set.file.encoding == UTF_8:
            del document["data_set"]["file"]["encoding"]
        if not self.approved_data:
            del document["approved_data"]
        if not self.polls:
            del document["polls"]
        if self.version == OLDEST:
            for part, fields in _MEANT.items():
                for field in fields:
                    del document[part][field]
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    def data_for(self, study: str, purpose: str, author: str) -> tuple[str, ...]:
        """The names of the data that a study may use by `approved_data`, sorted. `author`: a URI; empty if unknown."""
        return tuple(
            data
            for data, rules in sorted(self.approved_data.items())
            if any(rule.gives(study, purpose, author) for rule in rules)
        )

    @property
    def digest(self) -> str:
        """SHA-256 of `canonical()`, lowercase hex."""
        return hashlib.sha256(self.canonical()).hexdigest()


def _completed(part: object, name: str) -> object:
    """A part of a policy of version 3 with the fields that it means. Raises ValueError if it states one of them."""
    if not isinstance(part, dict):
        return part
    early = [f"{name}.{field}" for field in _MEANT[name] if field in part]
    if early:
        msg = f"version 3 has no {', '.join(early)}; write version: {VERSION} and all of its new fields"
        raise ValueError(msg)
    return part | _MEANT[name]


def load_policy(path: Path) -> Policy:
    """Read a policy from YAML. Raises `DocumentError` with file, field and fix, also if the file is absent."""
    return read_document(path, Policy)
