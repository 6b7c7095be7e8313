"""What `make mutants` plants: faults that act, spread over a module, the same for the same seed."""

from collections import Counter

import pytest

from bench.mutants.__main__ import HERE, ROOT, Verdict, figure_of, read_reasons
from bench.mutants.making import OWN, Mutant, meaning, planted, sample

MODULE = '''
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy


class Gate:
    def pass_on(self, left: int | None, limit: int = 3) -> int | None:
        """Let it through."""
        if left is None or left >= limit:
            msg = f"only {left + 1} of {limit} came; try again"
            raise ValueError(msg)
        seen = f"{left + 1}"
        self.note(seen)
        return left
'''


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "gate.py").write_text(MODULE)
    return tmp_path


def changes(tree):
    return {(mutant.before, mutant.after) for mutant in sample(tree, ["gate.py"], 1000, 0)}


def test_only_what_acts_is_changed(tree):
    found = changes(tree)
    assert not [before for before, _ in found if "TYPE_CHECKING" in before or "msg =" in before]
    signatures = {after for before, after in found if before.startswith("def")}
    assert {after.partition("-> ")[2] for after in signatures} == {"int | None:"}
    whole = "if left is None or left >= limit:"
    assert {
        (whole, "if left is None:"),
        (whole, "if left >= limit:"),
        (whole, "if left is None or left > limit:"),
        (whole, "if left is None and left >= limit:"),
        ("raise ValueError(msg)", "pass"),
        ("self.note(seen)", "pass"),
        ('seen = f"{left + 1}"', 'seen = f"{left - 1}"'),
    } <= found


def test_every_mutant_is_python_and_does_something_else(tree):
    for mutant in sample(tree, ["gate.py"], 1000, 0):
        assert meaning(planted(tree, mutant)) != meaning(MODULE)
        assert mutant.where == "Gate.pass_on"


def test_a_seed_draws_the_same_and_a_smaller_sample_is_the_beginning(tree):
    large = sample(tree, ["gate.py"], 12, 3)
    assert sample(tree, ["gate.py"], 5, 3) == large[:5]
    assert sample(tree, ["gate.py"], 12, 4) != large
    lines = Counter(mutant.before for mutant in large)
    assert len(lines) >= 5, "no place comes twice before all have come once"


@pytest.mark.parametrize("operator", OWN, ids=lambda one: one.__name__)
def test_our_own_operators_do_what_their_examples_say(operator, tmp_path):
    for number, example in enumerate(operator.examples()):
        path = tmp_path / f"{number}.py"
        path.write_text(example.pre_mutation_code)
        mutant = Mutant(path.name, operator.__name__, example.occurrence, 1, "", "", "")
        assert meaning(planted(tmp_path, mutant)) == meaning(example.post_mutation_code)


def test_a_module_is_well_tested_if_nine_of_ten_are_found_and_the_rest_has_reasons():
    def figure(killed, late, explained, unexplained, skipped=0):
        outcomes = ["killed"] * killed + ["late"] * late + ["not run"] * skipped
        whys = [(outcome, None) for outcome in outcomes]
        whys += [("survived", "equal")] * explained + [("survived", None)] * unexplained
        mutant = Mutant("a.py", "x", 0, 1, "", "", "")
        return figure_of("a", [Verdict(mutant, outcome, 0.0, "", why) for outcome, why in whys])

    assert figure(85, 5, 10, 0).met
    assert not figure(84, 5, 11, 0).met
    assert not figure(95, 0, 4, 1).met
    assert not figure(95, 0, 4, 0, 1).met


def test_every_reason_is_for_lines_that_stand_there():
    """A reason whose lines are gone says nothing any more, and comes off the list."""
    held = {}
    for path, _, before, _ in read_reasons(HERE / "equivalent.yaml"):
        held[path] = held.get(path) or " ".join((ROOT / path).read_text().split())
        assert before in held[path], (path, before)
