from __future__ import annotations

import pytest

from silo_agent.storage.approvals import approve, approved
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder

DIGEST = "0123456789ab" * 5 + "cdef"


def test_a_study_is_approved_by_its_name_or_its_digest_and_the_digest_goes_before(tmp_path):
    folder = StateFolder(tmp_path / "state")
    assert approved(folder, "exam", DIGEST) is None
    approve(folder, "exam", "lung")
    assert approved(folder, "exam", DIGEST) == "lung"
    approve(folder, DIGEST[:12], "heart")
    assert approved(folder, "exam", DIGEST) == "heart"
    assert approved(folder, "exam", "f" * 64) == "lung"
    approve(folder, "exam", "liver")
    assert approved(folder, "exam", "f" * 64) == "liver"
    approve(folder, "0123", "none")
    assert approved(folder, "other", DIGEST) == "heart", "a short beginning of a digest is a name"


@pytest.mark.parametrize("content", ["", "[]", '{"exam": 1}', "{"])
def test_approvals_that_cannot_be_read_approve_nothing(tmp_path, content):
    folder = StateFolder(tmp_path)
    folder.approvals.write_text(content)
    with pytest.raises(StateError, match=r"approvals\.json in the state folder cannot be read; delete it"):
        approved(folder, "exam", DIGEST)
