"""The policies of a local federation's silos, made from one text for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from policies.documents.document import DocumentError, parse_document
from policies.documents.policy import Policy

DATA_SET: Final = "{data_set}"
"""Placeholder in the common text for the name of a silo's data set. The data set is named after the silo."""


def silo_text(policy: str, silo: str) -> str:
    """The text of one silo's policy, from the common text."""
    return policy.replace(DATA_SET, silo)


def silo_policy(policy: str, silo: str, study_file: Path) -> Policy:
    """One silo's policy, from the common text. Raises `DocumentError` naming the `policy.yaml` beside the study."""
    return parse_document(silo_text(policy, silo), Policy, study_file.parent / "policy.yaml")


def check_common(policy: str, silos: tuple[str, ...], file: Path) -> None:
    """Raise `DocumentError` if `policy` is not a policy, or if it gives several silos the same data set."""
    for silo in silos:
        parse_document(silo_text(policy, silo), Policy, file)
    if len(silos) > 1 and DATA_SET not in policy:
        msg = f'field data_set.id: one policy for {len(silos)} silos needs "{DATA_SET}" here, for each silo\'s own name'
        raise DocumentError(file, [msg])
