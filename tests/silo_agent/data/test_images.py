import hashlib
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.study import Image
from silo_agent.data.images import Images, PixelScale

bounds = st.tuples(st.floats(-1e4, 1e4), st.floats(1e-3, 1e5)).map(lambda pair: (pair[0], pair[0] + pair[1]))
whole_bounds = st.tuples(st.integers(-2000, 2000), st.integers(1, 65535)).map(
    lambda pair: (float(pair[0]), float(pair[0] + pair[1]))
)


def through(minimum, maximum, values):
    """Values as they reach the model."""
    scale = PixelScale(minimum, maximum)
    levels = scale.levels(scale.fractions(np.asarray(values, np.float64)))
    assert levels.dtype == scale.kind
    return Images(levels.reshape(-1, 1, 1, 1), scale.top).take(slice(None)).ravel()


@given(bounds, st.lists(st.floats(-2e5, 2e5), min_size=1, max_size=20))
def test_pixels_become_their_place_in_the_public_range_to_within_half_a_step(bounds, values):
    minimum, maximum = bounds
    got = through(minimum, maximum, values)
    wanted = 2 * (np.clip(values, minimum, maximum) - minimum) / (maximum - minimum) - 1
    assert np.abs(got).max() <= 1
    assert np.abs(got - wanted).max() <= 1 / PixelScale(minimum, maximum).top + 1e-6


@given(whole_bounds, st.data())
def test_whole_pixels_of_a_whole_range_keep_their_value(bounds, data):
    minimum, maximum = bounds
    values = np.array(data.draw(st.lists(st.integers(int(minimum), int(maximum)), min_size=1, max_size=20)))
    got = through(minimum, maximum, values)
    back = (got.astype(np.float64) + 1) / 2 * (maximum - minimum) + minimum
    assert np.array_equal(np.rint(back), values)
    wanted = (2 * (values - minimum) - (maximum - minimum)) / (maximum - minimum)
    np.testing.assert_allclose(got, wanted, atol=1e-7)


@given(bounds, st.lists(st.floats(-2e5, 2e5), min_size=2, max_size=20))
def test_order_is_kept_and_the_ends_are_exact(bounds, values):
    got = through(*bounds, sorted(values))
    assert (np.diff(got) >= 0).all()
    assert through(*bounds, [*bounds, -1e9, 1e9]).tolist() == [-1.0, 1.0, -1.0, 1.0]


@pytest.mark.parametrize(
    ("minimum", "maximum", "top", "kind"),
    [
        (0, 255, 255, np.uint8),
        (0, 1, 255, np.uint8),
        (-100, 0, 200, np.uint8),
        (0, 256, 65280, np.uint16),
        (-1024, 3071, 65520, np.uint16),
        (0, 65535, 65535, np.uint16),
        (0, 65536, 65535, np.uint16),
        (0, 0.5, 65535, np.uint16),
        (0.5, 1.5, 65535, np.uint16),
    ],
)
def test_one_byte_holds_a_whole_range_of_up_to_255_and_two_hold_the_rest(minimum, maximum, top, kind):
    scale = PixelScale.of(Image(column="i", height=8, width=8, minimum=minimum, maximum=maximum))
    assert (scale.top, scale.kind) == (top, kind)


def make(count=4):
    levels = np.arange(count * 12, dtype=np.uint8).reshape(count, 3, 2, 2)
    return Images(levels, 255)


def test_rows_are_taken_in_any_order_by_index_and_by_slice():
    images = make()
    whole = images.take(slice(None))
    assert (whole.shape, whole.dtype, images.shape, len(images)) == ((4, 3, 2, 2), np.float32, (3, 2, 2), 4)
    assert np.array_equal(images.take(np.array([2, 0, 2])), whole[[2, 0, 2]])
    assert np.array_equal(images.take(slice(1, 3)), whole[1:3])
    assert images.take(np.zeros(0, np.int64)).shape == (0, 3, 2, 2)


def test_a_subset_keeps_the_order_and_shares_the_pixels():
    images = make()
    chosen = images.subset(np.array([False, True, False, True]))
    assert np.array_equal(chosen.take(slice(None)), images.take(np.array([1, 3])))
    again = chosen.subset(np.array([False, True]))
    assert np.array_equal(again.take(slice(None)), images.take(np.array([3])))
    assert len(images.subset(np.zeros(4, bool))) == 0
    assert np.shares_memory(again.levels, images.levels)


def test_records_may_share_an_image():
    images = Images(make(2).levels, 255, np.array([1, 0, 1]))
    assert len(images) == 3
    assert np.array_equal(images.take(np.array([0])), images.take(np.array([2])))
    assert not np.array_equal(images.take(np.array([0])), images.take(np.array([1])))


def test_what_was_taken_may_be_changed_and_what_is_kept_may_not():
    images = make()
    images.take(slice(None))[...] = 0
    assert images.take(slice(None)).any()
    with pytest.raises(ValueError, match="read-only"):
        images.levels[0] = 0
    assert repr(images) == "Images(<private>)"


@pytest.mark.parametrize(
    "fields",
    [
        {"levels": np.zeros((2, 1, 2), np.uint8)},
        {"levels": np.zeros((2, 1, 2, 2), np.float32)},
        {"levels": np.full((2, 1, 2, 2), 9, np.uint8), "top": 8},
        {"levels": np.zeros((2, 1, 2, 2), np.uint8), "top": 0},
        {"levels": np.zeros((2, 1, 2, 2), np.uint8), "order": np.array([2])},
        {"levels": np.zeros((2, 1, 2, 2), np.uint8), "order": np.array([-1])},
        {"levels": np.zeros((2, 1, 2, 2), np.uint8), "order": np.array([0.0])},
        {"levels": np.zeros((0, 1, 2, 2), np.uint8), "order": np.array([0])},
    ],
)
def test_images_that_contradict_themselves_are_refused(fields):
    with pytest.raises(ValueError, match="must"):
        Images(**fields)


def test_values_near_the_largest_number_are_clipped_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert through(0.0, 0.001, [-1.7e308, 0.0, 1.7e308]).tolist() == [-1.0, -1.0, 1.0]


def test_images_in_memory_and_in_files_come_side_by_side(tmp_path):
    levels = np.arange(32, dtype=np.uint16).reshape(2, 1, 4, 4)
    files = [tmp_path / name for name in ("a.png", "b.png")]
    files[0].write_bytes(b"an image")
    decoded = np.full((1, 4, 4), 40, np.uint16)
    order = np.array([2, 0, 3, 1])

    def decode(path):
        return decoded if path == files[0] else 1 / 0

    images = Images(levels, 40, order, tuple(files), decode)
    found = images.take(slice(None))
    wanted = np.stack([decoded, levels[0], decoded, levels[1]]) / np.float32(20) - 1
    np.testing.assert_allclose(found[[0, 1, 3]], wanted[[0, 1, 3]], atol=1e-6)
    assert np.isnan(found[2]).all()
    first, second, third, fourth = images.contents()
    assert (second, fourth) == (levels[0].astype("<u2").tobytes(), levels[1].astype("<u2").tobytes())
    assert first == hashlib.sha256(b"an image").digest()
    assert third not in (first, second, fourth)
