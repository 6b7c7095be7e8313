from __future__ import annotations

import dataclasses
import io
import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.canonical import canonical
from crypto.errors import FrameError, OpeningRefused, SealError
from crypto.rings.ckks_secret import CkksKey
from crypto.rings.rings import RINGS
from crypto.secagg.labels import SumLabel
from crypto.secagg.layout import sealed_values
from crypto.secagg.masks import apply
from crypto.secagg.packages import GroupKeys
from crypto.secagg.sealing import Sealer
from crypto.stream import KeyStream
from support.mask_seeds import GROUP, Seeds

MEMBERS = ("ash", "elm", "fir", "oak", "yew")
NAMES = MEMBERS[:4]
LABEL = SumLabel("study", "roster", "model", 3, 0, "heads")
KEYS = GroupKeys(CkksKey.create().to_bytes(), GROUP, b"c" * 32)
HOLDER = CkksKey.from_bytes(KEYS.ckks)
ATTEMPTS = itertools.count(1)
KINDS = pytest.mark.parametrize("kind", RINGS)
INTEGERS = pytest.mark.parametrize("kind", ["ring32", "ring64"])
SIZES = {"ckks": [0, 1, 2030, 2048, 2049], "ring32": [0, 1, 50, 40_000], "ring64": [0, 1, 50, 16_383, 16_384, 40_000]}


def sealer(me="ash", keys=KEYS):
    return Sealer(me, keys, MEMBERS)


def fresh_label():
    return dataclasses.replace(LABEL, attempt=next(ATTEMPTS))


def upload(kind, name, values, label=LABEL, seeds=None):
    return list(sealer(name).seal(kind, values, label, (seeds or Seeds(NAMES)).masks(name)))


def add(kind, uploads):
    """Uploads are lists of frames; so is what this returns."""
    ring = RINGS[kind]
    frames = []
    for column in zip(*uploads, strict=True):
        total = ring.read(column[0])
        for frame in column[1:]:
            ring.add(total, ring.read(frame))
        frames.append(ring.write(total))
    return frames


def opened(kind, frames, values, label=LABEL, *, survivors=NAMES, seeds=None, target=None):
    source = io.BytesIO(b"".join(frames))
    return sealer().open(kind, source, values, label, (seeds or Seeds(NAMES)).unmasking(survivors), target)


def example_sum(kind, size, label=LABEL, survivors=NAMES):
    rows = {name: np.arange(size) * (place + 1) - 7 for place, name in enumerate(survivors)}
    return add(kind, [upload(kind, name, row, label) for name, row in rows.items()]), sum(rows.values())


def changed(kind, frames, place, difference):
    """The sum with a difference at one place of the vector, as anybody who holds it can make."""
    ring = RINGS[kind]
    number, place = divmod(place, ring.frame_values)
    if kind == "ckks":
        values = np.zeros(ring.frame_values, np.int64)
        values[place] = difference
        addend = HOLDER.encrypt(values)
    else:
        addend = np.zeros(len(frames[number]) // ring.word.itemsize, ring.word)
        addend[place] = difference % (1 << 8 * ring.word.itemsize)
    return [*frames[:number], ring.write(np_sum(ring, frames[number], addend)), *frames[number + 1 :]]


def np_sum(ring, frame, addend):
    total = ring.read(frame)
    ring.add(total, addend)
    return total


def check_opens(kind, size, survivors, seed, largest=None):
    limit, label = largest or RINGS[kind].limit(len(MEMBERS)), fresh_label()
    rng = np.random.default_rng(seed)
    rows = [rng.integers(-limit, limit, size, endpoint=True) for _ in survivors]
    for row in rows:
        row[:1] = limit
    uploads = [upload(kind, name, row, label) for name, row in zip(survivors, rows, strict=True)]
    length = RINGS[kind].content_size(sealed_values(size, len(MEMBERS)))
    assert {sum(map(len, frames)) for frames in uploads} == {length}
    result = opened(kind, add(kind, uploads), size, label, survivors=survivors)
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, sum(rows))


@INTEGERS
@settings(deadline=None, max_examples=40)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_any_survivors_sum_opens_to_the_sum(kind, data, seed):
    survivors = data.draw(st.permutations(NAMES))[: data.draw(st.integers(2, 4))]
    check_opens(kind, data.draw(st.sampled_from(SIZES[kind])), survivors, seed)


@settings(deadline=None, max_examples=8)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_any_survivors_sum_of_ciphertexts_opens_to_the_sum(data, seed):
    survivors = data.draw(st.permutations(NAMES))[: data.draw(st.integers(2, 4))]
    check_opens("ckks", data.draw(st.sampled_from(SIZES["ckks"])), survivors, seed)


@KINDS
def test_wherever_slots_and_limbs_fall_into_frames_they_are_found(kind):
    frame = RINGS[kind].frame_values
    for size in range(frame - 22, frame + 2):
        check_opens(kind, size, NAMES[:2], size, largest=1000)


@INTEGERS
def test_under_the_masks_lie_values_slots_and_checks_of_both(kind):
    values, masks = np.array([5, -3, 0, 1 << 20]), Seeds(NAMES).masks("elm")
    (frame,) = upload(kind, "elm", values)
    words = RINGS[kind].read(frame)
    apply(RINGS[kind], words, [(not adds, stream) for adds, stream in masks.terms(LABEL, kind)])
    plain = words.view(f"<i{words.itemsize}").tolist()
    covered = [5, -3, 0, 1 << 20, 0, 1, 0, 0, 0]
    assert plain[:9] == covered
    limbs = plain[9:]
    assert len(limbs) == 16
    assert all(0 <= limb < 1 << 16 for limb in limbs)
    drawn = KeyStream(KEYS.check, canonical("linear check", kind, LABEL.canonical())).words32(12).tolist()
    for check in range(4):
        number = sum(limb << (16 * place) for place, limb in enumerate(limbs[4 * check :][:4]))
        assert number == sum(drawn[k + check] * value for k, value in enumerate(covered)) % 2**64


@KINDS
def test_a_sum_of_all_silos_of_the_study_opens(kind):
    seeds, values = Seeds(MEMBERS), np.arange(50)
    frames = add(kind, [upload(kind, name, values, seeds=seeds) for name in MEMBERS])
    np.testing.assert_array_equal(opened(kind, frames, 50, survivors=MEMBERS, seeds=seeds), 5 * values)


@KINDS
def test_narrow_integers_and_files_seal_alike(kind, tmp_path):
    values = np.random.default_rng(1).integers(-1000, 1000, 40_000)
    np.save(tmp_path / "narrow.npy", values.astype(np.int32))
    narrow = np.load(tmp_path / "narrow.npy", mmap_mode="r")
    if kind != "ckks":
        assert upload(kind, "ash", values) == upload(kind, "ash", narrow)
    label = fresh_label()
    frames = add(kind, [upload(kind, name, narrow, label) for name in NAMES])
    np.testing.assert_array_equal(opened(kind, frames, 40_000, label), 4 * values)


@KINDS
def test_a_sum_is_written_where_one_says_and_read_from_where_one_is(kind, tmp_path):
    frames, expected = example_sum(kind, 3000)
    (tmp_path / "sum").write_bytes(b"header" + b"".join(frames))
    target = np.lib.format.open_memmap(tmp_path / "opened.npy", "w+", np.int64, (3000,))
    with (tmp_path / "sum").open("rb") as file:
        file.seek(6)
        assert sealer().open(kind, file, 3000, LABEL, Seeds(NAMES).unmasking(NAMES), target) is target
    target.flush()
    np.testing.assert_array_equal(np.load(tmp_path / "opened.npy"), expected)
    for unfit in (np.zeros(2999, np.int64), np.zeros(3000), np.zeros((3000, 1), np.int64)):
        with pytest.raises(SealError, match="3000 values"):
            opened(kind, frames, 3000, target=unfit)


SUM_SIZE = 100
SUMS = {kind: example_sum(kind, SUM_SIZE) for kind in RINGS}


@KINDS
@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_sum_with_any_byte_altered_is_refused_or_opens_to_the_same(kind, data):
    """The lowest bits of a coefficient only add to an error that rounding takes away; a last limb counts mod 2^16."""
    frames, expected = SUMS[kind]
    content = bytearray(b"".join(frames))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    try:
        result = opened(kind, [content], SUM_SIZE)
    except (OpeningRefused, FrameError) as refusal:
        assert "heads of round 3" in str(refusal)  # noqa: PT017  # refused or right, either is fine
    else:
        np.testing.assert_array_equal(result, expected)


@INTEGERS
@settings(deadline=None, max_examples=100)
@given(st.data())
def test_integers_with_any_byte_of_values_or_slots_altered_are_refused(kind, data):
    frames, _ = SUMS[kind]
    content = bytearray(b"".join(frames))
    place = data.draw(st.integers(0, RINGS[kind].content_size(SUM_SIZE + len(MEMBERS)) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(OpeningRefused, match="heads of round 3"):
        opened(kind, [content], SUM_SIZE)


@KINDS
@settings(deadline=None, max_examples=40)
@given(place=st.integers(0, SUM_SIZE + len(MEMBERS) - 1), difference=st.integers(-(1 << 20), 1 << 20).filter(bool))
def test_a_sum_with_any_number_altered_is_refused(kind, place, difference):
    frames, _ = SUMS[kind]
    with pytest.raises(OpeningRefused, match="heads of round 3"):
        opened(kind, changed(kind, frames, place, difference), SUM_SIZE)


@KINDS
@pytest.mark.parametrize("place", range(16))
def test_a_sum_with_any_check_altered_is_refused(kind, place):
    frames, _ = SUMS[kind]
    with pytest.raises(OpeningRefused, match=r"heads of round 3.* check values do not fit"):
        opened(kind, changed(kind, frames, SUM_SIZE + len(MEMBERS) + place, 1), SUM_SIZE)


@KINDS
@pytest.mark.parametrize("wrong", ["omitted", "doubled", "one too many"])
def test_an_upload_omitted_or_doubled_is_refused(kind, wrong):
    uploads = {name: upload(kind, name, np.arange(SUM_SIZE)) for name in NAMES}
    content = {
        "omitted": [uploads[name] for name in NAMES[1:]],
        "doubled": [uploads[name] for name in (*NAMES, NAMES[1])],
        "one too many": [uploads[name] for name in NAMES],
    }[wrong]
    survivors = NAMES[:3] if wrong == "one too many" else NAMES
    with pytest.raises(OpeningRefused, match=r"heads of round 3, attempt 0: .*begin"):
        opened(kind, add(kind, content), SUM_SIZE, survivors=survivors)


@KINDS
@pytest.mark.parametrize(
    "change", [{"roster": "r"}, {"model": "m"}, {"round": 9}, {"attempt": 9}, {"tensor": "counts"}], ids=str
)
def test_a_silo_that_saw_something_else_makes_the_sum_unusable(kind, change):
    labels = [LABEL, LABEL, LABEL, dataclasses.replace(LABEL, **change)]
    uploads = [upload(kind, name, np.arange(50), label) for name, label in zip(NAMES, labels, strict=True)]
    with pytest.raises(OpeningRefused):
        opened(kind, add(kind, uploads), 50)


@KINDS
def test_a_sum_opens_under_its_own_label_and_seeds_alone(kind):
    frames, expected = SUMS[kind]
    np.testing.assert_array_equal(opened(kind, frames, SUM_SIZE), expected)
    with pytest.raises(OpeningRefused, match="heads of round 4"):
        opened(kind, frames, SUM_SIZE, dataclasses.replace(LABEL, round=4))
    with pytest.raises(OpeningRefused):
        opened(kind, frames, SUM_SIZE, seeds=Seeds(NAMES, "other"))


@KINDS
def test_another_check_key_refuses_what_is_else_in_order(kind):
    frames, _ = SUMS[kind]
    stranger = sealer(keys=dataclasses.replace(KEYS, check=b"x" * 32))
    with pytest.raises(OpeningRefused, match="check values do not fit"):
        stranger.open(kind, io.BytesIO(b"".join(frames)), SUM_SIZE, LABEL, Seeds(NAMES).unmasking(NAMES))


@KINDS
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ash": -1}, "holds ash 0 times (missing); begin"),
        ({"oak": 1}, "holds oak 2 times (doubled); begin"),
        ({"yew": 1}, "holds yew 1 times (foreign); begin"),
        ({"ash": -1, "elm": 2, "yew": 1}, "ash 0 times (missing), elm 3 times (doubled), yew 1 times (foreign)"),
        ({"ash": -2}, "the masks do not cancel"),
        ({"ash": 5}, "the masks do not cancel"),
    ],
    ids=["missing", "doubled", "foreign", "all", "negative", "too many"],
)
def test_the_roster_slots_name_who_is_wrong(kind, changes, message):
    frames, _ = SUMS[kind]
    for name, difference in changes.items():
        frames = changed(kind, frames, SUM_SIZE + MEMBERS.index(name), difference)
    with pytest.raises(OpeningRefused) as refusal:
        opened(kind, frames, SUM_SIZE)
    assert str(refusal.value).startswith("heads of round 3, attempt 0: ")
    assert message in str(refusal.value)


@INTEGERS
@pytest.mark.parametrize("sign", [1, -1])
def test_a_value_out_of_the_range_of_sums_is_refused(kind, sign):
    frames, expected = SUMS[kind]
    bound = RINGS[kind].max_sum
    with pytest.raises(OpeningRefused, match="check values"):
        opened(kind, changed(kind, frames, 0, sign * bound - int(expected[0])), SUM_SIZE)
    with pytest.raises(OpeningRefused, match="masks do not cancel"):
        opened(kind, changed(kind, frames, 0, sign * (bound + 1) - int(expected[0])), SUM_SIZE)


@KINDS
def test_a_sum_of_another_size_is_refused_before_it_is_read(kind):
    class Unread(io.BytesIO):
        def read(self, *_):
            raise AssertionError

    right = RINGS[kind].content_size(sealed_values(SUM_SIZE, len(MEMBERS)))
    for size in (0, right - 1, right + 1, 2 * right):
        with pytest.raises(FrameError, match=f"heads of round 3.* has {size} bytes, but must have {right}"):
            sealer().open(kind, Unread(bytes(size)), SUM_SIZE, LABEL, Seeds(NAMES).unmasking(NAMES))
    with pytest.raises(AssertionError):
        sealer().open(kind, Unread(bytes(right)), SUM_SIZE, LABEL, Seeds(NAMES).unmasking(NAMES))


@KINDS
def test_a_file_that_ends_while_it_is_read_is_refused(kind):
    class Shrinking(io.BytesIO):
        def read(self, size):
            return super().read(size - 8)

    source = Shrinking(b"".join(SUMS[kind][0]))
    with pytest.raises((FrameError, OpeningRefused), match="heads of round 3"):
        sealer().open(kind, source, SUM_SIZE, LABEL, Seeds(NAMES).unmasking(NAMES))


@KINDS
def test_survivors_of_another_study_or_roster_are_refused(kind):
    source = io.BytesIO(b"".join(SUMS[kind][0]))
    foreign = Seeds((*NAMES, "box")).unmasking((*NAMES, "box"))
    others = [dataclasses.replace(Seeds(NAMES).unmasking(NAMES), group=byte * 32) for byte in (b"\x00", b"\xff")]
    for unmasking in (foreign, *others):
        with pytest.raises(OpeningRefused, match="do not belong to this roster and study"):
            sealer().open(kind, source, SUM_SIZE, LABEL, unmasking)


@KINDS
def test_a_label_seals_once(kind):
    silo, masks = sealer(), Seeds(NAMES).masks("ash")
    silo.seal(kind, np.zeros(3, np.int64), LABEL, masks)
    for again in RINGS:
        with pytest.raises(SealError, match="used before"):
            silo.seal(again, np.ones(3, np.int64), LABEL, masks)
    silo.seal(kind, np.zeros(3, np.int64), dataclasses.replace(LABEL, attempt=1), masks)


@KINDS
@pytest.mark.parametrize("sign", [1, -1])
def test_nothing_that_could_overflow_is_sealed(kind, sign):
    limit, masks, silo = RINGS[kind].limit(len(MEMBERS)), Seeds(NAMES).masks("ash"), sealer()
    values = np.zeros(100_000, np.int64)
    values[-1] = sign * (limit + 1)
    # Before there is any frame, and without using the label up.
    with pytest.raises(SealError, match="could overflow"):
        silo.seal(kind, values, LABEL, masks)
    silo.seal(kind, np.array([sign * limit]), LABEL, masks)


@KINDS
def test_the_most_negative_number_is_refused(kind):
    with pytest.raises(SealError, match="could overflow"):
        sealer().seal(kind, np.array([-(2**63)]), LABEL, Seeds(NAMES).masks("ash"))


@KINDS
@pytest.mark.parametrize(
    "values", [np.zeros((2, 2), np.int64), np.array(5), np.zeros(2), np.zeros(2, np.int16), np.zeros(2, "u8")]
)
def test_only_vectors_of_signed_integers_are_sealed(kind, values):
    with pytest.raises(SealError, match="int64 or int32"):
        sealer().seal(kind, values, LABEL, Seeds(NAMES).masks("ash"))


@KINDS
def test_masks_are_this_silo_s_under_this_roster_and_study(kind):
    own = Seeds(NAMES).masks("ash")
    foreign = Seeds((*NAMES, "box")).masks("ash")
    for masks in (Seeds(NAMES).masks("elm"), dataclasses.replace(own, group=b"x" * 32), foreign):
        with pytest.raises(SealError, match="not this silo's"):
            sealer().seal(kind, np.zeros(1, np.int64), LABEL, masks)


def test_there_is_no_fourth_ring():
    masks, unmasking = Seeds(NAMES).masks("ash"), Seeds(NAMES).unmasking(NAMES)
    for refused in (
        lambda: sealer().seal("clear", np.zeros(1, np.int64), LABEL, masks),
        lambda: sealer().open("clear", io.BytesIO(), 1, LABEL, unmasking),
    ):
        with pytest.raises(FrameError, match="is none of the rings"):
            refused()


def test_slots_follow_sorted_names_whatever_the_order_given():
    values = np.arange(5)
    one, other = (Sealer("ash", KEYS, members) for members in (MEMBERS, MEMBERS[::-1]))
    frames = [list(silo.seal("ring32", values, LABEL, Seeds(NAMES).masks("ash"))) for silo in (one, other)]
    assert frames[0] == frames[1]


def test_a_sealer_belongs_to_a_study():
    for members in (("elm", "fir"), ("ash", "elm", "elm"), ()):
        with pytest.raises(SealError, match="check the study"):
            Sealer("ash", KEYS, members)
    with pytest.raises(SealError, match="CKKS key"):
        Sealer("ash", dataclasses.replace(KEYS, ckks=b"nothing"), MEMBERS)


def test_the_values_given_are_left_alone():
    values = np.arange(10)
    for kind in RINGS:
        upload(kind, "ash", values)
    assert values.tolist() == list(range(10))


def test_nothing_secret_prints():
    assert repr(sealer()) == "Sealer(secret)"


def peak_of_sealing_and_opening(folder, kind, values):
    """Bytes that Python and numpy held at most while one vector is sealed, and a sum of two opened."""
    folder.mkdir()
    np.save(folder / "values.npy", np.arange(values, dtype=np.int32))
    integers = np.load(folder / "values.npy", mmap_mode="r")
    target = np.lib.format.open_memmap(folder / "opened.npy", "w+", np.int64, (values,))
    seeds = Seeds(NAMES[:2])
    silos = [Sealer(name, KEYS, MEMBERS) for name in seeds.names]
    tracemalloc.start()
    try:
        uploads = [
            silo.seal(kind, integers, LABEL, seeds.masks(name)) for silo, name in zip(silos, seeds.names, strict=True)
        ]
        with (folder / "sum").open("wb") as file:
            for frames in zip(*uploads, strict=True):
                file.writelines(add(kind, [[frame] for frame in frames]))
        with (folder / "sum").open("rb") as file:
            silos[0].open(kind, file, values, LABEL, seeds.unmasking(seeds.names), target)
        assert target[-1] == 2 * (values - 1)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@INTEGERS
def test_memory_does_not_grow_with_the_vector(tmp_path, kind):
    small, large = (
        peak_of_sealing_and_opening(tmp_path / str(values), kind, values) for values in (1_000_000, 10_000_000)
    )
    assert large < 6_000_000
    assert large - small < 500_000


def test_memory_does_not_grow_with_the_ciphertexts(tmp_path):
    small, large = (peak_of_sealing_and_opening(tmp_path / str(values), "ckks", values) for values in (20_000, 200_000))
    assert large < 4_000_000
    assert large - small < 200_000
