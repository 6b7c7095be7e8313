"""The rooms of the house: each says what it is for, and others enter by the modules that it names."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("common", "protos", "crypto", "policies", "coordinator", "silo_agent")
SHIPPED = (*PACKAGES, "deploy", "bench")
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for top in SHIPPED
    for path in (ROOT / top).rglob("*.py")
}
ROOMS = sorted(
    name
    for name, path in FILES.items()
    if path.name == "__init__.py" and name.startswith(("crypto.", "policies.", "silo_agent."))
)
MOST_FILES = 15


@cache
def imported_modules(path):
    """Modules of this repository that a file imports, under their full names."""
    return frozenset(_imported(path))


def _imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in FILES else node.module for name in whole)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def entered_from_outside(room):
    """Modules of a room that files outside it import."""
    return {
        name.removeprefix(f"{room}.").split(".")[0]
        for other, path in FILES.items()
        if other != room and not other.startswith(f"{room}.")
        for name in imported_modules(path)
        if name.startswith(f"{room}.")
    }


def exported(room):
    """What a room's `__all__` names; None where it has none."""
    for node in ast.parse(FILES[room].read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return ast.literal_eval(node.value)
    return None


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_is_for_and_which_modules_others_may_use(room):
    assert ast.get_docstring(ast.parse(FILES[room].read_text()))
    entered = entered_from_outside(room)
    modules = {name for name in exported(room) or () if f"{room}.{name}" in FILES}
    assert modules == {name for name in entered if f"{room}.{name}" in FILES}


def test_no_folder_has_so_many_files_that_nobody_finds_anything():
    sizes = {
        folder: sum(1 for path in folder.glob("*.py") if path.name != "__init__.py")
        for folder in {path.parent for path in FILES.values()}
    }
    crowded = {str(folder.relative_to(ROOT)): size for folder, size in sizes.items() if size > MOST_FILES}
    assert not crowded


def test_the_ground_floor_needs_nothing_but_the_standard_library():
    ground = [path for name, path in FILES.items() if name.partition(".")[0] == "common"]
    needed = {name.partition(".")[0] for path in ground for name in imported_modules(path)}
    assert needed <= sys.stdlib_module_names | {"common"}


def test_a_class_has_its_name_alone():
    """Who searches for a name finds one thing. A policy's section and the hospital's own value are both a `DataSet`."""
    places = {}
    for name, path in FILES.items():
        if not name.startswith("protos.v1"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(name)
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert twice == {"DataSet": ["policies.documents.policy", "silo_agent.data.sources.data_set"]}
