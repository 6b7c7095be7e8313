"""The policies of a local federation's silos: made from one text for all of them, or a text for each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from policies.documents.document import DocumentError, parse_document
from policies.documents.policy import Policy

DATA_SET: Final = "{data_set}"
"""Placeholder in the common text for the name of a silo's data set. The data set is named after the silo."""


Policies = str | Mapping[str, str]
"""The common text, or each silo's own by its name."""


def silo_text(policies: Policies, silo: str) -> str:
    """The text of one silo's policy, with the silo's name where the text has the placeholder."""
    text = policies if isinstance(policies, str) else policies[silo]
    return text.replace(DATA_SET, silo)


def silo_policy(policy: Policies, silo: str, study_file: Path) -> Policy:
    """One silo's policy. Raises `DocumentError` naming the `policy.yaml` beside the study."""
    return parse_document(silo_text(policy, silo), Policy, study_file.parent / "policy.yaml")


def read_policies(path: Path, silos: tuple[str, ...]) -> Policies:
    """The policies in a file for all silos, or in a folder with `SILO.yaml` for each.

    Raises `DocumentError` naming the file, OSError if one cannot be read.
    """
    if not path.is_dir():
        text = path.read_text(encoding="utf-8")
        check_common(text, silos, path)
        return text
    files = {silo: path / f"{silo}.yaml" for silo in silos}
    texts = {silo: file.read_text(encoding="utf-8") for silo, file in files.items()}
    owners: dict[str, str] = {}
    for silo, text in texts.items():
        data_set = parse_document(silo_text(text, silo), Policy, files[silo]).data_set.id
        if data_set in owners:
            msg = f"field data_set.id: {data_set} is the data set of {owners[data_set]} too; give each silo its own"
            raise DocumentError(files[silo], [msg])
        owners[data_set] = silo
    return texts


def check_common(policy: str, silos: tuple[str, ...], file: Path) -> None:
    """Raise `DocumentError` if `policy` is not a policy, or if it gives several silos the same data set."""
    for silo in silos:
        parse_document(silo_text(policy, silo), Policy, file)
    if len(silos) > 1 and DATA_SET not in policy:
        msg = f'field data_set.id: one policy for {len(silos)} silos needs "{DATA_SET}" here, for each silo\'s own name'
        raise DocumentError(file, [msg])
