import json
from dataclasses import replace

import structlog

from protos.messages import Place
from silo_agent import logs
from silo_agent.logs import TrainingLog
from support.releases import a_release

PLACE = Place("5" * 64, 2, 3)


def test_a_mechanism_that_ran_is_one_line_that_outlives_the_process(tmp_path):
    path = tmp_path / "training.jsonl"
    TrainingLog(path).record(PLACE, a_release(noise=15.0))
    TrainingLog(path).record(PLACE, a_release(tensor="encoder", sampling_rate=0.02, noise=1.5, count=20))
    first, second = map(json.loads, path.read_text().splitlines())
    assert first == {
        "study": "5" * 64,
        "round": 2,
        "attempt": 3,
        "tensor": "heads",
        "cohort": "training",
        "sampling_rate": 1.0,
        "noise_multiplier": 15.0,
        "times": 1,
    }
    assert (second["tensor"], second["sampling_rate"], second["times"]) == ("encoder", 0.02, 20)


def test_a_draw_that_was_lost_and_made_anew_is_one_line(tmp_path):
    """Its first making was seen by nobody; a recount must not find more than was charged."""
    path = tmp_path / "training.jsonl"
    for _ in range(2):
        TrainingLog(path).record(PLACE, a_release(noise=15.0))
    TrainingLog(path).record(replace(PLACE, attempt=4), a_release(noise=15.0))
    assert [json.loads(line)["attempt"] for line in path.read_text().splitlines()] == [3, 4]


def test_a_line_that_a_crash_cut_short_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "training.jsonl"
    TrainingLog(path).record(PLACE, a_release(noise=15.0))
    whole = path.read_text()
    path.write_text(whole[:-9])
    TrainingLog(path).record(PLACE, a_release(noise=15.0))
    assert path.read_text().splitlines() == [whole[:-9], whole.rstrip()]


def test_the_operators_log_is_json_lines_on_stderr_from_info_upwards(capsys):
    logs.configure()
    log = structlog.get_logger()
    log.debug("unsaid")
    log.info("charged", round=1)
    try:
        int("broken")
    except ValueError:
        log.exception("failed")
    out, err = capsys.readouterr()
    charged, failed = map(json.loads, err.splitlines())
    assert out == ""
    assert (charged["event"], charged["level"], charged["round"]) == ("charged", "info", 1)
    assert "timestamp" in charged
    assert "ValueError: invalid literal" in failed["exception"]
