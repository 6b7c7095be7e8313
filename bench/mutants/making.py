"""Mutants of a module: small faults in its source, one at a time.

cosmic-ray's operators make them (another comparison, number, arithmetic or boolean, an inverted condition, a loop
that never runs, a missing decorator), and our own (`operators`). A shell script has faults
of its own (`shell`).

Left out is what cannot change what a module does: annotations (every module postpones their evaluation), imports for
type checkers alone, values that only the text of a message shows, `slots` of a dataclass, and `is` for `==`.
"""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.operators.provider import OperatorProvider

from bench.mutants import shell
from bench.mutants.operators import OWN

_SENTENCE: Final = re.compile(r"[a-z,;:)] [a-z({]")
_UNLIKELY: Final = ("_Is", "_IsNot")
_LEFT_OUT: Final = ("VariableReplacer", "VariableInserter", "ExceptionReplacer")
"""The first two need arguments; of the third there is one of our own."""


Key = tuple[str, str, str, str]
"""(path, where, before, after) of a mutant."""


@dataclass(frozen=True)
class Mutant:
    """One fault: lines of a file, and what stands there instead."""

    path: str
    operator: str
    occurrence: int
    line: int
    where: str
    """The function or class, dotted; empty for the rest of the module."""
    before: str
    """The lines that differ, with single spaces."""
    after: str

    @property
    def key(self) -> Key:
        """What it is named by where its reason is written down; lines may move."""
        return self.path, self.where, self.before, self.after


def operators() -> dict[str, Operator]:
    """Every operator by its name."""
    provided = OperatorProvider()
    names = [name for name in provided if name not in _LEFT_OUT and not name.endswith(_UNLIKELY)]
    # A comparison with `is` has no other replacement than these.
    names += ["ReplaceComparisonOperator_Is_IsNot", "ReplaceComparisonOperator_IsNot_Is"]
    return {name: provided[name]() for name in names} | {own.__name__: own() for own in OWN}


def sample(root: Path, paths: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """At most `count` mutants of these files, drawn with `seed`. A smaller sample is the beginning of a larger one."""
    return list(islice(faults(root, paths, seed), count))


def faults(root: Path, paths: Sequence[str], seed: int) -> Iterator[Mutant]:
    """All mutants of these files, in an order drawn with `seed`.

    Every place in the source comes once before any comes twice, and among those every kind of fault comes once before
    any comes twice.
    """
    known = operators()
    sites = [(path, *site) for path in paths for site in _sites((root / path).read_text("utf-8"), path, known)]
    random.Random(f"{seed} {' '.join(paths)}").shuffle(sites)  # noqa: S311 - a draw that anybody can repeat
    places: Counter[tuple[str, tuple[int, int]]] = Counter()
    kinds: Counter[tuple[int, str]] = Counter()
    ranked = []
    for path, name, occurrence, place in sites:
        kind = (places[path, place], name.partition("_")[0])
        ranked.append((kind[0], kinds[kind], path, name, occurrence))
        places[path, place] += 1
        kinds[kind] += 1
    ranked.sort(key=lambda site: site[:2])
    seen: set[Key] = set()
    for _, _, path, name, occurrence in ranked:
        mutant = _described(root, path, known, name, occurrence)
        if mutant is not None and mutant.key not in seen:
            seen.add(mutant.key)
            yield mutant


def planted(root: Path, mutant: Mutant) -> str:
    """The source with the fault."""
    source = (root / mutant.path).read_text("utf-8")
    if mutant.path.endswith(shell.SUFFIX):
        return shell.changed(source, mutant.operator, mutant.occurrence)
    return str(mutate_code(source, operators()[mutant.operator], mutant.occurrence))


def meaning(source: str) -> str:
    """What a module does, in a form that two sources have in common if they differ in what is left out."""
    return ast.dump(_Meaning().visit(ast.parse(source)))


class _Meaning(ast.NodeTransformer):
    """Removes what does not act."""

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [keyword for keyword in node.keywords if keyword.arg != "slots"]  # they save memory alone
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if "TYPE_CHECKING" in ast.dump(node.test) else self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        words = "{".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        return ast.Constant("a sentence") if _SENTENCE.search(words) else self.generic_visit(node)


def _sites(source: str, path: str, known: dict[str, Operator]) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """(operator, occurrence, start) of everything that the operators can change."""
    if path.endswith(shell.SUFFIX):
        yield from shell.sites(source)
        return
    nodes = list(ast_nodes(get_ast(source)))
    for name, operator in known.items():
        places = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        yield from ((name, occurrence, place) for occurrence, place in enumerate(places))


def statements(source: str, path: str) -> int:
    """How many statements a file has: what its share of a room's faults is drawn by."""
    if path.endswith(shell.SUFFIX):
        return len(shell.lines(source))
    return sum(1 for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt))


def _described(root: Path, path: str, known: dict[str, Operator], name: str, occurrence: int) -> Mutant | None:
    """The mutant, or None if it is no Python or does the same as the source."""
    source = (root / path).read_text("utf-8")
    script = path.endswith(shell.SUFFIX)
    if script:
        changed = shell.changed(source, name, occurrence)
    else:
        changed = mutate_code(source, known[name], occurrence)
        try:
            if changed is None or meaning(changed) == meaning(source):
                return None
        except SyntaxError:
            return None
    old, new = source.splitlines(), changed.splitlines()
    first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    before, after = (" ".join(" ".join(lines[first : len(lines) - last]).split()) for lines in (old, new))
    where = shell.place(source, first + 1) if script else _place(source, first + 1)
    return Mutant(path, name, occurrence, first + 1, where, before, after)


def _place(source: str, line: int) -> str:
    """The dotted name of the innermost function or class around a line; its decorators belong to it."""
    names: list[str] = []
    inside: ast.AST | None = ast.parse(source)
    while inside is not None:
        inside = next((node for node in ast.iter_child_nodes(inside) if _holds(node, line)), None)
        if isinstance(inside, ast.ClassDef | ast.FunctionDef):
            names.append(inside.name)
    return ".".join(names)


def _holds(node: ast.AST, line: int) -> bool:
    if not isinstance(node, ast.stmt):
        return False
    decorators = node.decorator_list if isinstance(node, ast.ClassDef | ast.FunctionDef) else []
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return first <= line <= (node.end_lineno or node.lineno)
