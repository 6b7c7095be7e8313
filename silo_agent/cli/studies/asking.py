"""`fedward-silo study new` on a terminal: asks for what no option has answered, and checks each answer at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import typer

from policies.documents.about import described
from policies.documents.draft import DraftPrivacy
from policies.documents.fields import StudyFields
from silo_agent.cli import answers
from silo_agent.cli.answers import AnswerError
from silo_agent.cli.drafting import Answers

_ASKED: Final = {
    one.path: one.about.question
    for one in (*described(StudyFields), *described(DraftPrivacy, "privacy."))
    if one.about is not None and one.about.question
}


@dataclass(frozen=True)
class Question:
    """One question. `read` turns the answer into what `Answers` holds, or raises `AnswerError`.

    Attributes:
        field: the field of `Answers`.
        path: the field of the study or its draft, which says what is asked (`policies.documents.about`).
        read: what becomes of the answer.
        grammar: how an answer is written, if it has parts.
        many: whether it is asked again until the answer is empty.
        optional: whether an empty answer is one.
    """

    field: str
    path: str
    read: Callable[[str], Any] = str
    grammar: str = ""
    many: bool = False
    optional: bool = False

    @property
    def text(self) -> str:
        """What is asked."""
        return f"{_ASKED[self.path]} ({self.grammar})" if self.grammar else _ASKED[self.path]


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


def _yes(text: str) -> bool:
    found = {"yes": True, "y": True, "no": False, "n": False}.get(text.lower())
    if found is None:
        msg = f"{text!r} is neither yes nor no; write one of them"
        raise AnswerError(msg)
    return found


QUESTIONS: Final = (
    Question("name", "name"),
    Question("purpose", "purpose"),
    Question("silos", "silos", _list),
    Question("patient", "data.patient", optional=True),
    Question("label", "data.label", _as(answers.label), grammar=answers.LABEL),
    Question("domains", "data.domain", _as(answers.domain), grammar=answers.DOMAIN, many=True),
    Question("features", "data.features", _as(answers.feature), grammar=answers.FEATURE, many=True),
    Question("patients", "expected.patients", _figures),
    Question("prevalence", "expected.prevalence", _figure, optional=True),
    Question("effect", "expected.effect", _figure, optional=True),
    Question("own_models", "personal", _yes, grammar="yes or no; costs no epsilon"),
    Question("epsilon", "privacy.epsilon", _figure),
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
