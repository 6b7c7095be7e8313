import json

from silo_agent.cli.preflight.findings import Finding, Report, Status


def report(*found, shared=False):
    return Report("tiny", "5" * 64, "north", "1", shared, found)


def test_only_a_check_that_fails_asks_for_attention():
    calm = [Finding(str(status), status, "") for status in Status if status is not Status.FAILS]
    assert not report(*calm).attention
    assert report(*calm, Finding("policy", Status.FAILS, "")).attention


def test_text_and_json_say_the_same():
    made = report(Finding("data", Status.LOOK, "one [bold] row", {"By column": [{"column": "age", "missing": 7}]}))
    text, document = made.as_text(), json.loads(made.as_json())
    for word in ("data", "look", "one [bold] row", "By column", "age", "7"):
        assert word in text
    assert document["checks"] == [
        {
            "check": "data",
            "status": "look",
            "found": "one [bold] row",
            "tables": {"By column": [{"column": "age", "missing": 7}]},
        }
    ]
    assert (document["report"], document["attention"], document["digest"]) == ("inside", False, "5" * 64)


def test_a_report_says_who_may_see_it():
    assert "keep it here" in report().as_text()
    assert "no record was read for it" in report(shared=True).as_text()
    assert json.loads(report(shared=True).as_json())["report"] == "shared"
