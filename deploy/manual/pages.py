"""One man page for each program: what its help says of every command, with exit codes and environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from typer.main import get_command


@dataclass(frozen=True)
class Program:
    """A command line: what it is called, where its commands are, and what it is for."""

    name: str
    module: str
    about: str


PROGRAMS: Final = (
    Program("fedward-silo", "silo_agent.cli.main", "a hospital's agent of a FedWard federation"),
    Program("fedward-coordinator", "coordinator.cli.main", "the blind coordinator of a FedWard federation"),
    Program("fedward-authority", "crypto.pki.authority.cli", "the certificates of a FedWard consortium"),
    Program("fedward", "deploy.local.cli", "a FedWard study on one machine"),
)
EXIT_CODES: Final = (
    ("0", "It was done."),
    ("1", "It was not done. The standard error says why in one sentence, and what to do about it."),
    ("2", "The call was wrong: an unknown option, or a value that it does not take."),
    ("3", "It was done, and a person should look: a study is refused, a record left out, a policy becomes looser."),
    ("130", "It was ended by Ctrl-C."),
)
_VALUES: Final = {Path: "file", int: "number", float: "number", str: "text"}
_MARKUP: Final = re.compile(r"`([^`]+)`")


def page(program: Program) -> str:
    """Return the man page of a program (section 1), in the macros of man(7)."""
    root = get_command(import_module(program.module).app)
    title = f'.TH {program.name.upper()} 1 "" "FedWard {_release()}" "FedWard"'
    lines = [
        '.\\" Made by python -m deploy.manual from the commands; change those.',
        title,
        ".SH NAME",
        f"{program.name} \\- {_text(program.about)}",
        ".SH SYNOPSIS",
        f".B {_text(program.name)}",
        "COMMAND [ARGUMENTS] [OPTIONS]",
        ".SH DESCRIPTION",
        _text(_first(root)),
        ".SH COMMANDS",
        *_commands(root, program.name),
        ".SH EXIT STATUS",
    ]
    for code, meaning in EXIT_CODES:
        lines += [".TP", f".B {code}", _text(meaning)]
    variables = sorted(_variables(root))
    if variables:
        lines += [".SH ENVIRONMENT"]
        for name, option in variables:
            lines += [".TP", f".B {_text(name)}", _text(f"The value of {option}, if the option is not given.")]
    others = ", ".join(f"{one.name}(1)" for one in PROGRAMS if one is not program)
    return "\n".join([*lines, ".SH SEE ALSO", _text(others), ""])


def _release() -> str:
    """The version without what changes from build to build."""
    return version("fedward").partition(".dev")[0]


def _commands(command: Any, path: str) -> Iterator[str]:
    """Every command below one, in the order of the help."""
    for name, each in getattr(command, "commands", {}).items():
        if each.hidden:
            continue
        whole = f"{path} {name}"
        if hasattr(each, "commands"):
            yield from _commands(each, whole)
            continue
        arguments = " ".join(_argument(one) for one in each.params if one.param_type_name == "argument")
        yield f".SS {_text(' '.join(filter(None, (whole, arguments))))}"
        yield from _paragraphs(each.help or "")
        for one in each.params:
            if one.param_type_name == "argument" and getattr(one, "help", None):
                yield from (".TP", f".I {_text(_argument(one))}", _text(one.help))
            elif one.param_type_name == "option" and not one.hidden and "--help" not in one.opts:
                yield from (".TP", f".B {_text(_option(one))}", _text(_meaning(one)))


def _argument(one: Any) -> str:
    name = str(one.metavar or one.name).upper()
    return name if one.required else f"[{name}]"


def _option(one: Any) -> str:
    names = ", ".join(one.opts)
    if one.is_flag:
        return f"{names} / {', '.join(one.secondary_opts)}" if one.secondary_opts else names
    kind = one.type_descriptor.annotation
    kind = get_args(kind)[0] if get_origin(kind) is list else kind
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"{names} {'|'.join(map(_plain, kind))}"
    return f"{names} {str(one.metavar or _VALUES.get(kind, 'VALUE')).upper()}"


def _meaning(one: Any) -> str:
    said = one.help or ""
    default = one.default
    if one.required:
        return f"{said} Required.".strip()
    if one.is_flag or callable(default) or default in (None, "", ()):
        return said
    return f"{said} Default: {_plain(default)}.".strip()


def _plain(value: Any) -> str:
    return str(getattr(value, "value", value))


def _variables(command: Any) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for one in command.params:
        names = one.envvar if isinstance(one.envvar, (list, tuple)) else [one.envvar]
        found |= {(name, max(one.opts, key=len)) for name in names if name}
    for each in getattr(command, "commands", {}).values():
        found |= _variables(each)
    return found


def _first(command: Any) -> str:
    return (command.help or "").strip()


def _paragraphs(text: str) -> Iterator[str]:
    for number, part in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        yield _text(" ".join(part.split()))


def _text(text: str) -> str:
    """Text as roff takes it: no line is a request, and a hyphen is one that can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = _MARKUP.sub(r"\\fB\1\\fP", text)
    return f"\\&{text}" if text.startswith((".", "'")) else text
