"""Of two silos of one institution the second to come leaves the study, and everybody hears why."""

from dataclasses import replace

from coordinator.core.institutions import one_of_each
from crypto.pki.authority import root
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject
from protos.messages import Answer, Place
from support.online import Online
from support.rounds import member

PLACE = Place("5" * 64, 0, 1)


def test_the_second_silo_of_an_institution_is_refused_by_name(tmp_path):
    online = Online(tmp_path)
    members = {}
    for name, run_by in (
        ("north", "charite"),
        ("south", "vivantes"),
        ("west", "charite"),
        ("east", None),
        ("far", None),
    ):
        party = Subject(Identity(Role.SILO, name), f"{name}-ward", run_by)
        token = root.admit(online.root, party, days=30, redeem_days=5)
        pem = online.authority.redeem(create_request(tmp_path / name, party).read_bytes(), token)
        members[name] = replace(member(name), certificate_pem=pem)
    seated = [members[name] for name in ("east", "north", "south")]
    for name in ("north", "south", "far"):
        answer = Answer(PLACE, "here", member=members[name])
        assert one_of_each(answer, seated) is answer, "again, of another institution, or of none"
    refused = one_of_each(Answer(PLACE, "here", member=members["west"]), seated)
    assert (refused.member, refused.refusal, refused.session) == (None, "institution", "here")
    assert refused.explanation.startswith("north is of the institution charite too")
    no = Answer(PLACE, "here", refusal="budget_spent")
    assert one_of_each(no, seated) is no
    assert one_of_each(Answer(PLACE, "here", member=member("x")), seated).member is not None
