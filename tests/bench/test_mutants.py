"""What `make mutants` plants: faults that act, spread over a module or a room, the same for the same seed."""

import json
import os
import re
import subprocess
from collections import Counter
from types import SimpleNamespace

import pytest

from bench.mutants import shell
from bench.mutants.__main__ import HERE, ROOT, MutantVerdict, figure_of, read_reasons
from bench.mutants.making import Mutant, meaning, planted, sample
from bench.mutants.operators import OWN
from bench.mutants.rooms import folder_tests, own_tests, read_campaign, share
from bench.mutants.running import SYSTEM, guarded
from bench.mutants.zygote import Fastest

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


SCRIPT = """# It says = and ||.
point() {
  act ln -sfn "$1" "$2.new"
}
umask 022
if [ -n "$root" ] && [ "$dry" = yes ]; then exit 1; fi
"""


def test_a_shell_scripts_commands_and_conditions_are_changed(tmp_path):
    (tmp_path / "a.sh").write_text(SCRIPT)
    found = sample(tmp_path, ["a.sh"], 100, 0)
    condition = 'if [ -n "$root" ] && [ "$dry" = yes ]; then exit 1; fi'
    assert {(mutant.where, mutant.before, mutant.after) for mutant in found} >= {
        ("point", 'act ln -sfn "$1" "$2.new"', ': act ln -sfn "$1" "$2.new"'),
        ("point", 'act ln -sfn "$1" "$2.new"', 'act ln "$1" "$2.new"'),
        ("", "umask 022", ": umask 022"),
        ("", condition, condition.replace("-n", "-z")),
        ("", condition, condition.replace("&&", "||")),
        ("", condition, condition.replace("= yes", "!= yes")),
        ("", condition, condition.replace("= yes", "= no")),
        ("", condition, condition.replace("if", "if !")),
    }
    assert not [mutant for mutant in found if mutant.before.startswith("#")]
    assert all(planted(tmp_path, mutant) != SCRIPT for mutant in found)
    assert shell.lines(SCRIPT) == [1, 2, 3, 4, 5]


def test_a_room_shares_its_faults_by_the_statements_of_its_files(tmp_path):
    paths = ["large.py", "none.py", "small.py"]
    for name, times in zip(paths, (9, 0, 3), strict=True):
        (tmp_path / name).write_text("".join(f"x{number} = {number} + y\n" for number in range(times)))
    shared = share(tmp_path, paths, 8, 20261125)
    assert {path: len(mutants) for path, mutants in shared.items()} == {"large.py": 6, "small.py": 2}
    assert share(tmp_path, paths, 8, 20261125) == shared != share(tmp_path, paths, 8, 20261126)
    smaller = share(tmp_path, paths, 3, 20261125)
    assert all(mutants == shared[path][: len(mutants)] for path, mutants in smaller.items())
    assert len(share(tmp_path, ["none.py", "small.py"], 5, 1)["small.py"]) == 5, "what one file lacks the others get"


def test_the_tests_of_a_file_mirror_it_and_else_those_of_its_folder_stand(tmp_path):
    tests = tmp_path / "tests" / "a"
    tests.mkdir(parents=True)
    for name in ("test_b.py", "test_d.py", "support.py"):
        (tests / name).touch()
    assert own_tests(tmp_path, "a/b.py") == ["tests/a/test_b.py"]
    assert own_tests(tmp_path, "a/c.py") == []
    assert folder_tests(tmp_path, "a/c.py") == folder_tests(tmp_path, "a/e/f.py")
    assert folder_tests(tmp_path, "a/c.py") == ["tests/a/test_b.py", "tests/a/test_d.py"]
    with pytest.raises(FileNotFoundError):
        folder_tests(tmp_path, "z/c.py")


def test_every_room_has_files_and_every_file_has_tests():
    campaign = read_campaign(HERE / "modules.yaml")
    files = {room: campaign.files_of(ROOT, room) for room in campaign.rooms}
    assert all(files.values())
    assert {path for module in campaign.modules.values() for path in module.files} <= {
        str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py")
    }
    for path in (path for paths in files.values() for path in paths):
        first = campaign.stages_of(ROOT, path)[0]
        assert any((ROOT / word).exists() for word in first), path
        assert path.endswith(".sh") or campaign.stages_of(ROOT, path)[-1] == ("tests/test_dataclasses.py",)
    assert set(campaign.tests) >= {"silo_agent/gate.py", "deploy/install/common.sh"}
    assert "coordinator/core/round.py" not in campaign.tests, "a module of several files says nothing of each of them"


def test_the_fastest_tests_come_first_and_files_stay_together(tmp_path):
    times = tmp_path / "times.json"
    first = Fastest(times)
    for name, seconds in (("a::1", 3.0), ("a::2", 1.0), ("b::1", 0.5), ("b::1", 0.5)):
        first.pytest_runtest_logreport(SimpleNamespace(nodeid=name, duration=seconds))
    first.pytest_sessionfinish(1)
    assert not times.exists(), "a run that ended early knows nothing of the others"
    first.pytest_sessionfinish(0)
    assert json.loads(times.read_text()) == {"a::1": 3.0, "a::2": 1.0, "b::1": 1.0}
    items = [SimpleNamespace(nodeid=name, path=name[0]) for name in ("a::1", "a::2", "b::1", "a::new")]
    Fastest(times).pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == ["b::1", "a::new", "a::2", "a::1"]


def test_a_module_is_well_tested_if_nine_of_ten_are_found_and_the_rest_has_reasons():
    def figure(killed, late, explained, unexplained, skipped=0):
        outcomes = ["killed"] * killed + ["late"] * late + ["not run"] * skipped
        whys = [(outcome, None) for outcome in outcomes]
        whys += [("survived", "equal")] * explained + [("survived", None)] * unexplained
        mutant = Mutant("a.py", "x", 0, 1, "", "", "")
        return figure_of("a", [MutantVerdict(mutant, outcome, 0.0, "", why) for outcome, why in whys])

    assert figure(85, 5, 10, 0).met
    assert not figure(84, 5, 11, 0).met
    assert not figure(95, 0, 4, 1).met
    assert not figure(95, 0, 4, 0, 1).met


def test_every_reason_is_for_lines_that_stand_there():
    """A reason whose lines are gone, or whose function has another name, says nothing any more."""
    held = {}
    files = re.findall(r"^(\S+):$", (HERE / "equivalent.yaml").read_text(), re.MULTILINE)
    assert len(files) == len(set(files)), "of two sections of one file the first would be forgotten"
    for path, place, before, _ in read_reasons(HERE / "equivalent.yaml"):
        held[path] = held.get(path) or " ".join((ROOT / path).read_text().split())
        assert before in held[path], (path, before)
        for name in filter(None, place.split(".")):
            assert re.search(rf"\b(class|def) {name}\b|\b{name}\(\) {{", held[path]), (path, place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could change the system's folders")
def test_what_a_fault_does_never_changes_the_machine(tmp_path):
    """A script that installs without its `--root` would install here."""
    names = [f"{folder}/fedward-fault" for folder in SYSTEM]
    tried = ["sh", "-c", 'for name; do touch "$name" && echo "$name"; done', "sh", *names, str(tmp_path / "own")]
    try:
        done = subprocess.run(guarded(tried), capture_output=True, text=True, check=False)
    except RuntimeError as error:
        assert "be another user" in str(error)  # noqa: PT017  # a machine without mount namespaces runs no fault at all
        return
    assert done.stdout.split() == [str(tmp_path / "own")]
    assert done.stderr.count("Read-only file system") == len(names)
    assert (tmp_path / "own").exists()
