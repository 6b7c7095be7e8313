"""Mutants of a module: small faults in its source, one at a time.

cosmic-ray's operators make them (another comparison, number, arithmetic or boolean, an inverted condition, an exception
that is not caught, a loop that never runs, a missing decorator), and two of our own: a statement that is dropped, which
is how a check gets lost, and one side of an `and` or `or` that is dropped.

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
from pathlib import Path
from typing import Any, Final

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.operators.provider import OperatorProvider

Node = Any
"""A node of parso's tree. parso gives its nodes no common type for what is read here."""
_SENTENCE: Final = re.compile(r"[a-z,;:)] [a-z({]")
_UNLIKELY: Final = ("_Is", "_IsNot")
_NEED_ARGUMENTS: Final = ("VariableReplacer", "VariableInserter")


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


class DropStatement(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """A call whose result nobody uses, a `raise` or an augmented assignment is not carried out."""

    def mutation_positions(self, node: Node) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Where in this node."""
        if node.type == "simple_stmt" and _acts(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Node, index: int) -> Node:  # noqa: ARG002 - a statement has one place
        """Return the node with the fault."""
        first = node.children[0].get_first_leaf()
        node.children[0] = parso.python.tree.Name("pass", first.start_pos, first.prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Code without and with the fault."""
        return (
            Example("check(x)\n", "pass\n"),
            Example("if x:\n    raise y\n", "if x:\n    pass\n"),
            Example("x += 1\n", "pass\n"),
        )


class DropOperand(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """One side of an `and` or `or` is not asked."""

    def mutation_positions(self, node: Node) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Where in this node."""
        if node.type in ("and_test", "or_test"):
            for operand in node.children[::2]:
                yield operand.start_pos, operand.end_pos

    def mutate(self, node: Node, index: int) -> Node:
        """Return the node with the fault."""
        first = node.get_first_leaf().prefix
        at = 2 * index
        del node.children[max(at - 1, 0) : max(at - 1, 0) + 2]
        node.get_first_leaf().prefix = first
        return node.children[0] if len(node.children) == 1 else node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Code without and with the fault."""
        return (
            Example("x = a and b\n", "x = b\n"),
            Example("x = a or b or c\n", "x = a or c\n", occurrence=1),
            Example("x = a or b or c\n", "x = a or b\n", occurrence=2),
        )


OWN: Final[tuple[type[Operator], ...]] = (DropStatement, DropOperand)


def operators() -> dict[str, Operator]:
    """Every operator by its name."""
    provided = OperatorProvider()
    names = [name for name in provided if name not in _NEED_ARGUMENTS and not name.endswith(_UNLIKELY)]
    # A comparison with `is` has no other replacement than these.
    names += ["ReplaceComparisonOperator_Is_IsNot", "ReplaceComparisonOperator_IsNot_Is"]
    return {name: provided[name]() for name in names} | {own.__name__: own() for own in OWN}


def sample(root: Path, paths: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """At most `count` mutants of these files, drawn with `seed`.

    Every place in the source comes once before any comes twice. A smaller sample is the beginning of a larger one.
    """
    known = operators()
    sites = [(path, *site) for path in paths for site in _sites((root / path).read_text("utf-8"), known)]
    random.Random(f"{seed} {' '.join(paths)}").shuffle(sites)  # noqa: S311 - a draw that anybody can repeat
    seen: Counter[tuple[str, tuple[int, int]]] = Counter()
    ranked = []
    for path, name, occurrence, place in sites:
        ranked.append((seen[path, place], path, name, occurrence))
        seen[path, place] += 1
    ranked.sort(key=lambda site: site[0])
    found: list[Mutant] = []
    for _, path, name, occurrence in ranked:
        if len(found) == count:
            break
        mutant = _described(root, path, known, name, occurrence)
        if mutant is not None and mutant.key not in {other.key for other in found}:
            found.append(mutant)
    return found


def planted(root: Path, mutant: Mutant) -> str:
    """The source with the fault."""
    source = (root / mutant.path).read_text("utf-8")
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


def _acts(statement: Node) -> bool:
    if statement.type == "atom_expr":
        last = statement.children[-1]
        return bool(last.type == "trailer" and last.children[0].value == "(")
    if statement.type == "expr_stmt":
        operator = statement.children[1]
        return bool(operator.type == "operator" and len(operator.value) > 1)
    return bool(statement.type == "raise_stmt")


def _sites(source: str, known: dict[str, Operator]) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """(operator, occurrence, start) of everything that the operators can change."""
    nodes = list(ast_nodes(get_ast(source)))
    for name, operator in known.items():
        places = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        yield from ((name, occurrence, place) for occurrence, place in enumerate(places))


def _described(root: Path, path: str, known: dict[str, Operator], name: str, occurrence: int) -> Mutant | None:
    """The mutant, or None if it is no Python or does the same as the source."""
    source = (root / path).read_text("utf-8")
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
    return Mutant(path, name, occurrence, first + 1, _place(source, first + 1), before, after)


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
