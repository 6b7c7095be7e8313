import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.study import Image
from silo_agent.data import image_files, image_store
from silo_agent.data.errors import Unfit
from silo_agent.data.image_store import ImageStore, reserve
from silo_agent.data.raster import Raster
from support.images import write_png

GRAY = np.random.default_rng(0).integers(0, 256, (8, 10), np.uint8)


def schema(**changes):
    return Image(**({"column": "scan", "height": 8, "width": 10} | changes))


def read(folder, *cells, **changes):
    store = ImageStore(folder, schema(**changes), reserve(schema(**changes), len(set(cells))))
    return store.images([store.place(cell) for cell in cells])


def refusal(folder, cell):
    with pytest.raises(Unfit) as caught:
        ImageStore(folder, schema(), reserve(schema(), 1)).place(cell)
    return f"{caught.value.found}; {caught.value.expected}"


def pixels(values):
    return 2 * values.astype(np.float64) / 255 - 1


def test_an_image_of_the_studys_size_keeps_every_pixel(tmp_path):
    write_png(tmp_path / "scans" / "a.png", GRAY)
    images = read(tmp_path, " scans/a.png ")
    assert images.levels.dtype == np.uint8
    np.testing.assert_allclose(images.take(slice(None))[0, 0], pixels(GRAY), atol=1e-7)


def test_a_file_named_often_and_in_several_ways_is_decoded_once(tmp_path, monkeypatch):
    write_png(tmp_path / "a.png", GRAY)
    write_png(tmp_path / "b.png", 255 - GRAY)
    (tmp_path / "link.png").symlink_to("a.png")
    decoded = []
    decode = image_files.decode
    monkeypatch.setattr(image_files, "decode", lambda path, channels: decoded.append(path) or decode(path, channels))
    images = read(tmp_path, "a.png", "b.png", "./a.png", "link.png", "b.png")
    assert [path.name for path in decoded] == ["a.png", "b.png"]
    assert images.levels.shape == (2, 1, 8, 10)
    taken = images.take(slice(None))
    assert all(np.array_equal(taken[i], taken[0]) for i in (2, 3))
    np.testing.assert_allclose(taken[4, 0], pixels(255 - GRAY), atol=1e-7)


def test_sixteen_bits_keep_their_precision_through_resizing(tmp_path):
    # One part in 65535 between neighbours: eight-bit resizing would see one colour.
    values = (30_000 + np.arange(16)[None] + np.zeros((16, 1))).astype(np.uint16)
    write_png(tmp_path / "deep.png", values)
    images = read(tmp_path, "deep.png", minimum=0, maximum=65535)
    back = (images.take(slice(None))[0, 0].astype(np.float64) + 1) / 2 * 65535
    assert (np.diff(back, axis=1) > 0.4).all()
    assert np.abs(back[:, 4:6] - [30_006.7, 30_008.3]).max() < 1

    narrow = read(tmp_path, "deep.png", height=16, width=16, minimum=30_000, maximum=30_015)
    assert narrow.levels.dtype == np.uint8
    np.testing.assert_allclose(narrow.take(slice(None))[0, 0, 0], np.linspace(-1, 1, 16), atol=1e-6)


@given(st.integers(0, 255), st.integers(1, 40), st.integers(1, 40))
def test_resizing_keeps_a_flat_image_flat(tmp_path_factory, level, height, width):
    folder = tmp_path_factory.mktemp("flat")
    write_png(folder / "a.png", np.full((height, width), level, np.uint8))
    assert (read(folder, "a.png").levels == level).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 40))
def test_resizing_makes_nothing_darker_or_brighter_than_it_was(tmp_path_factory, seed, height, width):
    folder = tmp_path_factory.mktemp("any")
    values = np.random.default_rng(seed).integers(50, 200, (height, width)).astype(np.uint8)
    write_png(folder / "a.png", values)
    levels = read(folder, "a.png").levels
    assert values.min() <= levels.min()
    assert levels.max() <= values.max()


def test_what_lies_outside_the_public_range_is_clipped_before_it_is_resized(tmp_path):
    values = np.zeros((16, 20), np.uint16)
    values[::2] = 60_000
    write_png(tmp_path / "bright.png", values)
    images = read(tmp_path, "bright.png", minimum=0, maximum=100)
    assert np.abs(images.levels[0, 0, 1:-1].astype(int) - 100).max() <= 20  # half of 0 .. 200, not saturated
    assert images.top == 200


def test_a_raster_that_is_inverted_is_turned_within_the_public_range(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(b"")
    values = np.array([[-50.0, 0.0, 25.0, 100.0, 900.0]] * 8)
    monkeypatch.setattr(image_store.image_files, "decode", lambda *_: Raster(values[None], inverted=True))
    images = read(tmp_path, "a.png", width=8, minimum=0, maximum=100, height=8)
    monkeypatch.setattr(image_store.image_files, "decode", lambda *_: Raster(100.0 - values[None]))
    assert np.array_equal(images.levels, read(tmp_path, "a.png", width=8, minimum=0, maximum=100).levels)
    assert images.levels[0, 0, 0, 0] == images.top
    assert images.levels[0, 0, 0, -1] == 0


def test_colour_and_gray_become_the_channels_of_the_study(tmp_path):
    write_png(tmp_path / "gray.png", GRAY)
    write_png(tmp_path / "colour.png", np.stack([GRAY, 255 - GRAY, GRAY // 2], axis=-1))
    images = read(tmp_path, "gray.png", "colour.png", channels=3)
    assert images.shape == (3, 8, 10)
    assert np.array_equal(images.levels[0], [GRAY] * 3)
    assert np.array_equal(images.levels[1], [GRAY, 255 - GRAY, GRAY // 2])
    assert read(tmp_path, "colour.png").shape == (1, 8, 10)


@pytest.fixture
def folder(tmp_path):
    """A data folder beside a secret, with every way out that a path may try."""
    secret = write_png(tmp_path / "secret.png", GRAY)
    inside = tmp_path / "data"
    write_png(inside / "scans" / "a.png", GRAY)
    (inside / "out.png").symlink_to(secret)
    (inside / "outer").symlink_to(tmp_path)
    (inside / "dead.png").symlink_to("nowhere.png")
    (inside / "circle.png").symlink_to("circle.png")
    os.mkfifo(inside / "pipe.png")
    return inside


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("../secret.png", "a path with .."),
        ("scans/../scans/a.png", "a path with .."),
        ("{folder}/scans/a.png", "an absolute path"),
        ("/dev/zero", "an absolute path"),
        ("out.png", "a link that leads out of the folder"),
        ("outer/secret.png", "a link that leads out of the folder"),
        ("dead.png", "no such file"),
        ("circle.png", "no such file"),
        ("scans/b.png", "no such file"),
        ("scans/a.png/b", "no such file"),
        ("x" * 300, "no such file"),
        ("scans", "something of this name that is not a file"),
        (".", "something of this name that is not a file"),
        ("pipe.png", "something of this name that is not a file"),
        ("", "such as scans/17.png"),
        (None, "such as scans/17.png"),
        ("a\0.png", "such as scans/17.png"),
        (7, "no such file"),
    ],
)
def test_only_files_below_the_folder_are_opened(folder, cell, expected):
    cell = cell.format(folder=folder) if isinstance(cell, str) else cell
    assert expected in refusal(folder, cell)
    assert read(folder, "scans/a.png").levels.any()


def test_the_folder_itself_may_be_reached_by_a_link(folder, tmp_path):
    (tmp_path / "alias").symlink_to(folder)
    assert np.array_equal(read(tmp_path / "alias", "scans/a.png").levels[0, 0], GRAY)


def test_a_file_that_is_too_long_is_not_read(folder, monkeypatch):
    monkeypatch.setattr(image_store, "MAX_BYTES", 100)
    (folder / "long.png").write_bytes(bytes(101))
    assert "at most" in refusal(folder, "long.png")


def test_no_images_at_all_are_normal(tmp_path):
    assert len(read(tmp_path)) == 0
    assert read(tmp_path).take(slice(None)).shape == (0, 1, 8, 10)
