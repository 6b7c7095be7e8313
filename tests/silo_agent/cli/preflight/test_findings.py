import json

from silo_agent.cli.preflight.findings import Finding, PreflightReport, Status


def report(*found, shared=False):
    return PreflightReport("tiny", "5" * 64, "north", "1", shared, found)


TABLES = {"By column": [{"column": "age", "missing": 7}], "By domain": []}
TEXT = """\
Preflight of tiny at north, for inside: it counts records, keep it here
┏━━━━━━┳━━━━━━━━┳━━━━━━━━━━━━━━━━━┓
┃check ┃ result ┃ found           ┃
┡━━━━━━╇━━━━━━━━╇━━━━━━━━━━━━━━━━━┩
│data  │ look   │ one [bold] :cat:│
└──────┴────────┴─────────────────┘

By column
┏━━━━━━━┳━━━━━━━━┓
┃column ┃ missing┃
┡━━━━━━━╇━━━━━━━━┩
│age    │ 7      │
└───────┴────────┘"""


def test_only_a_check_that_fails_asks_for_attention():
    calm = [Finding(str(status), status, "") for status in Status if status is not Status.FAILS]
    assert not report(*calm).attention
    assert report(*calm, Finding("policy", Status.FAILS, "")).attention


def test_text_and_json_say_the_same():
    made = report(Finding("data", Status.LOOK, "one [bold] :cat:", TABLES))
    text, document = made.as_text(), json.loads(made.as_json())
    assert text == TEXT
    assert made.as_json() == json.dumps(document, indent=1)
    assert document["checks"] == [
        {
            "check": "data",
            "status": "look",
            "found": "one [bold] :cat:",
            "tables": TABLES,
        }
    ]
    assert (document["report"], document["attention"], document["digest"]) == ("inside", False, "5" * 64)


def test_a_report_says_who_may_see_it():
    assert "keep it here" in report().as_text()
    assert "no record was read for it" in report(shared=True).as_text()
    assert json.loads(report(shared=True).as_json())["report"] == "shared"
