"""Faults of our own, beside those of cosmic-ray: what people get wrong that no other symbol shows.

A statement is dropped, which is how a check gets lost, or one side of an `and` or `or`. State is not brought up to
date, or a value is kept although it has changed: two ways of a stale cache. Bytes never reach the disk. Two arguments,
operands or branches stand in each other's place. A call is left out of the expression around it. A default is another
one. An exception is not caught.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import parso
from cosmic_ray.operators.operator import Example, Operator

Node = Any
"""A node of parso's tree. parso gives its nodes no common type for what is read here."""
Places = Iterator[tuple[tuple[int, int], tuple[int, int]]]

_ORDERED: Final = ("-", "/", "//", "%", "<<", ">>", "@")
"""Operators whose operands have an order. `**` is one node with its base, and has a case of its own."""
_SYMMETRIC: Final = ("max", "min", "gcd", "hypot", "isinstance", "allclose", "equal", "compare_digest")
"""Calls whose arguments may be swapped, or whose swap no run of the program survives."""
_CONVERSIONS: Final = ("tuple", "list", "frozenset", "iter", "cast", "Path", "str", "repr", "super")
"""Calls without which a value looks the same to nearly all who read it."""
_VIEWS: Final = ("items", "keys", "values")
_DURABLE: Final = ("fsync", "sync_file", "sync_folder", "flush", "write_whole", "write_pieces", "commit")
"""Calls that bring something to the disk, by the last part of their name."""
_FORGETTING: Final = ("clear", "pop", "discard", "remove", "cache_clear", "update", "add", "append")
"""Calls that change what an object holds, by the last part of their name."""
_MAKING: Final = ("__init__", "__post_init__", "__new__")
_FROZEN: Final = ("frozen", "NamedTuple", "Enum", "Protocol", "BaseModel")
_NEVER: Final = "GeneratorExit"
"""What nobody raises where it could be caught."""
_CACHED: Final = '__import__("functools").'


class DropStatement(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """A call whose result nobody uses, a `raise` or an augmented assignment is not carried out."""

    def mutation_positions(self, node: Node) -> Places:
        """Where in this node."""
        if node.type == "simple_stmt" and _acts(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Node, index: int) -> Node:  # noqa: ARG002 - a statement has one place
        """Return the node with the fault."""
        return _dropped(node)

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

    def mutation_positions(self, node: Node) -> Places:
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


class DropDurable(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """Bytes do not reach the disk: a call of `fsync`, of a durable write or of a commit is left out."""

    def mutation_positions(self, node: Node) -> Places:
        """Where in this node."""
        if node.type == "simple_stmt" and _called(node.children[0]) in _DURABLE:
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Node, index: int) -> Node:  # noqa: ARG002 - a statement has one place
        """Return the node with the fault."""
        return _dropped(node)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Code without and with the fault."""
        return (
            Example("os.fsync(file.fileno())\n", "pass\n"),
            Example("tell(x)\ndurable.sync_folder(path)\n", "tell(x)\npass\n"),
        )


class DropUpdate(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """What an object holds is not brought up to date: an attribute, an item, or the removal of one."""

    def mutation_positions(self, node: Node) -> Places:
        """Where in this node."""
        if node.type == "simple_stmt" and _updates(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Node, index: int) -> Node:  # noqa: ARG002 - a statement has one place
        """Return the node with the fault."""
        return _dropped(node)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Code without and with the fault."""
        return (
            Example("def f(self):\n    self.seen = None\n", "def f(self):\n    pass\n"),
            Example("known[name] = 1\n", "pass\n"),
            Example("del known[name]\n", "pass\n"),
            Example("known.pop(name)\n", "pass\n"),
            Example(
                "def __init__(self):\n    self.a = 1\ndef f(self):\n    self.a = 2\n",
                "def __init__(self):\n    self.a = 1\ndef f(self):\n    pass\n",
            ),
        )


class KeepFirst(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """What a function without arguments returned once it returns for ever, although what it reads has changed."""

    def mutation_positions(self, node: Node) -> Places:
        """Where in this node."""
        if node.type == "funcdef" and _can_be_stale(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Node, index: int) -> Node:  # noqa: ARG002 - a function has one place
        """Return the node with the fault."""
        first = node.get_first_leaf()
        if _decorators(node) == ["property"]:
            (decorator,) = node.get_decorators()
            decorator.children[1].value = f"{_CACHED}cached_property"
        else:
            first.value = f"@{_CACHED}cache\n{' ' * node.start_pos[1]}{first.value}"
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Code without and with the fault."""
        kept = f"@{_CACHED}cache\n"
        return (
            Example("def now():\n    return clock()\n", f"{kept}def now():\n    return clock()\n"),
            Example(
                "class A:\n    def left(self):\n        return self.x + 1\n",
                f"class A:\n    {kept}    def left(self):\n        return self.x + 1\n",
            ),
            Example(
                "class A:\n    @property\n    def left(self):\n        return self.x + 1\n",
                f"class A:\n    @{_CACHED}cached_property\n    def left(self):\n        return self.x + 1\n",
            ),
        )


class SwapArguments(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """Two neighbouring arguments of a call change places, or the values of two named ones."""

    def mutation_positions(self, node: Node) -> Places:
        """Where in this node."""
        for left, right in _pairs(node):
            yield left.start_pos, right.end_pos

    def mutate(self, node: Node, index: int) -> Node:
        """Return the node with the fault."""
        left, right = list(_pairs(node))[index]
        _exchange(left, right)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Code without and with the fault."""
        return (
            Example("f(a, b + 1)\n", "f(b + 1, a)\n"),
            Example("f(a, b, c)\n", "f(a, c, b)\n", occurrence=1),
            Example("f(x=a, y=b)\n", "f(x=b, y=a)\n"),
            Example("max(a, b)\nf(a, *b)\nf(a, a)\nx.f(a, b)\n", "max(a, b)\nf(a, *b)\nf(a, a)\nx.f(b, a)\n"),
        )


class SwapOperands(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """The operands of an operator whose operands have an order change places."""

    def mutation_positions(self, node: Node) -> Places:
        """Where in this node."""
        for left, right in _operands(node):
            yield left.start_pos, right.end_pos

    def mutate(self, node: Node, index: int) -> Node:
        """Return the node with the fault."""
        left, right = list(_operands(node))[index]
        _exchange(left, right)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Code without and with the fault."""
        return (
            Example("x = a - b\n", "x = b - a\n"),
            Example("x = a @ b + c\n", "x = b @ a + c\n"),
            Example("x = a ** b\n", "x = b ** a\n"),
            Example("x = a + b\ny = c[1] / d.e\n", "x = a + b\ny = d.e / c[1]\n"),
        )


class SwapBranches(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """The two values of a conditional expression change places."""

    def mutation_positions(self, node: Node) -> Places:
        """Where in this node."""
        if node.type == "test" and node.children[0].get_code().strip() != node.children[4].get_code().strip():
            yield node.start_pos, node.end_pos

    def mutate(self, node: Node, index: int) -> Node:  # noqa: ARG002 - an expression has one place
        """Return the node with the fault."""
        _exchange(node.children[0], node.children[4])
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Code without and with the fault."""
        return (Example("x = a if b else c\n", "x = c if b else a\n"),)


class DropCall(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """A call within an expression gives its only argument back, or the object that it was made on."""

    def mutation_positions(self, node: Node) -> Places:
        """Where in this node."""
        if _passes_on(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Node, index: int) -> Node:  # noqa: ARG002 - an expression has one place
        """Return the node with the fault."""
        prefix = node.get_first_leaf().prefix
        argument = _only_argument(node.children[-1])
        if argument is None:
            del node.children[-2:]
            return node.children[0] if len(node.children) == 1 else node
        argument.get_first_leaf().prefix = f"{prefix}("
        last = argument.get_last_leaf()
        last.value += ")"
        return argument

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Code without and with the fault."""
        return (
            Example("x = clipped(y)\n", "x = y\n"),
            Example("x = a + math.sqrt(y + 1)\n", "x = a + (y + 1)\n"),
            Example("x = name.strip()\n", "x = name\n"),
            Example("x = tuple(y)\nz = f(a, b)\nw = g(v)\n", "x = tuple(y)\nz = f(a, b)\nw = v\n"),
        )


class WrongDefault(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """A parameter or a field has another default: one more, nothing, or the opposite."""

    def mutation_positions(self, node: Node) -> Places:
        """Where in this node."""
        leaf = _default(node)
        for _ in _others(leaf):
            yield leaf.start_pos, leaf.end_pos

    def mutate(self, node: Node, index: int) -> Node:
        """Return the node with the fault."""
        leaf = _default(node)
        leaf.value = _others(leaf)[index]
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Code without and with the fault."""
        return (
            Example("def f(a, b=3): pass\n", "def f(a, b=4): pass\n"),
            Example("def f(a, b=3): pass\n", "def f(a, b=0): pass\n", occurrence=1),
            Example("def f(*, a: bool = True): pass\n", "def f(*, a: bool = False): pass\n"),
            Example("class A:\n    x: float = 0.5\n", "class A:\n    x: float = 1.5\n"),
            Example('def f(a="b", c=None): pass\n', 'def f(a="", c=None): pass\n'),
        )


class InverseMembership(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """`in` is `not in`, or the other way round."""

    def mutation_positions(self, node: Node) -> Places:
        """Where in this node."""
        if node.type == "comparison":
            for operator in node.children[1::2]:
                if _words(operator) in ("in", "not in"):
                    yield operator.start_pos, operator.end_pos

    def mutate(self, node: Node, index: int) -> Node:
        """Return the node with the fault."""
        operators = [operator for operator in node.children[1::2] if _words(operator) in ("in", "not in")]
        operator = operators[index]
        if _words(operator) == "in":
            operator.value = "not in"
        else:
            operator.children[0].value = ""
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Code without and with the fault."""
        return (
            Example("x = a in b\n", "x = a not in b\n"),
            Example("x = [a for a in b if a not in c]\n", "x = [a for a in b if a in c]\n"),
        )


class CatchNothing(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """An exception, or one of several, is not caught. cosmic-ray's own knows no names with dots."""

    def mutation_positions(self, node: Node) -> Places:
        """Where in this node."""
        for one in _caught(node):
            yield one.start_pos, one.end_pos

    def mutate(self, node: Node, index: int) -> Node:
        """Return the node with the fault."""
        one = _caught(node)[index]
        first = one.get_first_leaf()
        at = one.parent.children.index(one)
        one.parent.children[at] = parso.python.tree.Name(_NEVER, first.start_pos, first.prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Code without and with the fault."""
        before = "try: f()\nexcept "
        return (
            Example(f"{before}a.B as c: pass\n", f"{before}{_NEVER} as c: pass\n"),
            Example(f"{before}(a.B, C): pass\n", f"{before}(a.B, {_NEVER}): pass\n", occurrence=1),
            Example(f"{before}A: pass\n", f"{before}{_NEVER}: pass\n"),
        )


OWN: Final[tuple[type[Operator], ...]] = (
    DropStatement,
    DropOperand,
    DropDurable,
    DropUpdate,
    DropCall,
    KeepFirst,
    SwapArguments,
    SwapOperands,
    SwapBranches,
    WrongDefault,
    InverseMembership,
    CatchNothing,
)


def _dropped(node: Node) -> Node:
    """Return a statement that does nothing in place of the first of this line."""
    first = node.children[0].get_first_leaf()
    node.children[0] = parso.python.tree.Name("pass", first.start_pos, first.prefix)
    return node


def _exchange(left: Node, right: Node) -> None:
    """Let two nodes change places, each with the space that belongs to the place."""
    places = [(node, node.parent.children.index(node)) for node in (left, right)]
    prefixes = [node.get_first_leaf().prefix for node, _ in places]
    parents = [node.parent for node, _ in places]
    for (_, at), parent, other, prefix in zip(places, parents, (right, left), prefixes, strict=True):
        parent.children[at] = other
        other.get_first_leaf().prefix = prefix
    left.parent, right.parent = parents[1], parents[0]


def _around(node: Node, *types: str) -> Node:
    """The nearest node of one of these types around a node, or None."""
    return parso.tree.search_ancestor(node, *types)


def _acts(statement: Node) -> bool:
    if statement.type == "expr_stmt":
        operator = statement.children[1]
        return bool(operator.type == "operator" and len(operator.value) > 1)
    return bool(statement.type == "raise_stmt" or _called(statement))


def _called(node: Node) -> str:
    """Return the last part of the name of what this node calls; empty if it is no call."""
    if node.type != "atom_expr" or node.children[-1].type != "trailer" or node.children[-1].children[0].value != "(":
        return ""
    before = node.children[-2]
    name = before.children[-1] if before.type == "trailer" else before
    return name.value if name.type == "name" else "?"


def _updates(statement: Node) -> bool:
    if statement.type == "del_stmt" or _called(statement) in _FORGETTING:
        return True
    if statement.type != "expr_stmt" or getattr(statement.children[1], "value", "") != "=":
        return False
    function = _around(statement, "funcdef")
    making = function is not None and function.name.value in _MAKING
    return statement.children[0].type == "atom_expr" and not making


def _decorators(function: Node) -> list[str]:
    decorated = function.parent.type == "decorated"
    return [one.children[1].get_code() for one in function.get_decorators()] if decorated else []


def _can_be_stale(function: Node) -> bool:
    """Whether it takes nothing, returns something, and belongs to no class whose objects cannot change."""
    names = [parameter.name.value for parameter in function.get_params()]
    held = _around(function, "classdef")
    inside = _around(function, "classdef", "funcdef")
    if names != (["self"] if inside is not None and inside is held else []) or function.name.value.startswith("__"):
        return False
    if _around(function, "async_stmt", "async_funcdef") or next(function.iter_yield_exprs(), None):
        return False
    if _decorators(function) not in ([], ["property"]):
        return False
    if held is not None:
        whole = held.parent.get_code() if held.parent.type == "decorated" else held.get_code()
        if any(word in whole.partition(":\n")[0] for word in _FROZEN):
            return False
    return any(one.type == "return_stmt" for one in function.iter_return_stmts())


def _arguments(trailer: Node) -> list[Node]:
    inner = trailer.children[1:-1]
    if len(inner) == 1 and inner[0].type == "arglist":
        return [node for node in inner[0].children if node.type != "operator"]
    return [node for node in inner if node.type != "operator"]


def _pairs(node: Node) -> Iterator[tuple[Node, Node]]:
    """The values of neighbouring arguments that can change places."""
    if _called(node) in ("", *_SYMMETRIC):
        return
    arguments = _arguments(node.children[-1])
    for left, right in pairwise(arguments):
        named = [each.type == "argument" and each.children[1].type == "operator" for each in (left, right)]
        plain = [each.type != "argument" for each in (left, right)]
        if all(plain):
            pair = left, right
        elif all(named) and left.children[1].value == right.children[1].value == "=":
            pair = left.children[2], right.children[2]
        else:
            continue
        if pair[0].get_code().strip() != pair[1].get_code().strip():
            yield pair


def _operands(node: Node) -> Iterator[tuple[Node, Node]]:
    if node.type not in ("arith_expr", "term", "shift_expr", "power"):
        return
    for at in range(1, len(node.children), 2):
        operator = node.children[at]
        ordered = ("**",) if node.type == "power" else _ORDERED
        if getattr(operator, "value", None) not in ordered or at != 1:
            continue  # only the first operator stands between two whole operands
        left, right = node.children[0], node.children[2]
        if left.get_code().strip() != right.get_code().strip() and left.type != "string":
            yield left, right


def _only_argument(trailer: Node) -> Node | None:
    arguments = _arguments(trailer)
    return arguments[0] if len(arguments) == 1 and arguments[0].type not in ("argument", "operator") else None


def _passes_on(node: Node) -> bool:
    """Whether what is called could be left out: it takes one value, or none and belongs to an object."""
    name = _called(node)
    if not name or name in _CONVERSIONS or name[0].isupper() or node.parent.type in ("simple_stmt", "decorator"):
        return False
    if _arguments(node.children[-1]):
        return _only_argument(node.children[-1]) is not None and len(node.children) <= 3
    return node.children[-2].type == "trailer" and node.children[-2].children[0].value == "." and name not in _VIEWS


def _default(node: Node) -> Node:
    """The default of this parameter or of this field of a class; None if it has none that is one word."""
    if node.type == "param":
        return node.default
    if node.type == "expr_stmt" and node.children[1].type == "annassign":
        inside = _around(node, "classdef", "funcdef")
        value = node.children[1].children[-1]
        if inside is not None and inside.type == "classdef" and len(node.children[1].children) > 2:
            return value
    return None


def _others(leaf: Node) -> list[str]:
    """What could stand there instead."""
    if leaf is None:
        return []
    if leaf.type == "number":
        number = leaf.value.replace("_", "")
        value = float(number) if any(mark in number for mark in ".eE") and not number.startswith("0x") else None
        other = repr(value + 1) if value is not None else str(int(number, 0) + 1)
        zero = "0.0" if value is not None else "0"
        return [other] if number in ("0", "0.0") else [other, zero]
    if leaf.type == "string":
        return ['""'] if leaf.value not in ('""', "''") else []
    return {"True": ["False"], "False": ["True"]}.get(getattr(leaf, "value", ""), [])


def _caught(node: Node) -> list[Node]:
    """What an `except` names."""
    if node.type != "except_clause":
        return []
    named = node.children[1]
    if named.type == "atom" and named.children[1].type == "testlist_comp":
        return list(named.children[1].children[::2])
    return [named]


def _words(operator: Node) -> str:
    return " ".join(operator.get_code().split())
