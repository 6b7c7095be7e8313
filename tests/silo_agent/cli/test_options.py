"""What commands say on a terminal while they last."""

import io
import sys

import pytest
import rich.console
from rich.table import Table

from silo_agent.cli.options import counting, print_whole, waiting

CLEARED = "\x1b[2K"
"""What clears a line of a terminal."""


@pytest.fixture
def terminal(monkeypatch):
    """What the standard error shows if it is a terminal."""
    shown, real = io.StringIO(), rich.console.Console

    def console(*, stderr):
        assert stderr
        return real(file=shown, force_terminal=True, width=80, _environ={"TERM": "xterm"})

    monkeypatch.setattr(rich.console, "Console", console)
    return shown


def test_a_line_says_what_lasts_and_is_gone_at_the_end(terminal, capsys):
    with waiting("first") as tell:
        tell("then another")
        sys.stdout.write("a table\n")
    said = terminal.getvalue()
    assert "first" in said
    assert "then another" in said
    assert said.rindex(CLEARED) > said.rindex("then another")
    assert capsys.readouterr().out == "a table\n", "what is printed goes where it always goes"


def test_a_line_is_gone_after_ctrl_c_too(terminal):
    def stopped():
        with counting("rows") as more:
            more(1200)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    said = terminal.getvalue()
    assert said.rindex(CLEARED) > said.rindex("1,200 rows")


@pytest.mark.parametrize("line", [counting, waiting])
def test_where_nobody_looks_nothing_is_said(capsys, line):
    with line("something") as tell:
        tell(5 if line is counting else "more")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_what_stays_on_one_line_is_whole_in_a_terminal_of_any_width(width):
    out = io.StringIO()
    table = Table("domain", "model", title="a title of several words")
    for figure in ("AUC", "accuracy"):
        table.add_column(figure, no_wrap=True)
    table.add_row("women under forty-five", "[bold]shared", "0.812 +- 0.012", "0.701 +- 0.113")
    print_whole(table, rich.console.Console(file=out, width=width, markup=False, emoji=False))
    shown = out.getvalue()
    assert "0.812 +- 0.012" in shown
    assert "0.701 +- 0.113" in shown
    assert "…" not in shown
    assert all(word in shown for word in ("women", "under", "forty-five", "[bold]shared"))
    assert max(map(len, shown.splitlines())) <= max(width, 75)
