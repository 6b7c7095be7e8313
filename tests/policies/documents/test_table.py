"""The tables of docs/study-fields.md are what the fields say; a page out of date is noticed, and written anew."""

import pytest

from policies.documents import table
from policies.documents.table import PAGE, main, rows, written


def row(section, path):
    (found,) = [row for row in rows(section) if row[0] == f"`{path}`"]
    return found


def test_the_page_is_what_the_fields_say():
    assert written(PAGE.read_text(encoding="utf-8")) == PAGE.read_text(encoding="utf-8"), (
        f"run python -m {main.__module__}"
    )


def test_a_page_out_of_date_is_noticed_and_written(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    monkeypatch.setattr(table, "PAGE", page)
    page.write_text("before\n\n<!-- fields: heads -->\n| outdated |\n\nafter\n")
    assert main(["--check"]) == 1
    assert "run python -m policies.documents.table" in capsys.readouterr().err
    assert main([]) == 0
    assert main(["--check"]) == 0
    text = page.read_text()
    assert text.startswith("before\n\n<!-- fields: heads -->\n| field | unit or values | default | since |")
    assert text.endswith(" |\n\nafter\n")
    assert "outdated" not in text
    assert "| `heads.clip` | norm, 0.001 to 1 | `1.0` | 0.1 |" in text


@pytest.mark.parametrize(
    ("section", "path", "values", "default"),
    [
        ("study", "version", "`1`", "-"),
        ("study", "silos", "list of names, 2 to 1,000 of them", "-"),
        ("study", "pace", "`prompt`, `padded`", '`"prompt"`'),
        ("study", "personal", "fields below", "`null`"),
        ("data", "data.domain", "factors, 1 to 3 of them", "-"),
        ("data", "data.image.channels", "`1`, `3`", "`1`"),
        ("data", "data.features[category].optional", "`true`, `false`", "`false`"),
        ("model", "model.channels", "list of channels, 1 to 6 of them, each 4 to 512", "`[16, 32]`"),
        ("encoder", "encoder.rounds", "rounds, 0 to 400", "`null`"),
        ("encoder", "encoder.momentum", "share, 0 to 0.999", "`0.0`"),
        ("expected", "expected.prevalence", "share, above 0, below 1", "`null`"),
        ("privacy", "privacy.delta", "probability, 1e-12 to below 0.01", "-"),
    ],
)
def test_a_row_has_the_values_that_the_type_takes(section, path, values, default):
    assert row(section, path)[1:3] == (values, default)


def test_a_recipe_reads_what_its_composition_says():
    by_recipe = dict(table._by_recipe())
    assert len(by_recipe) == len(table.RECIPES)
    assert "`encoder.head_steps`" in by_recipe["`fedrep`"]
    assert by_recipe["`local`"] == "`heads.domain_rounds`"
    assert "`heads.ridge`" not in by_recipe["`feddar-wa`"]
