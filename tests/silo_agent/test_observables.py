"""What anybody but the hospital itself can count is the same whatever its patients, their number and their records.

docs/design/noise.md, "Public constants": batch size, rate and the N of all scaling are public constants. Nor does
anything tell whether records fit a study, whose author chooses the bounds. The time a computation takes is not covered
(docs/privacy.md says so).
"""

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from policies.documents.sections.data import FINEST, LEAST, MOST
from policies.documents.study import Study
from policies.ledger.cosign import Checkpoint
from policies.plan.release import plan
from silo_agent.learning.learner import Learner
from support.local_federation import write_patients
from support.local_silos import SLOPES
from support.studies import tiny_document, tiny_study

VOLATILE = ("seconds", "_created", "age", "_bytes", "process_open_fds")
"""Of metrics, which the hospital alone scrapes: clocks, lengths of notes with their signatures, and open files of the
process, which here is that of the tests."""


def shown(value):
    """Without digests and keys, which are random or follow the released sums."""
    return re.sub(r"[0-9a-f]{12,}", "*", repr(value))


def observed(gather, patients, *, more="", study=None):
    """Everything countable of the first silo's part in a whole study; `more` are lines at the end of its file."""
    coordinator, silos = gather(study)
    silo = silos["north"]
    write_patients(silo.data, np.random.default_rng(patients), SLOPES, patients=patients)
    with silo.data.open("ab") as file:
        file.write(more if isinstance(more, bytes) else more.encode())
    with capture_logs() as said:
        for number in range(plan(coordinator.study).last + 1):
            coordinator.run_round(number)
        coordinator.finish("north")
    client = silo.client
    metrics = [s for family in silo.metrics.registry.collect() for s in family.samples if not matched(s.name)]
    folder = silo.folder / "state"
    return {
        "headers": [(h.place.round, h.slot, size(h.slot, h.size)) for h in client.headers],
        "uploads": [(place.round, slot, size(slot, len(data))) for (place, slot), data in client.uploads.items()],
        "answers": [(answer.place.round, answer.refusal, answer.member is None) for answer in client.answers],
        "confirms": [
            (confirm.task, confirm.place.round, confirm.tensor, confirm.dispute) for confirm in client.confirms
        ],
        "calls": client.calls,
        "statements": [(shown(place), stated_of(stated)) for place, stated in client.stated],
        "log": [shown(event) for event in said],
        "metrics": sorted(repr((sample.name, shown(sample.labels), sample.value)) for sample in metrics),
        "charges": [(e.debit.round, e.debit.attempt, e.debit.costs, e.epsilon) for e in silo.gate.ledger.entries()],
        "files": sorted(
            (shown(str(path.relative_to(folder))), path.stat().st_size) for path in folder.rglob("*.jsonl")
        ),
    }


def stated_of(signed):
    """What the silo signs of its ledger, and others sign after it: all but hashes and the time."""
    found = Checkpoint.parse(signed.checkpoint)
    anchors = [anchor.sequence for anchor in found.anchors]
    return found.head.sequence, found.epsilon, found.totals, anchors, len(found.covers), len(signed.checkpoint)


def size(slot, found):
    """Of sums. Notes end in a signature, whose DER is a byte or two longer or shorter by chance."""
    return None if slot.startswith("note-") and slot != "note-heads" else found


def matched(name):
    return any(part in name for part in VOLATILE)


def test_nothing_that_can_be_counted_depends_on_the_number_of_patients(federate):
    of_forty = observed(federate, 40)
    assert of_forty["uploads"], "something was sent"
    assert of_forty["charges"], "something was charged"
    for patients in (0, 1, 400):
        found = observed(federate, patients)
        for what, expected in of_forty.items():
            assert found[what] == expected, (what, patients)


FOUL = b"""a,c,50,4,1
b,a,121,4,1
c,a,-1,4,1
d,a,fifty,4,1
e,a,,4,1
f,a,nan,4,1
g,a,50,4,2
,a,50,4,1
h,a,50
i,a,50,4,1,1
"j,a,50,4,1
k,"a"b,50,4,1
M\xfcller,a,50,4,1
"""


@pytest.mark.slow
def test_nothing_that_can_be_counted_tells_of_records_that_do_not_fit(federate):
    clean = observed(federate, 40)
    assert clean["charges"], "something was charged"
    for patients, more in ((40, FOUL), (0, FOUL), (40, FOUL * 50)):
        found = observed(federate, patients, more=more)
        for what, expected in clean.items():
            assert found[what] == expected, (what, patients)


def test_bounds_that_differ_tell_nothing_of_the_patient_between_them(federate):
    found = []
    for maximum in (96, 97):
        features = [
            {"kind": "number", "column": "age", "minimum": 0, "maximum": maximum},
            {"kind": "number", "column": "lactate", "minimum": 0, "maximum": 10},
        ]
        study = tiny_study(data={"features": features}, personal={"epochs": 1})
        found.append(observed(federate, 40, more="actress,a,97,4,1\n", study=study))
    assert not any(refusal for _, refusal, _ in found[0]["answers"])
    for what, expected in found[0].items():
        assert found[1][what] == expected, what


# --- whatever an author chooses ---------------------------------------------------------------------------------------
SCHEMA = Study.model_json_schema()["$defs"]


def edges(part, field):
    """The least, the usual and the greatest value that a document may hold."""
    stated = SCHEMA[part]["properties"][field]
    return st.sampled_from([stated["minimum"], stated.get("default", 1.0), stated["maximum"]])


RANGES = st.sampled_from(
    [
        (0.0, 96.0, "linear"),
        (0.0, 97.0, "linear"),
        (97.0, 97.0 * (1 + 2 * FINEST), "linear"),
        (-MOST, MOST, "linear"),
        (0.0, LEAST, "linear"),
        (97.0, 97.0 * (1 + 2 * FINEST), "log"),
        (LEAST, MOST, "log"),
        (LEAST, 2 * LEAST, "log"),
    ]
)
HOSTILE = st.fixed_dictionaries(
    {
        "range": RANGES,
        "fill": st.sampled_from([None, 0, 1]),
        "bands": st.booleans(),
        "personal": edges("Personal", "learning_rate"),
        "rate": edges("EncoderPlan", "learning_rate"),
        "clip": edges("EncoderPlan", "clip"),
        "gain": edges("Model", "gain"),
        "max_update": edges("EncoderPlan", "max_update"),
        "repair": edges("HeadPlan", "repair"),
        "max_patients": edges("Privacy", "max_patients"),
    }
)
"""What a document may hold at most and at least. tests/policies/documents/test_bounds.py has what it may not."""


def hostile_study(chosen):
    minimum, maximum, scale = chosen["range"]
    fill = None if chosen["fill"] is None else (minimum, maximum)[chosen["fill"]]
    limits = {"minimum": minimum, "maximum": maximum, "scale": scale, "fill": fill}
    age = {"kind": "number", "column": "age", **limits}
    bands = [{"column": "age", "edges": [97.0], "names": ["a", "b"]}]
    data = {"features": [age, *tiny_document()["data"]["features"][1:]]}
    return tiny_study(
        data=data | ({"domain": bands} if chosen["bands"] else {}),
        personal={"epochs": 1, "learning_rate": chosen["personal"], "batch_size": 2},
        encoder={"learning_rate": chosen["rate"], "clip": chosen["clip"], "max_update": chosen["max_update"]},
        model={"gain": chosen["gain"]},
        heads={"repair": chosen["repair"]},
        privacy={"max_patients": chosen["max_patients"]},
    )


def seen(federate, study, more):
    """`observed`, or what ended the study: a dispute or a refusal is something to be seen, too."""
    try:
        return observed(federate, 40, more=more, study=study)
    except (AssertionError, KeyError, IndexError, StopIteration) as fault:
        return {"ended": shown(fault)}


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate])
@given(chosen=HOSTILE, cell=st.sampled_from(["97", "97.0000001", "1e308", "-1e308", "0", "x", ""]))
def test_no_constants_of_a_study_tell_whether_a_patient_is_there(federate, chosen, cell):
    study = hostile_study(chosen)
    without = seen(federate, study, "")
    found = seen(federate, study, f"actress,a,{cell},4,1\n")
    for what, expected in without.items():
        assert found.get(what) == expected, (what, chosen, cell)


@pytest.mark.sampled
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_range_that_no_arithmetic_stands_tells_nothing_of_who_lies_in_it(federate, scale):
    """With these a silo refused, or its agent ended, exactly if such a patient existed."""
    low, high = (-1.7e308, 1.7e308) if scale == "linear" else (97.0, float(np.nextafter(97.0, 98.0)))
    study = tiny_study(personal={"epochs": 1})
    age = study.data.features[0].model_copy(update={"minimum": low, "maximum": high, "scale": scale})
    data = study.data.model_copy(update={"features": (age, *study.data.features[1:])})
    found: list[dict[str, object]] = []
    with pytest.MonkeyPatch.context() as patch:
        # As if the document allowed it: the silo does not rest on that alone.
        patch.setattr(Learner, "__init__", with_data(Learner.__init__, data))
        found += [observed(federate, 40, more=more, study=study) for more in ("", "actress,a,97,4,1\n")]
    assert found[0]["charges"]
    assert found[0] == found[1]


def with_data(begin, data):
    def begun(self, study, *given, **words):
        begin(self, study.model_copy(update={"data": data}), *given, **words)

    return begun
