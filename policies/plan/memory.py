"""How much memory a study may need at a silo, in bytes, from its public constants alone.

It is an upper estimate, by arithmetic and without building anything, so a silo can compare it with its policy
(`limits.memory_mib`) before it does any work for the study. It counts what grows with the study: not the program and
its libraries. A patient counts with one record; a patient with several needs more (`privacy.max_patients` bounds
patients).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from policies.documents.study import Image, Study
from policies.plan import architectures, shapes, terms

_COPIES: Final = 2
"""A record's gradient, and what is made of it while it is clipped (measured: 1.6)."""
PART: Final = 1 << 29
"""Bytes that the gradients and activations of one part of a batch may take, unless one record alone needs more."""
MAPS: Final = 16
"""Memory of a pass through an image network, counted in maps of its largest size."""
_FLOAT: Final = 4
_CELL: Final = 64
"""Bytes of a cell while the file is read: a short text and its place."""
_RECORD: Final = 96
"""Bytes of a record beside its inputs: class, domain, patient, identity, places."""
_PHI: Final = 32
"""Bytes of one value that a head reads, in the heads' sums: the value, its error, their products, in float64."""
_WEIGHT: Final = 128
"""Bytes of a weight: the model, its start, gradient, noise, change, integers, masks and sealed bytes."""
_SUMMED: Final = 96
"""Bytes of a value of the other sums: the full and the packed matrix, noise, integers, masks and sealed bytes."""
_FORWARD: Final = 1 << 16
"""Records that pass the encoder at once when nothing is trained."""
_PAIR: Final = 19 * 40
"""Bytes of a pair of records in MK-MMD: 19 kernels, six float32 matrices and two float64 ones each."""
_WHOLE: Final = 3
"""Copies of all layers' values where every step reads all records: values, their gradients, what is kept between."""
_BYTE: Final = 255


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a study may need at a silo, by what needs them."""

    records: int
    encoder: int
    heads: int
    personal: int

    @property
    def total(self) -> int:
        """All of it. The parts are not all needed at once, so this is more than the peak."""
        return self.records + self.encoder + self.heads + self.personal


def needed(study: Study) -> MemoryNeed:
    """The memory that a study may need at a silo."""
    patients, widest = study.privacy.max_patients, _widest(study)
    joint = max(shapes.trained_heads(study, number) for number in (1, study.rounds))
    weights = shapes.encoder_values(study) + terms.table_values(study) + joint * shapes.head_width(study)
    record = _FLOAT * (weights + MAPS * widest)
    layers = _layer_values(study)
    gradients = _COPIES * max(record, min(PART, patients * record))
    if terms.couples_records(study.encoder):
        gradients = _WHOLE * _FLOAT * patients * (layers + MAPS * widest)
    summed = max(shapes.head_values(study, number) for number in (1, study.rounds))
    summed += len(study.data.domains) + shapes.metric_blocks(study) * shapes.metric_values(study)
    summed += shapes.evidence_values(study)
    return MemoryNeed(
        records=patients * _record_bytes(study) + _FLOAT * min(patients, _FORWARD) * layers,
        encoder=_WEIGHT * weights + gradients,
        heads=_SUMMED * summed,
        personal=_personal(study, layers + MAPS * widest, weights),
    )


def _record_bytes(study: Study) -> int:
    data = study.data
    cells = len(data.features) + len(data.domain) + 2 * len(data.protected) + 2 + (data.image is not None)
    pixels = 0 if data.image is None else _image_bytes(data.image)
    return _RECORD + _CELL * cells + _FLOAT * data.inputs + pixels + _PHI * study.head_row


def _image_bytes(image: Image) -> int:
    """Bytes of an image in memory: one for each pixel if the range is whole numbers of up to 255 steps, else two."""
    span = image.maximum - image.minimum
    whole = image.minimum.is_integer() and span.is_integer() and span <= _BYTE
    return image.channels * image.height * image.width * (1 if whole else 2)


def _widest(study: Study) -> int:
    image = study.data.image
    return 0 if image is None else architectures.widest(study.model, image)


def _layer_values(study: Study) -> int:
    """Values of all layers of the encoder for one record, its inputs included, and what stands beside its output."""
    return sum(shapes.layer_widths(study)) + study.head_inputs - study.model.representation


def _personal(study: Study, values: int, weights: int) -> int:
    plan = study.personal
    if plan is None:
        return 0
    batch = min(plan.batch_size, study.privacy.max_patients)
    pairs = _PAIR * batch**2 * plan.depth if plan.mmd > 0 else 0
    return pairs + _FLOAT * (batch * values + 6 * weights)
