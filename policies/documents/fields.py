"""What a study states, each field by itself, and what follows from the fields alone.

Which fields contradict each other is said by `consistency`. `study` is what is validated, read and named by its digest.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from policies.documents import bounds, recipes
from policies.documents.about import About
from policies.documents.document import Closed
from policies.documents.sections.data import DataSchema
from policies.documents.sections.encoder import EncoderPlan
from policies.documents.sections.evaluation import ALL_PATIENTS, METRICS, Evaluation, Metric
from policies.documents.sections.expected import Deadlines, Expected
from policies.documents.sections.heads import HeadPlan
from policies.documents.sections.kinds import MOST_SILOS, Name, Purpose, Recipe
from policies.documents.sections.model import Model
from policies.documents.sections.personal import Personal
from policies.documents.sections.privacy import Privacy


class StudyFields(Closed):
    """The fields of a study, and the numbers that follow from them. Each is checked by itself alone."""

    version: Annotated[Literal[1], About("the format of this document", change="never")]
    name: Annotated[
        Name,
        About(
            "what people and `agent.yaml` call the study; the digest is its name on the wire",
            unit="a-z, 0-9, hyphens",
            change="each study has its own",
            question="Name of the study (a-z, 0-9, hyphens)",
        ),
    ]
    revision: Annotated[
        int,
        Field(ge=1, le=10_000),
        About(
            "which version of the study this is: one that was refused or is over is created again with a higher number",
            comment="a study that was refused or is over is created again as the next revision",
            change="the study is created again under its name; a policy's limits for a study count all revisions",
            since="0.7",
        ),
    ] = 1
    purpose: Annotated[
        Purpose,
        About(
            "shown to the people who approve, and on the model card",
            unit="text",
            question="Purpose, for the people who approve it",
        ),
    ]
    silos: Annotated[
        tuple[Name, ...],
        Field(min_length=2, max_length=MOST_SILOS),
        About(
            "who is invited; a federation has 256 at most, a simulation 1,000",
            comment="who is invited",
            unit="list of names",
            question="Hospitals, with commas between",
        ),
    ]
    min_silos: Annotated[
        int,
        Field(ge=2, le=MOST_SILOS),
        About(
            "least number in a sum; more than half of silos and `colluders` together",
            comment="least number in any sum; the others may be missing",
            unit="silos",
            change="fewer may be missing: raise it",
        ),
    ]
    data: Annotated[
        DataSchema,
        About("how a hospital's file is read", comment="the columns; a record with a cell outside of this is left out"),
    ]
    model: Annotated[Model, About("what a model is made of", comment="from a record to what the heads read")]
    recipe: Annotated[
        Recipe,
        About(
            (
                "how encoder and heads are learned and put together, and which of them stay at the"
                " hospital ([docs/design/recipes.md](docs/design/recipes.md))"
            ),
            change=(
                "a paper's method is to be repeated or compared with; hospitals differ so much that each"
                " needs a part of its own: `fedper`, `lg-fedavg`"
            ),
            since="0.6",
        ),
    ] = "second-order"
    continues: Annotated[
        Annotated[str, Field(pattern=r"^[0-9a-f]{64}$"), bounds.text(64)] | None,
        About(
            (
                "the study starts from this model of an earlier study, which every silo must hold ([new-"
                "silo.md](docs/new-silo.md))"
            ),
            comment="digest of the earlier model that the study starts from",
            unit="digest of a shared model",
            change="a hospital joins after a study, or the shared part is to be trained on",
            since="0.6",
        ),
    ] = None
    """Digest of the shared model from which the study starts, if it continues an earlier one. Without it, the study
    starts from public weights."""
    heads: Annotated[
        HeadPlan,
        About(
            "how the heads are learned", comment="one head for each domain, from noised sums of curvature and gradient"
        ),
    ]
    encoder: Annotated[EncoderPlan, About("how the encoder is trained", comment="DP-SGD with the heads frozen")]
    evaluation: Annotated[
        Evaluation,
        About("the figures of the held-out patients", comment="once, over held-out patients, after the last round"),
    ]
    personal: Annotated[
        Personal | None,
        About(
            (
                "each hospital trains a model of its own that never leaves it, and chooses after the last"
                " round which model it predicts with ([docs/design/choice.md](docs/design/choice.md)); costs no"
                " epsilon"
            ),
            comment="a model of each silo's own that never leaves it",
            unit="fields below",
            change=(
                "hospitals differ, or want one: `personal: {}`; with `encoder: raw`, whose heads alone"
                " are trained, `personal: {mmd: 0.0}`"
            ),
            question="Shall each hospital train a model of its own, too, and predict with what is better for it",
        ),
    ] = None
    publish: Annotated[
        tuple[Metric, ...],
        bounds.items(len(METRICS)),
        About(
            "figures of the last round's sums that the silos sign and the coordinator shows",
            comment="figures that the silos sign and the coordinator shows; every policy must list them",
            unit="list",
            change="the results are to be known outside",
            since="0.2",
        ),
    ] = ()
    """Metrics of the last round's sums that the silos sign and the coordinator shows. Nothing else leaves the silos."""
    privacy: Annotated[Privacy, About("what the study asks of every silo's budget", comment="what the study costs")]
    deadlines: Annotated[Deadlines, About("how long a phase may last", comment="seconds of each phase")] = Deadlines()
    expected: Annotated[
        Expected | None,
        About(
            "what the author expects of the data; forecasts start from it",
            comment="guesses of the author, for forecasts and for rules; nothing computed from records reads them",
            unit="fields below",
            since="0.6",
        ),
    ] = None
    pace: Annotated[
        Literal["prompt", "padded"],
        About(
            "when a silo says what it computed; padded hides how long it took",
            comment="padded hides how long a computation took",
            change="the time of a computation must not tell how many records there are",
            since="0.6",
        ),
    ] = "prompt"
    """When a silo says what it had to read or compute from records. prompt: when it is done. padded: at the next
    multiple of `pace_seconds` after it was asked, so that the time of a computation does not show."""
    pace_seconds: Annotated[
        int,
        Field(ge=1, le=86_400),
        About(
            "padded: answers leave at multiples of it",
            comment="padded: answers leave at multiples of it",
            unit="seconds",
            change="a silo computes longer than this",
            since="0.6",
        ),
    ] = 60
    max_attempts: Annotated[
        int,
        Field(ge=1, le=100),
        About(
            (
                "attempts of one round before the study ends; with distributed noise each is charged,"
                " with local noise those after a [spoilt sum](docs/operating.md#spoilt-sums)"
            ),
            comment="of one round, before the study ends",
            unit="attempts",
            change="silos vanish often",
        ),
    ] = 3

    @property
    def reported(self) -> tuple[str, ...]:
        """Of whom figures are published: the domains, and with `evaluation.together` all patients."""
        return (*self.data.domains, *([ALL_PATIENTS] if self.evaluation.together else []))

    @property
    def composition(self) -> recipes.Composition:
        """What the recipe is made of."""
        return recipes.RECIPES[self.recipe]

    @property
    def rounds(self) -> int:
        """Number of training rounds. Round 0 sums the domain counts before them, one more round the metrics after."""
        sealed = self.encoder_steps if self.encoder.sealed_steps else 0
        return self.head_rounds + sealed + (self.heads.calibration != "none")

    @property
    def head_rounds(self) -> int:
        """Number of training rounds that sum the heads. A calibration follows as the last round, if there is any."""
        return self.heads.pooled_rounds + self.heads.domain_rounds

    @property
    def encoder_rounds(self) -> int:
        """Number of rounds of the heads, from the first, of which (every `encoder.every`-th) train the encoder."""
        if self.composition.joint or self.encoder.together:
            return self.head_rounds
        if self.encoder.rounds is not None:
            return self.encoder.rounds
        return (self.heads.pooled_rounds if self.heads.solver == "hierarchical" else self.head_rounds) - 1

    @property
    def encoder_steps(self) -> int:
        """Number of steps in which the encoder is trained, in all rounds together."""
        return self.encoder_rounds * self.encoder.steps

    @property
    def head_inputs(self) -> int:
        """Number of values that a head reads of a record: representation, inputs beside it, random features."""
        model = self.model
        return model.representation + (self.data.inputs if model.skip else 0) + model.random_features

    @property
    def head_row(self) -> int:
        """K: weights in one row of a head, one for each value that it reads, and the bias if there is one."""
        return self.head_inputs + self.model.bias
