"""What a study's fields must be together, beyond what each must be alone.

Guarantees: a study without faults can be planned, charged, trained and solved. All faults of a study are told at once,
in the order of its document; where one field rules out others, that field's sentence names them all. A rule that makes
sense only if another one holds is not asked where that one does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from policies.documents.fields import StudyFields
from policies.documents.sections.data import BINARY
from policies.documents.sections.evaluation import ALL_PATIENTS, METRICS, OF_CLASSES, OF_NUMBERS, Evaluation
from policies.documents.terms import TERMS, fields_of

_OF_ENCODER: Final = fields_of("encoder")
_COMPARING: Final = fields_of("personal", lambda term: term.compares)
_MOST_ROUNDS: Final = 400
"""The most that a policy may allow (`limits.rounds`)."""
_MOST_SUMMED: Final = 1 << 25
"""Patients of all silos whose gradients of norm 2^20 take half of what a sum of ring64 holds; half is for noise."""
_WIDEST: Final = 512
"""Weights of a head whose posterior is computed within seconds."""
_MOST_READ: Final = 512
"""Values that a head may read if the inputs stand beside the encoder."""
_ROUNDED: Final = 0.01
"""How far shares that an author has rounded may sum from 1."""


@dataclass(frozen=True)
class BrokenRule:
    """A rule that a study breaks.

    Attributes:
        field: where to look first, as `part.field`.
        text: a sentence with the fields, what stands there, the rule, and a fix.
    """

    field: str
    text: str


def faults(study: StudyFields) -> tuple[BrokenRule, ...]:
    """Every fault of the study, in the order of the document."""
    found = [fault for subject in _SUBJECTS for fault in subject(study)]
    return tuple(sorted(found, key=lambda fault: _place(study, fault.field)))


def _place(study: StudyFields, field: str) -> tuple[int, ...]:
    """Where a field stands in the document: its place in each section on the way to it."""
    place: list[int] = []
    section: object = study
    for name in field.split("."):
        # What has no section in this document comes where the section would be.
        if isinstance(section, BaseModel):
            place.append(list(type(section).model_fields).index(name))
            section = getattr(section, name)
    return tuple(place)


def _if(broken: bool, field: str, text: str) -> Iterator[BrokenRule]:  # noqa: FBT001 - a condition is what it is given
    if broken:
        yield BrokenRule(field, text)


def _but(field: str, subject: str, rules: Iterable[tuple[bool, str]]) -> Iterator[BrokenRule]:
    """One sentence of all that the study has and one field rules out."""
    found = [text for broken, text in rules if broken]
    yield from _if(bool(found), field, f"{subject}{'; '.join(found)}")


def _silos(study: StudyFields) -> Iterator[BrokenRule]:
    colluders = study.privacy.colluders
    yield from _if(len(set(study.silos)) != len(study.silos), "silos", "a silo is listed twice")
    yield from _if(
        study.min_silos > len(study.silos),
        "min_silos",
        f"min_silos {study.min_silos} exceeds the {len(study.silos)} silos",
    )
    if colluders >= study.min_silos:
        text = f"privacy.colluders {colluders} leaves no honest silo among min_silos {study.min_silos}"
        yield BrokenRule("privacy.colluders", text)
    else:
        yield from _if(
            study.privacy.mode == "distributed" and study.min_silos - 1 - colluders < 1,
            "privacy.colluders",
            "distributed noise needs min_silos > colluders + 1",
        )


def _pace(study: StudyFields) -> Iterator[BrokenRule]:
    yield from _if(
        study.pace == "padded" and study.pace_seconds >= min(study.deadlines.offer, study.deadlines.train),
        "pace_seconds",
        f"pace_seconds {study.pace_seconds} must lie below deadlines.offer and deadlines.train",
    )


def _outcome(study: StudyFields) -> Iterator[BrokenRule]:
    label, evaluation = study.data.label, study.evaluation
    number = label.number is not None
    known, kind = (OF_NUMBERS, "a number") if number else (OF_CLASSES, "classes")
    foreign = [metric for metric in study.publish if metric not in known]
    of_two = [metric for metric in study.publish if METRICS[metric].two_only]
    yield from _if(
        len(set(study.reported)) != len(study.reported),
        "evaluation.together",
        f"evaluation.together publishes figures of {ALL_PATIENTS!r}, and a domain has this name; rename it",
    )
    yield from _if(
        evaluation.together_share > 0 and not evaluation.together,
        "evaluation.together_share",
        "evaluation.together_share is for figures of all patients; set evaluation.together: true, or leave it out",
    )
    yield from _if(len(set(study.publish)) != len(study.publish), "publish", "publish lists a metric twice")
    yield from _if(
        bool(foreign),
        "publish",
        f"publish lists {', '.join(foreign)}, but data.label is {kind}; choose among {', '.join(sorted(known))}",
    )
    # Of a number they are foreign, and balanced_accuracy is too.
    yield from _if(
        bool(of_two) and label.count != BINARY and not number,
        "publish",
        f"publish lists {' and '.join(of_two)}, defined for two classes only; use balanced_accuracy",
    )
    yield from _if(
        evaluation.auc == "fitted" and label.count != BINARY,
        "evaluation.auc",
        "evaluation.auc fitted is for two classes, and data.label has others; leave it out",
    )
    yield from _if(
        not number and evaluation.largest_error != 1,
        "evaluation.largest_error",
        "evaluation.largest_error is for a number, but data.label is classes; leave it out",
    )
    for term in TERMS:
        if term.tables is not None and term.field is not None:
            yield from _if(
                number and getattr(study.encoder, term.field) > 0,
                f"encoder.{term.field}",
                f"encoder.{term.field} has a table with a row for each class, but data.label is a number; leave it out",
            )
    yield from _if(
        evaluation.threshold is not None and study.data.label.count != BINARY,
        "evaluation.threshold",
        "evaluation.threshold is for a label of two classes; leave it out",
    )
    yield from _if(
        number and evaluation.bins != Evaluation.model_fields["bins"].default,
        "evaluation.bins",
        "evaluation.bins are those of a score, but data.label is a number; leave them out",
    )


def _expected(study: StudyFields) -> Iterator[BrokenRule]:
    expected, domains = study.expected, len(study.data.domains)
    if expected is None:
        return
    yield from _if(
        len(expected.patients) not in {1, len(study.silos)},
        "expected.patients",
        f"expected.patients has {len(expected.patients)} numbers; write one, or one for each of the"
        f" {len(study.silos)} silos",
    )
    yield from _if(
        bool(expected.shares) and (len(expected.shares) != domains or abs(sum(expected.shares) - 1) > _ROUNDED),
        "expected.shares",
        f"expected.shares must be {domains} numbers, one for each domain, with sum 1",
    )
    yield from _if(
        expected.prevalence is not None and study.data.label.count != BINARY,
        "expected.prevalence",
        "expected.prevalence is for a label of two classes; leave it out",
    )


def _model(study: StudyFields) -> Iterator[BrokenRule]:
    image, encoder = study.data.image, study.model.encoder
    if (image is None) != (encoder in {"mlp", "raw", "linear"}):
        text = (
            f"model.encoder {encoder} and data.image do not fit: cnn and resnet18 read images, mlp, raw and linear none"
        )
        yield BrokenRule("model.encoder", text)
    elif encoder == "raw":
        yield from _raw(study)
    elif encoder == "linear":
        yield from _linear_encoder(study)
    yield from _if(
        study.encoder.cmi_scale and not study.encoder.cmi,
        "encoder.cmi_scale",
        "encoder.cmi_scale is a factor within encoder.cmi; set encoder.cmi or leave it out",
    )
    yield from _if(
        study.model.samples > 0 and not study.encoder.cmi,
        "model.samples",
        "model.samples draws from an encoder that encoder.cmi makes stochastic; set encoder.cmi or leave it out",
    )
    halvings = len(study.model.channels)
    yield from _if(
        image is not None and encoder == "cnn" and min(image.height, image.width) >> halvings < 1,
        "model.channels",
        f"model.channels halves the image {halvings} times, and nothing of it is left",
    )


def _any(section: BaseModel, fields: Iterable[str]) -> bool:
    return any(getattr(section, field) > 0 for field in fields)


def _named(section: str, fields: Iterable[str]) -> str:
    *most, last = (f"{section}.{field}" for field in fields)
    return f"{', '.join(most)} and {last}" if most else last


def _raw(study: StudyFields) -> Iterator[BrokenRule]:
    inputs, model, encoder, personal = study.data.inputs, study.model, study.encoder, study.personal
    rules = (
        (
            model.representation != inputs,
            f"model.representation is {model.representation}; make it {inputs}",
        ),
        (bool(model.hidden), "model.hidden lists layers; make it an empty list"),
        (model.first_biases > 0, "model.first_biases are those of hidden layers; leave them out"),
        (model.start != "gram-schmidt", "model.start is about the weights of layers; leave it out"),
        (
            study.encoder_rounds > 0 and not study.composition.joint,
            "the encoder is trained; set encoder.rounds to 0",
        ),
        (_any(encoder, _OF_ENCODER), f"{_named('encoder', _OF_ENCODER)} are terms of an encoder; leave them out"),
        (
            personal is not None and _any(personal, _COMPARING),
            f"{_named('personal', _COMPARING)} compare what encoders give; set them to 0",
        ),
        (encoder.together, "encoder.together trains an encoder; leave it out"),
    )
    yield from _but("model.encoder", f"model.encoder raw has no network for the {inputs} inputs, but ", rules)


def _linear_encoder(study: StudyFields) -> Iterator[BrokenRule]:
    model = study.model
    rules = (
        (
            study.privacy.mode != "none",
            (
                "nothing bounds what it gives, so it is only for data declared public; set privacy.mode to none, or"
                " choose mlp with an empty list as model.hidden"
            ),
        ),
        (bool(model.hidden), "model.hidden lists layers; make it an empty list"),
        (model.first_biases > 0, "model.first_biases are those of hidden layers; leave them out"),
        (study.encoder.cmi > 0, "encoder.cmi needs an encoder that is drawn; leave it out"),
        (study.personal is not None, "personal compares representations within known bounds; leave it out"),
    )
    yield from _but("model.encoder", "model.encoder linear is one matrix, but ", rules)


def _beside(study: StudyFields) -> Iterator[BrokenRule]:
    model, reads = study.model, study.head_inputs
    yield from _if(
        model.input_scale != "even" and not (model.encoder in {"raw", "linear"} or model.skip),
        "model.input_scale",
        "no head reads inputs; leave model.input_scale out, set model.skip to true, or model.encoder to raw",
    )
    if not (model.skip or model.random_features):
        return
    raw = model.encoder == "raw"
    rules = (
        (
            model.skip and raw,
            (
                "model.skip puts the inputs beside an encoder, and with model.encoder raw the heads read them anyway;"
                " leave it out"
            ),
        ),
        (
            not (model.skip or raw),
            "model.random_features stand beside the inputs; set model.skip to true, or model.encoder to raw",
        ),
        (
            study.data.inputs == 0,
            (
                "data.features is empty, so there are no inputs to read; list features, or leave out model.skip and"
                " model.random_features"
            ),
        ),
        (
            reads > _MOST_READ,
            (
                f"a head reads {reads} values, and at most {_MOST_READ} are allowed; list fewer features or make"
                " model.representation or model.random_features smaller"
            ),
        ),
    )
    yield from _but("model.skip" if model.skip else "model.random_features", "", rules)


def _personal(study: StudyFields) -> Iterator[BrokenRule]:
    plan, model = study.personal, study.model
    if plan is None:
        return
    layers = 1 + len(model.hidden) + (study.data.image is not None)
    yield from _if(
        plan.depth > layers,
        "personal.depth",
        f"personal.depth {plan.depth} exceeds the encoder's {layers} layers; lower it",
    )
    yield from _if(
        plan.adversary > 0 and not study.data.protected,
        "personal.adversary",
        "personal.adversary guesses data.protected, which is empty; list a column there",
    )
    yield from _if(
        plan.adversary > 0 and model.skip,
        "personal.adversary",
        "personal.adversary guards the representation alone, and with model.skip heads read the inputs beside it; leave"
        " one of them out",
    )


def _recipe(study: StudyFields) -> Iterator[BrokenRule]:
    """What a recipe has no room for, and what it lives by. `_algorithm_2` has what is feddar-linear's alone."""
    recipe, heads, raw = study.composition, study.heads, study.model.encoder == "raw"
    yield from _if(
        recipe.public and not recipe.linear and study.privacy.mode != "none",
        "recipe",
        f"recipe {recipe.name} sums what a silo's own steps have made of its records, and nobody can bound what one"
        " patient adds to that; it is only for data declared public (privacy.mode none); choose second-order",
    )
    yield from _if(
        heads.solver != "newton" and not recipe.solved,
        "heads.solver",
        f"recipe {recipe.name} has no heads.solver {heads.solver}; leave it out",
    )
    yield from _if(
        heads.clip != 1 and recipe.local_heads,
        "heads.clip",
        f"recipe {recipe.name} clips no record's term; leave heads.clip out",
    )
    yield from _if(
        heads.clip_by != "own" and recipe.local_heads,
        "heads.clip_by",
        f"recipe {recipe.name} clips no record's term; leave heads.clip_by out",
    )
    yield from _if(
        recipe.one_head and heads.domain_rounds > 0,
        "heads.domain_rounds",
        f"recipe {recipe.name} has one head for all; set heads.domain_rounds to 0",
    )
    yield from _if(
        not recipe.solved and heads.calibration != "none",
        "heads.calibration",
        f"recipe {recipe.name} has no round of its own for calibration; leave heads.calibration out",
    )
    yield from _if(
        raw and recipe.kept == {"encoder"},
        "model.encoder",
        "model.encoder raw has no weights that a silo could keep; choose mlp",
    )
    yield from _if(
        raw and recipe.kept == {"heads"},
        "model.encoder",
        f"model.encoder raw has no weights to share, and recipe {recipe.name} keeps the heads; choose recipe local, or"
        " mlp",
    )
    for group in recipe.needs:
        yield from _if(
            not any(_wanted(study, field) for field in group),
            group[0],
            f"recipe {recipe.name} lives by {' or '.join(group)}; write it above 0",
        )


def _encoder(study: StudyFields) -> Iterator[BrokenRule]:
    """What a recipe, and the way in which the encoder is trained, have no room for in its section."""
    recipe, encoder = study.composition, study.encoder
    planned = encoder.rounds is not None or encoder.every != 1 or encoder.warm_up > 0
    first = "encoder.warm_up" if encoder.warm_up else "encoder.every" if encoder.every != 1 else "encoder.rounds"
    yield from _if(
        recipe.joint and planned,
        first,
        f"recipe {recipe.name} trains the encoder in every round; leave encoder.rounds, encoder.every and"
        " encoder.warm_up out",
    )
    yield from _if(
        not recipe.joint and encoder.warm_up >= study.heads.pooled_rounds,
        "encoder.warm_up",
        f"encoder.warm_up {encoder.warm_up} must lie below heads.pooled_rounds {study.heads.pooled_rounds}",
    )
    yield from _if(
        encoder.together and not recipe.by_hessians,
        "encoder.together",
        "encoder.together goes with recipe feddar-sa alone; leave it out",
    )
    yield from _if(
        encoder.together and planned,
        "encoder.together",
        "encoder.together trains the encoder in every round; leave encoder.rounds, encoder.every and encoder.warm_up"
        " out",
    )
    yield from _if(
        encoder.together and encoder.cmi > 0,
        "encoder.together",
        "encoder.together has no table of classes; leave encoder.cmi out",
    )
    yield from _if(
        encoder.sealed_steps and (not recipe.solved or encoder.warm_up > 0 or encoder.every != 1),
        "encoder.sealed_steps",
        "encoder.sealed_steps go with recipe second-order alone, without encoder.warm_up and encoder.every; leave"
        " them out",
    )
    yield from _if(
        not recipe.heads_first and encoder.head_steps > 0,
        "encoder.head_steps",
        f"recipe {recipe.name} has no steps for the heads alone; leave encoder.head_steps out",
    )
    yield from _if(
        encoder.proximal > 0 and encoder.sealed_steps,
        "encoder.proximal",
        "encoder.proximal acts on a silo's own steps, and a sealed step is everybody's; leave it out",
    )
    yield from _if(
        encoder.proximal > 0 and encoder.steps == 1 and not encoder.sealed_steps,
        "encoder.proximal",
        "encoder.proximal draws a silo's later steps to where the round began, and encoder.steps is 1; take more steps,"
        " or leave it out",
    )
    yield from _if(
        encoder.proximal > 0 and not recipe.shares,
        "encoder.proximal",
        f"encoder.proximal draws to what is shared, and recipe {recipe.name} shares nothing; leave it out",
    )
    yield from _if(
        encoder.cmi > 0 and encoder.prior == "averaged" and not recipe.shares,
        "encoder.prior",
        f"encoder.prior averaged would share the tables of encoder.cmi, and recipe {recipe.name} shares nothing; make"
        " it local",
    )


def _wanted(study: StudyFields, field: str) -> bool:
    """Whether a field, `part.field`, is there and above 0."""
    part, name = field.split(".")
    section = getattr(study, part)
    return section is not None and bool(getattr(section, name))


def _invariance(study: StudyFields) -> Iterator[BrokenRule]:
    """What IRM and GroupDRO need: environments, and at the encoder the trainer that has them."""
    encoder, personal, recipe = study.encoder, study.personal, study.composition
    fields = [str(term.field) for term in TERMS if term.environments]
    uploaded = [f"encoder.{field}" for field in fields if getattr(encoder, field) > 0]
    asked = uploaded + [f"personal.{field}" for field in fields if getattr(personal, field, 0) > 0]
    if not asked:
        return
    yield from _if(
        study.data.environment is None,
        asked[0],
        f"{' and '.join(asked)} compare environments, and data.environment names no column that tells them; name"
        " one, or leave them out",
    )
    if not uploaded:
        return
    rules = (
        (
            (recipe.heads, recipe.encoder) != ("averaged", "averaged"),
            f"recipe {study.recipe} does not average encoder and heads together; choose fedavg or multi-head-fedavg",
        ),
        (
            encoder.sampling_rate != 1,
            f"encoder.sampling_rate is {encoder.sampling_rate:g}; make it 1, because every step reads all records",
        ),
        (encoder.cmi > 0, "encoder.cmi draws features at random, which this training does not; leave it out"),
        (
            encoder.proximal > 0,
            "encoder.proximal is added to noised steps, which this training does not take; leave it out",
        ),
    )
    yield from _but(uploaded[0], f"{' and '.join(uploaded)}: ", rules)


def _algorithm_2(study: StudyFields) -> Iterator[BrokenRule]:
    """All that a linear recipe leaves no room for, in one sentence. `_recipe` has what it shares with others."""
    if not study.composition.linear:
        return
    model, heads, encoder, inputs = study.model, study.heads, study.encoder, study.data.inputs
    rules = (
        (
            study.privacy.mode != "none",
            (
                "it sums records without a clip and without noise, and is only for data declared public; set"
                " privacy.mode to none, or choose second-order"
            ),
        ),
        (model.encoder != "linear", f"model.encoder is {model.encoder}; make it linear"),
        (
            bool(model.hidden) and model.encoder != "linear",
            "model.hidden lists layers; make it an empty list",
        ),
        (
            0 < inputs < model.representation,
            f"model.representation is {model.representation} of {inputs} inputs; make it at most {inputs}",
        ),
        (
            model.gain != 1,
            f"model.gain is {model.gain:g}; leave it out, because the first matrix is orthonormal too",
        ),
        (
            model.skip or model.random_features > 0,
            "heads read the representation alone; leave model.skip and model.random_features out",
        ),
        (
            study.data.label.number is None,
            (
                "data.label is classes, and heads in closed form need a number; give its minimum and maximum, or choose"
                " feddar-sa"
            ),
        ),
        (heads.clip != 1, "heads.clip would change the closed form; leave it out"),
        (heads.clip_by != "own", "heads.clip_by would change the closed form; leave it out"),
        (
            encoder.steps != 1,
            f"encoder.steps is {encoder.steps}; make it 1, because every step is followed by a QR",
        ),
        (encoder.sampling_rate != 1, f"encoder.sampling_rate is {encoder.sampling_rate:g}; make it 1"),
        (
            encoder.momentum > 0 or encoder.schedule != "constant",
            "encoder.momentum and encoder.schedule are not its own; leave them out",
        ),
        (_any(encoder, _OF_ENCODER), f"{_named('encoder', _OF_ENCODER)} are not its own; leave them out"),
        (encoder.warm_up > 0, "encoder.warm_up is not its own; leave it out"),
    )
    yield from _but("recipe", f"recipe {study.recipe} is FedDAR's Algorithm 2, but ", rules)


def _calibration(study: StudyFields) -> Iterator[BrokenRule]:
    heads = study.heads
    yield from _if(
        heads.calibration != "none" and not study.model.bias,
        "heads.calibration",
        f"heads.calibration {heads.calibration} moves the biases, and model.bias is false; leave it out",
    )
    yield from _if(
        heads.calibration == "none" and heads.calibration_noise > 0,
        "heads.calibration_noise",
        "heads.calibration_noise is that of a round which heads.calibration none leaves out; leave it out too",
    )


def _rounds(study: StudyFields) -> Iterator[BrokenRule]:
    heads, encoder, classes = study.heads, study.encoder, study.data.label.count
    if study.composition.joint or encoder.together:
        # `_encoder` has said that the encoder is then trained in every round, and `_recipe` that no solver is asked.
        return
    yield from _if(
        encoder.rounds is not None and encoder.rounds < encoder.warm_up,
        "encoder.rounds",
        f"encoder.rounds {encoder.rounds} must not lie below encoder.warm_up {encoder.warm_up}",
    )
    yield from _if(
        bool(encoder.rounds) and study.encoder_rounds >= study.head_rounds,
        "encoder.rounds",
        f"encoder.rounds {study.encoder_rounds} must lie below the {study.head_rounds} rounds of the heads",
    )
    if heads.solver != "hierarchical" or not study.composition.solved:
        return
    yield from _if(
        study.data.label.number is not None,
        "heads.solver",
        "heads.solver hierarchical is for classes, and data.label is a number; choose newton",
    )
    yield from _if(
        not heads.domain_rounds,
        "heads.solver",
        "heads.solver hierarchical solves domain rounds, and heads.domain_rounds is 0; choose newton",
    )
    yield from _if(
        study.encoder_rounds >= heads.pooled_rounds,
        "encoder.rounds",
        f"encoder.rounds {study.encoder_rounds} must lie below heads.pooled_rounds {heads.pooled_rounds}: with"
        " heads.solver hierarchical the encoder must not change any more when the last pooled round is summed",
    )
    width = (1 if classes == BINARY else classes) * study.head_row
    yield from _if(
        width > _WIDEST,
        "heads.solver",
        f"heads.solver hierarchical solves heads of at most {_WIDEST} weights, and these have {width}; make"
        f" {_what_widens(study)} smaller or choose newton",
    )


def _what_widens(study: StudyFields) -> str:
    if study.model.random_features:
        return "model.representation or model.random_features"
    return "model.representation"


def _sealed_steps(study: StudyFields) -> Iterator[BrokenRule]:
    encoder, patients = study.encoder, study.privacy.max_patients
    if not encoder.sealed_steps or not study.composition.solved:
        return
    rules = (
        (
            encoder.sampling_rate != 1,
            f"encoder.sampling_rate is {encoder.sampling_rate:g}; make it 1, for all patients take part",
        ),
        (
            encoder.sealing != "ring64",
            f"encoder.sealing is {encoder.sealing}; make it ring64, which alone holds the sums of a step",
        ),
        (
            encoder.cmi > 0 and encoder.prior == "local",
            (
                "encoder.prior is local; make it averaged, because a silo's own share of the noise does not cover its"
                " table"
            ),
        ),
        (
            patients * len(study.silos) > _MOST_SUMMED,
            (
                f"privacy.max_patients {patients} of {len(study.silos)} silos exceed the {_MOST_SUMMED}"
                " patients whose gradients ring64 holds; lower it"
            ),
        ),
        (
            study.rounds > _MOST_ROUNDS,
            (
                f"{study.encoder_rounds} x {encoder.steps} steps make {study.rounds} rounds; have at most"
                f" {_MOST_ROUNDS} by a lower encoder.rounds or encoder.steps"
            ),
        ),
    )
    yield from _but("encoder.sealed_steps", "with encoder.sealed_steps every step is a round of its own, but ", rules)


def _noise(study: StudyFields) -> Iterator[BrokenRule]:
    noises = {
        f"{section}.{name}": noise
        for section, part in study
        if isinstance(part, BaseModel)
        for name, noise in part
        if name.endswith("noise")
    }
    if study.heads.calibration == "none":
        del noises["heads.calibration_noise"]
    odd = {field: noise for field, noise in noises.items() if (noise == 0) != (study.privacy.mode == "none")}
    yield from _if(
        bool(odd),
        next(iter(odd), "privacy.mode"),
        f"{', '.join(f'{field} is {noise:g}' for field, noise in odd.items())}; noise must be 0 in all fields if"
        " privacy.mode is none, and above 0 in all fields otherwise",
    )


_SUBJECTS: Final[tuple[Callable[[StudyFields], Iterator[BrokenRule]], ...]] = (
    _silos,
    _model,
    _beside,
    _recipe,
    _algorithm_2,
    _noise,
    _calibration,
    _rounds,
    _encoder,
    _sealed_steps,
    _invariance,
    _outcome,
    _personal,
    _expected,
    _pace,
)
"""The rules by their subject."""
