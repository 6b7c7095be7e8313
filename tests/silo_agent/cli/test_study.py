import json

from typer.testing import CliRunner

from policies.documents.schema import study_schema
from silo_agent.cli.main import app


def test_the_schema_of_a_study_is_printed():
    done = CliRunner().invoke(app, ["study", "schema"])
    assert done.exit_code == 0
    assert done.stdout == study_schema()
    assert json.loads(done.stdout)["title"] == "Study"
