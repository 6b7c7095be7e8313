"""`fedward-silo study new` on a terminal: asks for what no option has answered, and checks each answer at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import typer

from silo_agent.cli import answers
from silo_agent.cli.answers import AnswerError
from silo_agent.cli.drafting import Answers


@dataclass(frozen=True)
class Question:
    """One question. `read` turns the answer into what `Answers` holds, or raises `AnswerError`.

    Attributes:
        field: the field of `Answers`.
        text: what is asked.
        read: what becomes of the answer.
        many: whether it is asked again until the answer is empty.
        optional: whether an empty answer is one.
    """

    field: str
    text: str
    read: Callable[[str], Any] = str
    many: bool = False
    optional: bool = False


def _as(parse: Callable[[str], object]) -> Callable[[str], str]:
    """Check an answer by its grammar, and keep it as it was written."""

    def read(text: str) -> str:
        parse(text)
        return text

    return read


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _figure(text: str) -> float:
    value = answers.code_of(text)
    if isinstance(value, str):
        msg = f"{text!r} is not a number; write one, such as 0.5"
        raise AnswerError(msg)
    return value


def _figures(text: str) -> str:
    for part in text.split(","):
        _figure(part)
    return text


QUESTIONS: Final = (
    Question("name", "Name of the study (a-z, 0-9, hyphens)"),
    Question("purpose", "Purpose, for the people who approve it"),
    Question("silos", "Hospitals, with commas between", _list),
    Question(
        "patient", "Column that says which records are one patient's (empty: each record is its own)", optional=True
    ),
    Question("label", f"Outcome ({answers.LABEL})", _as(answers.label)),
    Question("domains", f"Groups with a head of their own ({answers.DOMAIN})", _as(answers.domain), many=True),
    Question(
        "features", f"Column, with its public range or codes ({answers.FEATURE})", _as(answers.feature), many=True
    ),
    Question("patients", "Expected patients for training of a hospital, or of each, with commas between", _figures),
    Question(
        "prevalence",
        "Expected share of patients with the outcome, of two classes (empty: one half)",
        _figure,
        optional=True,
    ),
    Question(
        "effect", "Expected AUC, or R^2 of a number, without noise (empty: a common range)", _figure, optional=True
    ),
    Question("epsilon", "The most epsilon that the study may cost a patient", _figure),
)
"""In the order of asking."""


def ask(said: Answers) -> None:
    """Fill in what is still unanswered. An answer that cannot be used is asked for again."""
    for question in QUESTIONS:
        held = getattr(said, question.field)
        if held not in (None, []) or (question.field == "features" and said.columns is not None):
            continue
        if question.many:
            while (answer := _answer(question, optional=bool(held))) is not None:
                held.append(answer)
        else:
            setattr(said, question.field, _answer(question, optional=question.optional))


def _answer(question: Question, *, optional: bool) -> Any:
    more = ", or nothing if that is all" if question.many and optional else ""
    while True:
        text = str(typer.prompt(question.text + more, default="" if optional else None, show_default=False)).strip()
        if not text and optional:
            return None
        try:
            return question.read(text)
        except AnswerError as error:
            typer.echo(f"  {error}", err=True)
