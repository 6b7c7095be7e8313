"""What a study publishes: each silo signs the figures that `publish` lists. Figures with enough agreement are shown.

Guarantees: a publication is accepted only if it has exactly the figures that the study lists. If the study announces
how large its hospitals are, how far one of them could move each figure may stand beside it. A figure is shown only if
at least `needed` silos have signed exactly the same figure, and if no other figure of that name has as many. The
coordinator sees no sum, so only the silos vouch that a figure is right; their signatures prove who did. `service`
verifies the signatures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from common.figure_words import MOVED
from policies.documents.study import Study
from protos.messages import AgreedFigure, Confirm, MessageError, Publication, SignedPublication, Tensor
from protos.steps import Task

FIELD = "confirm.publication"


def accept(study: Study, silo: str, confirm: Confirm, certificate_pem: bytes) -> SignedPublication | None:
    """Return what a confirmation publishes, or None if it is not one that publishes. Raises `MessageError`."""
    due = bool(study.publish) and confirm.task is Task.OPEN and confirm.tensor is Tensor.METRICS
    if not due or confirm.dispute:
        if confirm.publication:
            msg = f"{FIELD}: the study publishes nothing"
            raise MessageError(msg)
        return None
    if not confirm.publication:
        msg = f"{FIELD}: is missing; the study publishes {', '.join(study.publish)}"
        raise MessageError(msg)
    _check(study, Publication.parse(confirm.publication))
    return SignedPublication(silo, confirm.publication, confirm.signature, certificate_pem)


def agreed(publications: Sequence[SignedPublication], needed: int) -> tuple[AgreedFigure, ...]:
    """Return the figures that at least `needed` silos have signed exactly so, in the order of their first naming."""
    signed = [figure for one in publications for figure in Publication.parse(one.blob).figures]
    enough = {figure: silos for figure, silos in Counter(signed).items() if silos >= needed}
    versions = Counter((figure.domain, figure.metric) for figure in enough)
    return tuple(
        AgreedFigure(figure, silos) for figure, silos in enough.items() if versions[figure.domain, figure.metric] == 1
    )


def _check(study: Study, publication: Publication) -> None:
    if publication.study != study.digest:
        msg = f"{FIELD}: is about the study {publication.study[:12]}, not {study.digest[:12]}"
        raise MessageError(msg)
    listed: set[tuple[str, str]] = {(domain, metric) for domain in study.reported for metric in study.publish}
    beside = set() if study.expected is None else {(domain, f"{metric}{MOVED}") for domain, metric in listed}
    named = {(figure.domain, figure.metric) for figure in publication.figures}
    for fault, names in (("the study does not publish", named - listed - beside), ("it lacks", listed - named)):
        if names:
            domain, metric = min(names)
            msg = f"{FIELD}: {fault} {metric} of {domain!r}"
            raise MessageError(msg)
