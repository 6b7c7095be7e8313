"""`study validate`: a file that is whole, and what silos answer."""

from coordinator.cli.validating import asked


def test_it_asks_until_all_have_answered_or_the_time_is_over():
    replies = [{"a": "", "b": ""}, {"a": "allowed", "b": ""}, {"a": "allowed", "b": "silent"}, {"a": "never"}]
    left, now, waits = list(replies), [0.0], []

    def wait(seconds):
        waits.append(seconds)
        now[0] += seconds

    assert asked(lambda: left.pop(0), 45.0, lambda: now[0], wait) == {"a": "allowed", "b": "silent"}
    assert len(waits) == 2
    assert asked(lambda: {"a": ""}, 3.0, lambda: now[0], wait) == {"a": ""}
    assert now[0] == 2 + 3
