"""Each package has one tree of errors: whoever catches its root catches whatever it raises on purpose."""

import ast
import builtins
from pathlib import Path

PACKAGES = ("common", "protos", "crypto", "policies", "coordinator", "silo_agent")
ROOTS = {
    "common": set(),
    "protos": {"MessageError"},
    "crypto": {"CryptoError"},
    "policies": {"PolicyError"},
    "coordinator": {"CoordinatorError"},
    # The operator's wish to stop is no error; what does not fit a column never leaves the reader.
    "silo_agent": {"SiloError", "AskedToStop", "Unfit"},
}


def of_no_tree(package):
    """Names of exceptions that derive from Python's own alone."""
    folder = Path(__file__).parents[1] / package
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = [getattr(builtins, base.id, None) for base in node.bases if isinstance(base, ast.Name)]
                if bases and all(isinstance(base, type) and issubclass(base, BaseException) for base in bases):
                    yield node.name


def test_every_error_hangs_on_its_packages_root():
    assert {package: set(of_no_tree(package)) for package in PACKAGES} == ROOTS
