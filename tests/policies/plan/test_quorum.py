from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.secagg.circle import Circle, reach_of
from crypto.secagg.survivors import threshold
from policies.documents.sections.kinds import MOST_SILOS
from policies.plan import grids, quorum
from policies.refusals import Reason, Refused
from protos.bounds import MAX_SILOS


@given(silos=st.integers(2, 80), colluders=st.integers(0, 79))
def test_it_is_the_threshold_of_the_protocol_and_the_least_that_will_do(silos, colluders):
    if colluders < silos:
        least = quorum.least(silos, colluders)
        assert least == threshold(silos, colluders, 0) <= silos
        assert colluders < least
        assert 2 * least > silos + colluders
        assert least - 1 <= colluders or 2 * (least - 1) <= silos + colluders


@pytest.mark.parametrize(("silos", "min_silos", "spare"), [(3, 3, 0), (4, 3, 1), (5, 4, 1), (8, 5, 3), (8, 8, 0)])
def test_a_study_says_how_many_may_be_missing(make_study, silos, min_silos, spare):
    study = make_study({"silos": [f"site-{number}" for number in range(silos)], "min_silos": min_silos})
    quorum.require(study)
    assert (quorum.needed(study), quorum.spare(study)) == (min_silos, spare)


@given(st.integers(2, 256), st.integers(0, 80), st.data())
def test_nobody_deals_with_more_silos_than_a_study_says_in_whatever_roster(silos, colluders, data):
    if quorum.least(silos, colluders) > silos:
        return
    needed = data.draw(st.integers(quorum.least(silos, colluders), silos), "T")
    study = SimpleNamespace(silos=range(silos), min_silos=needed, privacy=SimpleNamespace(colluders=colluders))
    reach = reach_of(silos, colluders, needed)
    rosters = [Circle(tuple(f"{number:03}" for number in range(n)), reach) for n in range(max(2, needed), silos + 1)]
    most = max(len(roster.holders("000")) for roster in rosters)
    assert most <= quorum.holders(study) <= max(most, min(silos, 64))


@pytest.mark.parametrize(("silos", "min_silos", "least"), [(4, 2, 3), (8, 4, 5), (10, 5, 6)])
def test_a_study_with_too_few_is_read_and_refused_by_name(make_study, silos, min_silos, least):
    names = [f"site-{number}" for number in range(silos)]
    study = make_study({"silos": names, "min_silos": min_silos, "privacy.mode": "local"})
    with pytest.raises(Refused, match=f"Set study.min_silos to {least} or more") as refused:
        quorum.require(study)
    assert refused.value.reason is Reason.TOO_FEW_SILOS
    assert quorum.needed(study) == least


def test_a_study_that_is_larger_than_a_federation_is_read_and_refused_by_name(make_study):
    assert quorum.MOST == MAX_SILOS
    names = [f"site-{number}" for number in range(MOST_SILOS)]
    for silos in (MOST_SILOS, quorum.MOST + 1):
        study = make_study({"silos": names[:silos], "min_silos": silos})
        grids.require(study)  # a simulation asks for it
        with pytest.raises(
            Refused, match=f"names {silos}, and a federation has 256 at most; .* Name 256 or fewer"
        ) as no:
            quorum.require(study)
        assert no.value.reason is Reason.TOO_MANY_SILOS
    quorum.require(make_study({"silos": names[: quorum.MOST], "min_silos": quorum.MOST}))
