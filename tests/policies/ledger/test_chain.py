from __future__ import annotations

import hashlib
import json
import math
from dataclasses import FrozenInstanceError, replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import CostError, LedgerTamperedError
from policies.ledger.chain import GENESIS_PREVIOUS, Genesis, Row, check_chain, genesis_row, next_entry
from policies.ledger.events import Debit, EntryRef, Event, InForce, Notice, Recovery
from policies.plan.cost import Cost

GENESIS = Genesis("cardiology", 0.2, 1e-5)
AT = "2026-01-31T08:00:00+00:00"


def chain(length: int) -> list[Row]:
    rows = [genesis_row(GENESIS)]
    head = EntryRef(0, rows[0][2])
    for number in range(1, length + 1):
        debit = Debit("s" * 64, "p" * 64, number, 1, {"heads": Cost("training", 1.0, 20.0, number)})
        entry = next_entry(head, debit, AT, number / 10)
        rows.append(entry.row)
        head = EntryRef(entry.sequence, entry.hash)
    return rows


def test_a_whole_chain_is_read_back():
    genesis, entries = check_chain(chain(4))
    assert genesis == GENESIS
    assert [entry.sequence for entry in entries] == [1, 2, 3, 4]
    assert [entry.epsilon for entry in entries] == [0.1, 0.2, 0.3, 0.4]
    assert entries[2].debit == Debit("s" * 64, "p" * 64, 3, 1, {"heads": Cost("training", 1, 20, 3)})
    assert [entry.row for entry in entries] == chain(4)[1:]
    for held, field in ((genesis, "delta"), (entries[0], "epsilon")):
        with pytest.raises(FrozenInstanceError):
            setattr(held, field, 0.0)


def test_the_genesis_binds_the_data_set_the_holdout_and_delta():
    hashes = {
        genesis_row(genesis)[2]
        for genesis in (
            GENESIS,
            Genesis("other", 0.2, 1e-5),
            Genesis("cardiology", 0.3, 1e-5),
            Genesis("cardiology", 0.2, 1e-6),
            Genesis("cardiology", 0.2, 1e-5, public=True),
            Genesis("cardiology", 0.2, 1e-5, unit="patient", identified_by=("pid",)),
            Genesis("cardiology", 0.2, 1e-5, unit="record", identified_by=("pid",)),
            Genesis("cardiology", 0.2, 1e-5, unit="record", identified_by=("visit",)),
            Genesis("cardiology", 0.2, 1e-5, unit="record", identified_by=("pid", "visit")),
            Genesis("cardiology", 0.2, 1e-5, unit="record", identified_by=("visit", "pid")),
            Genesis("cardiology", 0.2, 1e-5, unit="record", identified_by=("pid",), delimiter=",", columns=()),
            Genesis("cardiology", 0.2, 1e-5, unit="record", identified_by=("pid",), delimiter=";", columns=()),
            Genesis("cardiology", 0.2, 1e-5, unit="record", identified_by=("pid",), delimiter=",", columns=("pid",)),
        )
    }
    assert len(hashes) == 13


@given(place=st.integers(0, 5), column=st.integers(0, 3), data=st.data())
def test_every_edit_of_one_character_is_found(place, column, data):
    rows = chain(5)
    row = list(rows[place])
    if column == 0:
        row[0] += data.draw(st.sampled_from([-1, 1, 100]))
    else:
        text = str(row[column])
        at = data.draw(st.integers(0, len(text) - 1))
        other = data.draw(st.characters(codec="ascii").filter(lambda c: c != text[at]))
        row[column] = text[:at] + other + text[at + 1 :]
    rows[place] = tuple(row)
    with pytest.raises(LedgerTamperedError):
        check_chain(rows)


@given(st.permutations(range(5)).filter(lambda order: order != sorted(order)))
def test_every_reordering_is_found(order):
    rows = chain(4)
    with pytest.raises(LedgerTamperedError):
        check_chain([rows[i] for i in order])


@pytest.mark.parametrize("place", range(4))
def test_every_gap_is_found(place):
    rows = chain(4)
    del rows[place]
    with pytest.raises(LedgerTamperedError, match=f"entry {place}"):
        check_chain(rows)


@pytest.mark.parametrize("place", range(4))
def test_an_entry_with_a_right_hash_of_its_own_does_not_fit_its_neighbours(place):
    """Whoever may write the file can hash; what he cannot do is leave the rest of the chain as it was."""
    sequence, previous, _, body = chain(4)[place]
    other = body.replace("cardiology", "neurology").replace("2026-01-31", "2026-01-30")
    for before, content, found in (("f" * 64, body, place), (previous, other, place + 1)):
        rows = chain(4)
        rows[place] = (sequence, before, hashlib.sha256(f"{before}\n{content}".encode()).hexdigest(), content)
        with pytest.raises(LedgerTamperedError, match=f"entry {found} is missing or does not follow"):
            check_chain(rows)


def test_an_empty_chain_is_no_ledger():
    with pytest.raises(LedgerTamperedError, match="entry 0 is missing"):
        check_chain([])


def test_the_spent_epsilon_may_not_fall_even_with_right_hashes():
    rows = chain(1)
    debit = Debit("s" * 64, "p" * 64, 2, 1, {"heads": Cost("training", 1.0, 20.0, 1)})
    rows.append(next_entry(EntryRef(1, rows[1][2]), debit, AT, 0.05).row)
    with pytest.raises(LedgerTamperedError, match="entry 2 lowers the spent epsilon"):
        check_chain(rows)


def rehashed(body: str) -> list[Row]:
    """A chain of two whose second body is free while all hashes are right."""
    first = genesis_row(GENESIS)
    return [first, (1, first[2], hashlib.sha256(f"{first[2]}\n{body}".encode()).hexdigest(), body)]


@pytest.mark.parametrize(
    "change", [{"round": -1}, {"costs": {}}, {"extra": 1}, {"study": ""}, {"epsilon": "1"}, {"kind": "x"}]
)
def test_bodies_that_mean_nothing_are_refused(change):
    body = json.loads(chain(1)[1][3])
    with pytest.raises(LedgerTamperedError):
        check_chain(rehashed(json.dumps({**body, **change}, sort_keys=True, separators=(",", ":"))))


def test_a_body_with_an_infinite_epsilon_is_refused():
    body = chain(1)[1][3].replace('"epsilon":0.1', '"epsilon":NaN')
    with pytest.raises(LedgerTamperedError):
        check_chain(rehashed(body))


@pytest.mark.parametrize("words", [('"holdout":0.2', '"holdout":0.20'), ("{", "{ ")])
def test_a_genesis_in_other_words_is_refused(words):
    body = genesis_row(GENESIS)[3].replace(*words)
    digest = hashlib.sha256(f"{GENESIS_PREVIOUS}\n{body}".encode()).hexdigest()
    with pytest.raises(LedgerTamperedError, match="entry 0 cannot be read"):
        check_chain([(0, GENESIS_PREVIOUS, digest, body)])


def test_a_cost_without_noise_cannot_hide_in_a_chain():
    body = chain(1)[1][3].replace('"noise":20.0', '"noise":0.0')
    with pytest.raises(LedgerTamperedError):
        check_chain(rehashed(body))


COST = Cost("training", 1.0, 1.0, 1)


@pytest.mark.parametrize(
    "broken",
    [
        {"study": ""},
        {"policy": "p" * 129},
        {"round": -1},
        {"round": True},
        {"attempt": -1},
        {"attempt": 1.0},
        {"costs": {}},
        {"costs": {"": COST}},
        {"costs": {"heads": 0.5}},
    ],
)
def test_a_malformed_debit_is_refused(broken):
    whole = {"study": "s", "policy": "p", "round": 0, "attempt": 1, "costs": {"counts": COST}}
    Debit(**whole)
    with pytest.raises(CostError, match="debit"):
        Debit(**{**whole, **broken})


def test_a_debit_does_not_follow_its_callers_dictionary():
    costs = {"heads": COST}
    debit = Debit("s", "p", 1, 1, costs)
    costs.clear()
    assert dict(debit.costs) == {"heads": COST}
    with pytest.raises(TypeError):
        debit.costs["heads"] = COST
    assert hash(debit) == hash(Debit("s", "p", 1, 1, {"heads": COST}))


def test_a_chain_begins_at_nothing():
    assert genesis_row(GENESIS)[:2] == (0, GENESIS_PREVIOUS)
    assert math.isclose(json.loads(genesis_row(GENESIS)[3])["delta"], 1e-5)


def test_a_genesis_of_private_data_is_written_as_before_there_was_public_data():
    assert json.loads(genesis_row(GENESIS)[3]) == {
        "kind": "genesis",
        "version": 1,
        "data_set": "cardiology",
        "holdout": 0.2,
        "delta": 1e-5,
    }


def test_a_genesis_says_what_is_protected_and_is_read_as_it_was_written():
    stated = Genesis("cardiology", 0.2, 1e-5, unit="record", identified_by=("ward", "row"))
    body = json.loads(genesis_row(stated)[3])
    assert (body["unit"], body["identified_by"]) == ("record", ["ward", "row"])
    assert set(body) == {"kind", "version", "data_set", "holdout", "delta", "unit", "identified_by"}
    assert check_chain([genesis_row(stated)]) == (stated, ())
    whole = replace(stated, delimiter=";", columns=("ward", "row"))
    body = json.loads(genesis_row(whole)[3])
    assert (body["delimiter"], body["columns"]) == (";", ["ward", "row"])
    assert check_chain([genesis_row(whole)]) == (whole, ())
    for wrong in ({"delimiter": 5}, {"columns": (5,)}, {"columns": "ward"}, {"identified_by": "ward"}):
        with pytest.raises(LedgerTamperedError, match="entry 0 cannot be read"):
            check_chain([genesis_row(replace(whole, **wrong))])
    with pytest.raises(LedgerTamperedError, match="entry 0 cannot be read"):
        check_chain([genesis_row(Genesis("cardiology", 0.2, 1e-5, unit="household", identified_by=("pid",)))])


def test_the_genesis_of_an_older_ledger_keeps_its_hash():
    # As versions before 0.5 wrote it.
    body = '{"data_set":"cardiology","delta":1e-05,"holdout":0.2,"kind":"genesis","version":1}'
    assert genesis_row(GENESIS)[3] == body
    assert genesis_row(GENESIS)[2] == hashlib.sha256(f"{GENESIS_PREVIOUS}\n{body}".encode()).hexdigest()


def unbounded(*, public: bool, epsilon: float = math.inf, noise: float = 0.0) -> list[Row]:
    first = genesis_row(Genesis("published", 0.2, 1e-5, public=public))
    debit = Debit("s" * 64, "p" * 64, 0, 1, {"counts": Cost("training", 1.0, noise, 1)})
    return [first, next_entry(EntryRef(0, first[2]), debit, AT, epsilon).row]


def test_an_unbounded_entry_stands_in_the_chain_of_public_data_alone():
    genesis, (entry,) = check_chain(unbounded(public=True))
    assert genesis.public
    assert math.isinf(entry.epsilon)
    assert '"epsilon":"unbounded"' in entry.row[3]
    for rows in (
        unbounded(public=False),
        unbounded(public=False, noise=1.0),
        unbounded(public=False, epsilon=1.0),
    ):
        with pytest.raises(LedgerTamperedError, match="not public"):
            check_chain(rows)


def test_a_release_without_noise_never_has_a_finite_epsilon():
    with pytest.raises(LedgerTamperedError, match="lowers the spent epsilon"):
        check_chain(unbounded(public=True, epsilon=1.0))


# --- entries of other kinds ------------------------------------------------------------------------------------------
def linked(*events: tuple[Event, float]) -> list[Row]:
    rows = [genesis_row(GENESIS)]
    for event, epsilon in events:
        entry = next_entry(EntryRef(rows[-1][0], rows[-1][2]), event, AT, epsilon)
        rows.append(entry.row)
    return rows


FIRST, SECOND = InForce("p" * 64, 4.0), InForce("q" * 64, 6.0)
LOST = Recovery(
    (EntryRef(9, "a" * 64),), (Cost("training", 1.0, 5.0, 1),), "A. Weber", "fedward://silo/north", "PEM", "00"
)


def charged(policy: str = "p") -> Debit:
    return Debit("s" * 64, policy * 64, 1, 1, {"heads": Cost("training", 1.0, 20.0, 1)})


def test_entries_of_every_kind_are_read_back_in_their_order():
    events = [(FIRST, 0.0), (charged(), 0.2), (Notice("withdrawal", "14"), 0.2), (LOST, 1.0), (SECOND, 1.0)]
    _, entries = check_chain(linked(*events, (Notice("refresh", "15"), 1.0)))
    assert [entry.event for entry in entries[:5]] == [event for event, _ in events]
    assert entries[1].debit == charged()
    for place in (0, 2, 3):
        with pytest.raises(TypeError, match="is no debit"):
            _ = entries[place].debit


@pytest.mark.parametrize("event", [FIRST, Notice("refresh", "15")])
@pytest.mark.parametrize("epsilon", [0.1, 0.3])
def test_what_charges_nothing_changes_nothing(event, epsilon):
    with pytest.raises(LedgerTamperedError, match=r"entry 2 (charges nothing and changes|lowers) the spent"):
        check_chain(linked((charged(), 0.2), (event, epsilon)))


def test_a_recovery_never_lowers_what_was_spent():
    with pytest.raises(LedgerTamperedError, match="entry 2 lowers"):
        check_chain(linked((charged(), 0.2), (LOST, 0.1)))


def test_a_debit_names_the_policy_that_is_in_force():
    check_chain(linked((charged("z"), 0.1), (FIRST, 0.1), (charged(), 0.2), (SECOND, 0.2), (charged("q"), 0.3)))
    for events in ([(FIRST, 0.0), (charged("q"), 0.2)], [(FIRST, 0.0), (SECOND, 0.0), (charged("p"), 0.2)]):
        with pytest.raises(LedgerTamperedError, match="a policy that was not in force"):
            check_chain(linked(*events))


def test_a_ledger_of_the_first_version_keeps_its_hashes():
    """Written by the version that knew debits only."""
    rows = chain(2)
    assert [digest for _, _, digest, _ in rows] == [
        "b74ca1e6a734cff859cdec651c6711306980a4f84a5541ba859002317428cb61",
        "ed9d4cad3795c3084509258dad7fc751722897152c46ff20bf1a9c0b09fd6619",
        "6a1bef27cf931e277fbdec7b910cef0f127f4af59cc25235f484a1a89c3b6f43",
    ]


@pytest.mark.parametrize("at", ["", "soon", "2026-01-31", "2026-01-31T08:00:00", "2026-01-31T08:00:00+01:00", None, 7])
def test_an_entry_without_a_time_in_utc_is_refused(at):
    rows = chain(1)
    entry = next_entry(EntryRef(0, rows[0][2]), Notice("refresh", "case"), at, 0.0)
    with pytest.raises(LedgerTamperedError, match="entry 1 cannot be read"):
        check_chain([rows[0], entry.row])


def test_an_entry_knows_its_day():
    _, (entry,) = check_chain(chain(1))
    assert entry.day == date(2026, 1, 31)


@pytest.mark.parametrize(
    "bent",
    [
        lambda body: body.replace('"epsilon":0.1', f'"epsilon":{"9" * 400}'),
        lambda body: body.replace('"noise":20.0', f'"noise":{"9" * 400}'),
        lambda body: '{"a":' * 100_000 + "1" + "}" * 100_000,
        lambda body: body.replace('"costs":{', '"costs":[{').replace("}}", "}}]"),
        lambda body: "[]",
        lambda body: "null",
    ],
)
def test_what_cannot_be_read_is_named(bent):
    with pytest.raises(LedgerTamperedError, match="entry 1 cannot be read"):
        check_chain(rehashed(bent(chain(1)[1][3])))


@pytest.mark.parametrize("sequence", [True, 1.0])
def test_a_place_that_is_no_whole_number_is_refused(sequence):
    first, (_, *rest) = chain(1)
    with pytest.raises(LedgerTamperedError, match="entry 1 is missing"):
        check_chain([first, (sequence, *rest)])


@pytest.mark.parametrize("genesis", [Genesis("cardiology", 0.2, "1e-5"), Genesis(5, 0.2, 1e-5), Genesis("c", 1, 1e-5)])
def test_a_genesis_with_fields_of_other_kinds_is_refused(genesis):
    with pytest.raises(LedgerTamperedError, match="entry 0 cannot be read"):
        check_chain([genesis_row(genesis)])


def test_the_genesis_of_a_policy_says_what_it_says_of_its_data_set(make_policy):
    policy = make_policy()
    genesis = Genesis.of(policy)
    mine = policy.data_set
    assert (genesis.data_set, genesis.unit, genesis.identified_by) == (mine.id, mine.unit, mine.identified_by)
    assert (genesis.holdout, genesis.delta, genesis.public) == (mine.holdout, policy.budget.delta, mine.public)
    assert (genesis.delimiter, genesis.columns) == (mine.file.delimiter, mine.file.columns)
