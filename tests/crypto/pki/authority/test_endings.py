"""The keeper of an issuing authority is told long before something ends with which everybody stands still."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from crypto.pki.authority.endings import ending, watch
from crypto.pki.authority.issuing import ROOT_LISTS_FILE
from tests.support.online import Online

NOW = datetime.now(UTC)


@pytest.fixture
def online(tmp_path):
    return Online(tmp_path, days=365)


def test_what_ends_is_told_within_its_notice(online):
    assert not list(ending(online.authority, NOW))
    (list_,) = ending(online.authority, NOW + timedelta(days=70))
    assert "the revocation list of the root 'Root of tests' is stale from" in list_
    online.publish(days=360)
    own, root = ending(online.authority, NOW + timedelta(days=320))
    assert "the certificate of this issuing authority ends on" in own
    assert "the root 'Root of tests' ends on" in root


def test_lists_that_cannot_be_read_are_told_until_it_is_stopped(online):
    (online.issuing / ROOT_LISTS_FILE).write_text("nothing")
    told, stop = [], threading.Event()
    watch(online.authority, lambda sentence: (told.append(sentence), stop.set()), stop)
    assert len(told) == 1
    assert told[0].startswith(ROOT_LISTS_FILE)
