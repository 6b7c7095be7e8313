"""What a study's fields must be together, beyond what each must be alone.

Guarantees: a study that `require_consistent` passes can be planned, charged, trained and solved. Every sentence names
the fields and a fix, and lists all faults of its subject at once.
"""

from __future__ import annotations

from typing import Final

from policies.documents.data_schema import BINARY
from policies.documents.fields import StudyFields
from policies.documents.sections import ALL_PATIENTS, OF_CLASSES, OF_NUMBERS, Evaluation
from policies.documents.terms import TERMS

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


def require_consistent(study: StudyFields) -> None:
    """Raise ValueError if fields of the study contradict each other."""
    if len(set(study.silos)) != len(study.silos):
        msg = "a silo is listed twice"
        raise ValueError(msg)
    if study.min_silos > len(study.silos):
        msg = f"min_silos {study.min_silos} exceeds the {len(study.silos)} silos"
        raise ValueError(msg)
    if study.privacy.colluders >= study.min_silos:
        msg = f"privacy.colluders {study.privacy.colluders} leaves no honest silo among min_silos {study.min_silos}"
        raise ValueError(msg)
    if study.composition.linear:
        _linear_recipe(study)
    _model(study)
    _noise(study)
    _recipe(study)
    _invariance(study)
    _personal(study)
    _rounds(study)
    _calibration(study)
    if study.pace == "padded" and study.pace_seconds >= min(study.deadlines.offer, study.deadlines.train):
        msg = f"pace_seconds {study.pace_seconds} must lie below deadlines.offer and deadlines.train"
        raise ValueError(msg)
    if len(set(study.reported)) != len(study.reported):
        msg = f"evaluation.together publishes figures of {ALL_PATIENTS!r}, and a domain has this name; rename it"
        raise ValueError(msg)
    if len(set(study.publish)) != len(study.publish):
        msg = "publish lists a metric twice"
        raise ValueError(msg)
    _outcome(study)
    _expected(study)
    if study.privacy.mode == "distributed" and study.min_silos - 1 - study.privacy.colluders < 1:
        msg = "distributed noise needs min_silos > colluders + 1"
        raise ValueError(msg)


def _outcome(study: StudyFields) -> None:
    label = study.data.label
    known, kind = (OF_CLASSES, "classes") if label.number is None else (OF_NUMBERS, "a number")
    foreign = [metric for metric in study.publish if metric not in known]
    if foreign:
        msg = f"publish lists {', '.join(foreign)}, but data.label is {kind}; choose among {', '.join(sorted(known))}"
        raise ValueError(msg)
    of_two = [metric for metric in study.publish if metric in {"auc", "false_negatives"}]
    if of_two and label.count != BINARY:
        msg = f"publish lists {' and '.join(of_two)}, defined for two classes only; use balanced_accuracy"
        raise ValueError(msg)
    if study.evaluation.auc == "fitted" and label.count != BINARY:
        msg = "evaluation.auc fitted is for two classes, and data.label has others; leave it out"
        raise ValueError(msg)
    if label.number is None:
        if study.evaluation.largest_error != 1:
            msg = "evaluation.largest_error is for a number, but data.label is classes; leave it out"
            raise ValueError(msg)
        return
    for term in TERMS:
        if term.tables is not None and term.field is not None and getattr(study.encoder, term.field) > 0:
            msg = (
                f"encoder.{term.field} has a table with a row for each class, but data.label is a number; leave it out"
            )
            raise ValueError(msg)
    if study.evaluation.bins != Evaluation.model_fields["bins"].default:
        msg = "evaluation.bins are those of a score, but data.label is a number; leave them out"
        raise ValueError(msg)


def _expected(study: StudyFields) -> None:
    expected, domains = study.expected, len(study.data.domains)
    if expected is None:
        return
    if len(expected.patients) not in {1, len(study.silos)}:
        msg = (
            f"expected.patients has {len(expected.patients)} numbers; write one, or one for each of the"
            f" {len(study.silos)} silos"
        )
        raise ValueError(msg)
    if expected.shares and (len(expected.shares) != domains or abs(sum(expected.shares) - 1) > _ROUNDED):
        msg = f"expected.shares must be {domains} numbers, one for each domain, with sum 1"
        raise ValueError(msg)
    if expected.prevalence is not None and study.data.label.count != BINARY:
        msg = "expected.prevalence is for a label of two classes; leave it out"
        raise ValueError(msg)


def _model(study: StudyFields) -> None:
    image, encoder = study.data.image, study.model.encoder
    if (image is None) != (encoder in {"mlp", "raw", "linear"}):
        msg = (
            f"model.encoder {encoder} and data.image do not fit: cnn and resnet18 read images, mlp, raw and linear none"
        )
        raise ValueError(msg)
    if encoder == "raw":
        _raw(study)
    if encoder == "linear":
        _linear_encoder(study)
    _beside(study)
    if study.encoder.cmi_scale and not study.encoder.cmi:
        msg = "encoder.cmi_scale is a factor within encoder.cmi; set encoder.cmi or leave it out"
        raise ValueError(msg)
    if study.model.samples and not study.encoder.cmi:
        msg = "model.samples draws from an encoder that encoder.cmi makes stochastic; set encoder.cmi or leave it out"
        raise ValueError(msg)
    if image is not None and encoder == "cnn" and min(image.height, image.width) >> len(study.model.channels) < 1:
        msg = f"model.channels halves the image {len(study.model.channels)} times, and nothing of it is left"
        raise ValueError(msg)


def _raw(study: StudyFields) -> None:
    inputs, model = study.data.inputs, study.model
    faults = {
        f"model.representation is {model.representation}; make it {inputs}": model.representation != inputs,
        "model.hidden lists layers; make it an empty list": bool(model.hidden),
        "model.first_biases are those of hidden layers; leave them out": model.first_biases > 0,
        "the encoder is trained; set encoder.rounds to 0": study.encoder_rounds > 0 and not study.composition.joint,
        "encoder.l2r and encoder.cmi are terms of an encoder; leave them out": study.encoder.l2r + study.encoder.cmi
        > 0,
        "personal.mmd, personal.cosine and personal.mmd_d compare what encoders give; set them to 0": (
            study.personal is not None and study.personal.mmd + study.personal.cosine + study.personal.mmd_d > 0
        ),
        "encoder.together trains an encoder; leave it out": study.encoder.together,
    }
    found = [fault for fault, there in faults.items() if there]
    if found:
        msg = f"model.encoder raw has no network for the {inputs} inputs, but {'; '.join(found)}"
        raise ValueError(msg)


def _linear_encoder(study: StudyFields) -> None:
    model = study.model
    faults = {
        "nothing bounds what it gives, so it is only for data declared public; set privacy.mode to none, or choose mlp"
        " with an empty list as model.hidden": study.privacy.mode != "none",
        "model.hidden lists layers; make it an empty list": bool(model.hidden),
        "model.first_biases are those of hidden layers; leave them out": model.first_biases > 0,
        "encoder.cmi needs an encoder that is drawn; leave it out": study.encoder.cmi > 0,
        "personal compares representations within known bounds; leave it out": study.personal is not None,
    }
    found = [fault for fault, there in faults.items() if there]
    if found:
        msg = f"model.encoder linear is one matrix, but {'; '.join(found)}"
        raise ValueError(msg)


def _beside(study: StudyFields) -> None:
    model, reads = study.model, study.head_inputs
    if not (model.skip or model.random_features):
        return
    faults = {
        "model.skip puts the inputs beside an encoder, and with model.encoder raw the heads read them anyway; leave"
        " it out": model.skip and model.encoder == "raw",
        "model.random_features stand beside the inputs; set model.skip to true, or model.encoder to raw": not (
            model.skip or model.encoder == "raw"
        ),
        "data.features is empty, so there are no inputs to read; list features, or leave out model.skip and"
        " model.random_features": study.data.inputs == 0,
        f"a head reads {reads} values, and at most {_MOST_READ} are allowed; list fewer features or make"
        " model.representation or model.random_features smaller": reads > _MOST_READ,
    }
    found = [fault for fault, there in faults.items() if there]
    if found:
        msg = "; ".join(found)
        raise ValueError(msg)


def _personal(study: StudyFields) -> None:
    plan, model = study.personal, study.model
    if plan is None:
        return
    layers = 1 + len(model.hidden) + (study.data.image is not None)
    faults = {
        f"personal.depth {plan.depth} exceeds the encoder's {layers} layers; lower it": plan.depth > layers,
        "personal.adversary guesses data.protected, which is empty; list a column there": plan.adversary > 0
        and not study.data.protected,
        "personal.adversary guards the representation alone, and with model.skip heads read the inputs beside it; leave"
        " one of them out": plan.adversary > 0 and model.skip,
    }
    found = [fault for fault, there in faults.items() if there]
    if found:
        raise ValueError("; ".join(found))


def _recipe(study: StudyFields) -> None:
    recipe, heads, encoder = study.composition, study.heads, study.encoder
    raw = study.model.encoder == "raw"
    faults = {
        f"recipe {recipe.name} sums what a silo's own steps have made of its records, and nobody can bound what one"
        " patient adds to that; it is only for data declared public (privacy.mode none); choose second-order": (
            recipe.public and study.privacy.mode != "none"
        ),
        f"recipe {recipe.name} has no heads.solver {heads.solver}; leave it out": heads.solver != "newton"
        and not recipe.solved,
        f"recipe {recipe.name} clips no record's term; leave heads.clip out": heads.clip != 1 and recipe.local_heads,
        f"recipe {recipe.name} trains the encoder in every round; leave encoder.rounds, encoder.every and"
        " encoder.warm_up out": recipe.joint
        and (encoder.rounds is not None or encoder.every != 1 or encoder.warm_up > 0),
        f"recipe {recipe.name} has one head for all; set heads.domain_rounds to 0": recipe.one_head
        and heads.domain_rounds > 0,
        f"encoder.warm_up {encoder.warm_up} must lie below heads.pooled_rounds {heads.pooled_rounds}": not recipe.joint
        and encoder.warm_up >= heads.pooled_rounds,
        f"recipe {recipe.name} has no round of its own for calibration; leave heads.calibration out": not recipe.solved
        and heads.calibration != "none",
        "encoder.together goes with recipe feddar-sa alone; leave it out": encoder.together
        and recipe.heads != "hessians",
        "encoder.together trains the encoder in every round; leave encoder.rounds, encoder.every and encoder.warm_up"
        " out": encoder.together and (encoder.rounds is not None or encoder.every != 1 or encoder.warm_up > 0),
        "encoder.together has no table of classes; leave encoder.cmi out": encoder.together and encoder.cmi > 0,
        "encoder.sealed_steps go with recipe second-order alone, without encoder.warm_up and encoder.every; leave"
        " them out": encoder.sealed_steps and (not recipe.solved or encoder.warm_up > 0 or encoder.every != 1),
        f"recipe {recipe.name} has no steps for the heads alone; leave encoder.head_steps out": recipe.order
        != "heads-first"
        and encoder.head_steps > 0,
        "encoder.proximal acts on a silo's own steps, and a sealed step is everybody's; leave it out": encoder.proximal
        > 0
        and encoder.sealed_steps,
        "encoder.proximal draws a silo's later steps to where the round began, and encoder.steps is 1; take more steps,"
        " or leave it out": encoder.proximal > 0 and encoder.steps == 1 and not encoder.sealed_steps,
        f"encoder.proximal draws to what is shared, and recipe {recipe.name} shares nothing; leave it out": (
            encoder.proximal > 0 and not recipe.shares
        ),
        f"encoder.prior averaged would share the tables of encoder.cmi, and recipe {recipe.name} shares nothing; make"
        " it local": encoder.cmi > 0 and encoder.prior == "averaged" and not recipe.shares,
        "model.encoder raw has no weights that a silo could keep; choose mlp": raw and recipe.kept == {"encoder"},
        f"model.encoder raw has no weights to share, and recipe {recipe.name} keeps the heads; choose recipe local, or"
        " mlp": raw and recipe.kept == {"heads"},
    } | {
        f"recipe {recipe.name} lives by {' or '.join(group)}; write it above 0": not any(
            _wanted(study, field) for field in group
        )
        for group in recipe.needs
    }
    found = [fault for fault, there in faults.items() if there]
    if found:
        raise ValueError("; ".join(found))


def _wanted(study: StudyFields, field: str) -> bool:
    """Whether a field, `part.field`, is there and above 0."""
    part, name = field.split(".")
    section = getattr(study, part)
    return section is not None and bool(getattr(section, name))


def _invariance(study: StudyFields) -> None:
    """What IRM and GroupDRO need: environments, and at the encoder the trainer that has them."""
    encoder, personal = study.encoder, study.personal
    fields = [str(term.field) for term in TERMS if term.environments]
    uploaded = {f"encoder.{field}": getattr(encoder, field) > 0 for field in fields}
    own = {f"personal.{field}": getattr(personal, field, 0) > 0 for field in fields}
    asked = [field for field, there in (uploaded | own).items() if there]
    if asked and study.data.environment is None:
        msg = (
            f"{' and '.join(asked)} compare environments, and data.environment names no column that tells them; name"
            " one, or leave them out"
        )
        raise ValueError(msg)
    faults = {
        f"recipe {study.recipe} does not average encoder and heads together; choose fedavg or multi-head-fedavg": (
            study.composition.heads,
            study.composition.encoder,
        )
        != ("averaged", "averaged"),
        f"encoder.sampling_rate is {encoder.sampling_rate:g}; make it 1, because every step reads all"
        " records": encoder.sampling_rate != 1,
        "encoder.cmi draws features at random, which this training does not; leave it out": encoder.cmi > 0,
        "encoder.proximal is added to noised steps, which this training does not take; leave it out": (
            encoder.proximal > 0
        ),
    }
    found = [fault for fault, there in faults.items() if there]
    if any(uploaded.values()) and found:
        msg = f"{' and '.join(field for field, there in uploaded.items() if there)}: {'; '.join(found)}"
        raise ValueError(msg)


def _linear_recipe(study: StudyFields) -> None:
    """All that Algorithm 2 leaves no room for, at once. `_recipe` has what it has in common with other recipes."""
    model, heads, encoder, inputs = study.model, study.heads, study.encoder, study.data.inputs
    faults = {
        "it sums records without a clip and without noise, and is only for data declared public; set privacy.mode to"
        " none, or choose second-order": study.privacy.mode != "none",
        f"model.encoder is {model.encoder}; make it linear": model.encoder != "linear",
        "model.hidden lists layers; make it an empty list": bool(model.hidden) and model.encoder != "linear",
        f"model.representation is {model.representation} of {inputs} inputs; make it at most {inputs}": 0
        < inputs
        < model.representation,
        f"model.gain is {model.gain:g}; leave it out, because the first matrix is orthonormal too": model.gain != 1,
        "heads read the representation alone; leave model.skip and model.random_features out": model.skip
        or model.random_features > 0,
        "data.label is classes, and heads in closed form need a number; give its minimum and maximum, or choose"
        " feddar-sa": study.data.label.number is None,
        "heads.clip would change the closed form; leave it out": heads.clip != 1,
        f"encoder.steps is {encoder.steps}; make it 1, because every step is followed by a QR": encoder.steps != 1,
        f"encoder.sampling_rate is {encoder.sampling_rate:g}; make it 1": encoder.sampling_rate != 1,
        "encoder.momentum and encoder.schedule are not its own; leave them out": encoder.momentum > 0
        or encoder.schedule != "constant",
        "encoder.l2r and encoder.cmi are not its own; leave them out": encoder.l2r + encoder.cmi > 0,
        "encoder.warm_up is not its own; leave it out": encoder.warm_up > 0,
    }
    found = [fault for fault, there in faults.items() if there]
    if found:
        msg = f"recipe {study.recipe} is FedDAR's Algorithm 2, but {'; '.join(found)}"
        raise ValueError(msg)


def _calibration(study: StudyFields) -> None:
    calibration = study.heads.calibration
    if calibration != "none" and not study.model.bias:
        msg = f"heads.calibration {calibration} moves the biases, and model.bias is false; leave it out"
        raise ValueError(msg)


def _rounds(study: StudyFields) -> None:
    heads, classes = study.heads, study.data.label.count
    if study.encoder.rounds is not None and study.encoder.rounds < study.encoder.warm_up:
        msg = f"encoder.rounds {study.encoder.rounds} must not lie below encoder.warm_up {study.encoder.warm_up}"
        raise ValueError(msg)
    if study.encoder_rounds >= study.head_rounds > 0 and study.encoder.rounds:
        msg = f"encoder.rounds {study.encoder_rounds} must lie below the {study.head_rounds} rounds of the heads"
        raise ValueError(msg)
    if study.encoder.sealed_steps:
        _sealed_steps(study)
    if heads.solver != "hierarchical":
        return
    if study.data.label.number is not None:
        msg = "heads.solver hierarchical is for classes, and data.label is a number; choose newton"
        raise ValueError(msg)
    if not heads.domain_rounds:
        msg = "heads.solver hierarchical solves domain rounds, and heads.domain_rounds is 0; choose newton"
        raise ValueError(msg)
    if study.encoder_rounds >= heads.pooled_rounds:
        msg = (
            f"encoder.rounds {study.encoder_rounds} must lie below heads.pooled_rounds {heads.pooled_rounds}: with"
            " heads.solver hierarchical the encoder must not change any more when the last pooled round is summed"
        )
        raise ValueError(msg)
    width = (1 if classes == BINARY else classes) * study.head_row
    if width > _WIDEST:
        msg = (
            f"heads.solver hierarchical solves heads of at most {_WIDEST} weights, and these have {width}; make"
            f" {_what_widens(study)} smaller or choose newton"
        )
        raise ValueError(msg)


def _what_widens(study: StudyFields) -> str:
    if study.model.random_features:
        return "model.representation or model.random_features"
    return "model.representation"


def _sealed_steps(study: StudyFields) -> None:
    encoder = study.encoder
    faults = {
        f"encoder.sampling_rate is {encoder.sampling_rate:g}; make it 1, for all patients take part": (
            encoder.sampling_rate != 1
        ),
        f"encoder.sealing is {encoder.sealing}; make it ring64, which alone holds the sums of a step": (
            encoder.sealing != "ring64"
        ),
        "encoder.prior is local; make it averaged, because a silo's own share of the noise does not cover its"
        " table": encoder.cmi > 0 and encoder.prior == "local",
        f"privacy.max_patients {study.privacy.max_patients} of {len(study.silos)} silos exceed the {_MOST_SUMMED}"
        " patients whose gradients ring64 holds; lower it": (
            study.privacy.max_patients * len(study.silos) > _MOST_SUMMED
        ),
        f"{study.encoder_rounds} x {encoder.steps} steps make {study.rounds} rounds; have at most {_MOST_ROUNDS} by a"
        " lower encoder.rounds or encoder.steps": study.rounds > _MOST_ROUNDS,
    }
    found = [fault for fault, there in faults.items() if there]
    if found:
        msg = f"with encoder.sealed_steps every step is a round of its own, but {'; '.join(found)}"
        raise ValueError(msg)


def _noise(study: StudyFields) -> None:
    noises = {
        "heads.pooled_noise": study.heads.pooled_noise,
        "heads.domain_noise": study.heads.domain_noise,
        "encoder.noise": study.encoder.noise,
        "evaluation.noise": study.evaluation.noise,
        "privacy.count_noise": study.privacy.count_noise,
    }
    if study.heads.calibration != "none":
        noises["heads.calibration_noise"] = study.heads.calibration_noise
    elif study.heads.calibration_noise:
        msg = "heads.calibration_noise is that of a round which heads.calibration none leaves out; leave it out too"
        raise ValueError(msg)
    for field, noise in noises.items():
        if (noise == 0) != (study.privacy.mode == "none"):
            msg = (
                f"{field} is {noise:g}; noise must be 0 in all fields if privacy.mode is none, and above 0 in all"
                " fields otherwise"
            )
            raise ValueError(msg)
