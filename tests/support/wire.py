"""Hypothesis strategies for every message of the wire."""

from __future__ import annotations

from hypothesis import strategies as st

from protos.bounds import sentence
from protos.checkpoints import CosignedCheckpoint, SignedCheckpoint
from protos.messages import (
    FALSE_MODEL,
    MAX_CONTENT,
    RINGS,
    AgreedFigure,
    Answer,
    Complaint,
    Confirm,
    Figure,
    Member,
    Part,
    Place,
    Publication,
    Signature,
    SignedPublication,
    Spoilt,
    StudyResults,
    Tensor,
    Upload,
    UploadHeader,
    Void,
    Work,
)
from protos.status import MemberStatus, PhaseTime, StudyStatus, UploadSize
from protos.steps import SUM, Note, Task
from support.steps import ADDED, CONFIRMED, FETCHED, SUMMED

digests = st.text("0123456789abcdef", min_size=64, max_size=64)
names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
texts = st.text(max_size=20).map(sentence)  # all that the wire carries, and nothing else
numbers = st.integers(0, 2**32 - 1)
sizes = st.integers(1, MAX_CONTENT)
maybe_tensor = st.none() | st.sampled_from(Tensor)
some_bytes = st.binary(min_size=1, max_size=20)
finite = st.floats(0, 1e12)

places = st.builds(Place, digests, st.integers(0, (1 << 16) - 1), st.integers(1, (1 << 16) - 1))
members = st.builds(
    Member,
    names,
    some_bytes,
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=32, max_size=32).map(lambda seed: seed * 37),
    some_bytes,
)
parts = st.builds(Part, st.just(SUM), st.just(""), sizes, digests) | st.builds(
    Part, st.sampled_from([str(note) for note in Note]), names, sizes, digests
)
signatures = st.builds(Signature, names, some_bytes)


@st.composite
def headers(draw: st.DrawFn) -> UploadHeader:
    kind = draw(st.sampled_from([*(str(note) for note in Note), *RINGS]))
    named = kind in (*RINGS, Note.REVEAL)
    tensor = draw(st.sampled_from(Tensor)) if named else None
    values = draw(st.integers(1, (1 << 40) - 1)) if kind in RINGS else 0
    return UploadHeader(draw(places), kind, tensor, draw(names), values, draw(sizes), draw(digests))


@st.composite
def _voids(draw: st.DrawFn) -> Void:
    promises = tuple(Signature(silo, draw(some_bytes)) for silo in sorted(draw(st.sets(names, min_size=1, max_size=3))))
    return Void(draw(st.integers(1, 9)), promises, tuple(draw(some_bytes) for _ in promises))


voids = _voids()


complaints = (
    st.tuples(names, names)
    .filter(lambda two: two[0] != two[1])
    .flatmap(lambda two: st.builds(Complaint, *map(st.just, two), st.binary(min_size=64, max_size=64), some_bytes))
)


@st.composite
def works(draw: st.DrawFn) -> Work:
    task = draw(st.sampled_from(Task))
    named = task in (*SUMMED, Task.CHECK)
    participants = sorted(draw(st.sets(names, min_size=1, max_size=4))) if named else []
    survivors = participants[: draw(st.integers(1, len(participants)))] if task in ADDED else []
    signers = survivors[: draw(st.integers(1, len(survivors)))] if task is Task.REVEAL else []
    fetched = draw(st.lists(parts, min_size=1, max_size=4, unique_by=lambda part: (part.kind, part.silo)))
    return Work(
        task,
        place=None if task is Task.WAIT else draw(places),
        tensor=draw(st.sampled_from(Tensor) if task in (*SUMMED, Task.VOID) else maybe_tensor),
        roster=tuple(draw(st.lists(members, max_size=3))),
        actor=draw(names | st.just("")),
        parts=tuple(fetched) if task in FETCHED else (),
        participants=tuple(participants),
        survivors=tuple(survivors),
        signatures=tuple(Signature(silo, draw(some_bytes)) for silo in signers),
        why=draw(texts),
        outcome=draw(st.sampled_from(("finished", "ended", "aborted", "left"))) if task is Task.FINISH else "",
        void=draw(st.none() | voids) if task is Task.CONTRIBUTE else None,
        uploads=tuple(draw(_uploads(silo)) for silo in survivors) if task is Task.RECOUNT else (),
        spoilt=draw(st.none() | spoilts()) if task is Task.DECIDE else None,
        complaint=draw(complaints) if task is Task.EXAMINE else None,
    )


def _uploads(silo: str) -> st.SearchStrategy[Upload]:
    return st.builds(Upload, st.builds(Part, st.sampled_from(RINGS), st.just(silo), sizes, digests), some_bytes)


@st.composite
def spoilts(draw: st.DrawFn) -> Spoilt:
    listed = sorted(draw(st.sets(names, min_size=1, max_size=4)))
    statements = tuple(Signature(silo, draw(some_bytes)) for silo in listed[: draw(st.integers(1, len(listed)))])
    return Spoilt(
        draw(st.integers(1, 9)),
        draw(st.sampled_from(Tensor)),
        tuple(listed),
        draw(digests),
        draw(st.just("") | names),
        statements,
        tuple(draw(some_bytes) for _ in statements),
    )


answers = st.builds(Answer, places, texts, st.just(""), texts, members, texts) | st.builds(
    Answer, places, texts, texts.filter(bool), texts, st.none(), texts
)
confirms = (
    st.builds(
        Confirm,
        places,
        st.sampled_from(
            [
                task
                for task in (*CONFIRMED, Task.FINISH)
                if task not in (Task.SIGN, Task.VOID, Task.RECOUNT, Task.EXAMINE)
            ]
        ),
        maybe_tensor,
        texts,
        texts,
        texts,
    )
    | st.builds(
        Confirm,
        places,
        st.sampled_from([task for task in Task if task not in (Task.WAIT, Task.DECIDE)]),
        maybe_tensor,
        texts,
        texts.filter(lambda text: text not in ("", FALSE_MODEL)),
        texts,
    )
    | st.builds(
        Confirm,
        places,
        st.sampled_from([Task.CATCH_UP, Task.ADOPT]),
        maybe_tensor,
        texts,
        content=digests,
        vouch=some_bytes,
    )
    | st.builds(Confirm, places, st.just(Task.JUDGE), dispute=st.just(FALSE_MODEL), signature=some_bytes)
    | st.builds(Confirm, places, st.just(Task.SIGN), st.sampled_from(Tensor), texts, signature=some_bytes)
    | st.builds(
        Confirm,
        places,
        st.just(Task.OPEN),
        st.just(Tensor.METRICS),
        texts,
        explanation=texts,
        publication=some_bytes,
        signature=some_bytes,
    )
)
confirms |= st.builds(
    Confirm,
    places,
    st.just(Task.RECOUNT),
    st.sampled_from(Tensor),
    signature=some_bytes,
    culprit=st.just("") | names,
)
confirms |= st.builds(
    Confirm,
    places,
    st.just(Task.CHECK),
    dispute=texts.filter(bool),
    culprit=names,
)
confirms |= st.builds(
    Confirm,
    places,
    st.just(Task.CHECK),
    dispute=texts.filter(bool),
    culprit=names,
    evidence=st.binary(min_size=64, max_size=64),
    signature=some_bytes,
)
confirms |= st.builds(Confirm, places, st.just(Task.EXAMINE), culprit=names)
checkpoints = st.builds(SignedCheckpoint, some_bytes, some_bytes, some_bytes)
cosignatures = st.builds(CosignedCheckpoint, checkpoints, some_bytes, some_bytes)
statuses = st.builds(
    StudyStatus,
    study=digests,
    name=names,
    state=texts,
    why=texts,
    round=numbers,
    rounds=numbers,
    attempt=numbers,
    phase=texts,
    tensor=maybe_tensor,
    waiting_for=st.lists(names, max_size=3).map(tuple),
    members=st.lists(
        st.builds(MemberStatus, names, texts, texts, finite, finite, finite, numbers, st.booleans()), max_size=3
    ).map(tuple),
    times=st.lists(st.builds(PhaseTime, numbers, numbers, texts, maybe_tensor, finite), max_size=3).map(tuple),
    uploads=st.lists(st.builds(UploadSize, numbers, numbers, maybe_tensor, texts, names, sizes), max_size=3).map(tuple),
)
values = st.none() | st.floats(-1e12, 1e12)


@st.composite
def figures(draw: st.DrawFn) -> Figure:
    low, high = sorted(draw(st.tuples(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12))))
    return Figure(draw(texts), draw(texts), draw(values), low, high)


publications = st.builds(
    Publication,
    digests,
    st.lists(figures(), max_size=4, unique_by=lambda figure: (figure.domain, figure.metric)).map(tuple),
)
results = st.builds(
    StudyResults,
    study=digests,
    name=names,
    needed=numbers,
    agreed=st.lists(st.builds(AgreedFigure, figures(), numbers), max_size=3).map(tuple),
    publications=st.lists(st.builds(SignedPublication, names, some_bytes, some_bytes, some_bytes), max_size=3).map(
        tuple
    ),
)
