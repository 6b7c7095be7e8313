import os
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.study import Image
from silo_agent.data import image_files, image_store
from silo_agent.data.errors import Unfit
from silo_agent.data.image_store import ImageStore, reserve
from silo_agent.data.raster import Raster
from silo_agent.data.reader import read_records
from support.images import write_png
from support.tables import SCANS, scans_schema

GRAY = np.random.default_rng(0).integers(0, 256, (8, 10), np.uint8)


def schema(**changes):
    return Image(**({"column": "scan", "height": 8, "width": 10} | changes))


def read(folder, *cells, **changes):
    store = ImageStore(folder, schema(**changes), reserve(schema(**changes), len(set(cells))))
    return store.images(np.array([store.place(cell) for cell in cells], np.int64))


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
    found, _, wanted = refusal(folder, cell).partition("; ")
    assert expected in (wanted if expected.startswith("such as") else found)
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


# --- room -------------------------------------------------------------------------------------------------------------
def sample(folder, count=5):
    for level in range(count):
        write_png(folder / f"{level}.png", np.full((8, 10), 40 * level, np.uint8))
    return [f"{level}.png" for level in (3, 1, 4, 1, 0, 2)]


def store_of(folder, cells, room):
    store = ImageStore(folder, schema(), reserve(schema(), room))
    return store.images(np.array([store.place(cell) for cell in cells], np.int64))


@pytest.mark.parametrize("room", [1, 2, 5])
def test_an_image_without_room_is_decoded_when_it_is_needed_and_is_the_same(tmp_path, room):
    cells = sample(tmp_path)
    whole, found = read(tmp_path, *cells), store_of(tmp_path, cells, room)
    assert len(found.levels) == room
    for rows in (slice(None), np.array([4, 4, 0]), np.array([], np.int64), slice(2, 4)):
        np.testing.assert_array_equal(found.take(rows), whole.take(rows))
    kept = np.array([True, False, True, False, True, False])
    np.testing.assert_array_equal(found.subset(kept).take(slice(None)), whole.take(np.array([0, 2, 4])))


def test_an_image_that_is_gone_later_is_nan_and_costs_no_other_image_its_place(tmp_path):
    cells = sample(tmp_path)
    whole, found = read(tmp_path, *cells), store_of(tmp_path, cells, 1)
    (tmp_path / "4.png").unlink()
    taken = found.take(slice(None))
    assert np.isnan(taken[2]).all()
    np.testing.assert_array_equal(np.delete(taken, 2, axis=0), np.delete(whole.take(slice(None)), 2, axis=0))


def test_how_much_room_is_taken_follows_from_public_constants(monkeypatch):
    monkeypatch.setattr(image_store, "ROOM_BYTES", 1000)
    assert len(reserve(schema(), 3)) == 3
    assert len(reserve(schema(), 10_000_000)) == len(reserve(schema())) == 12
    assert reserve(schema(channels=3)).shape == (4, 3, 8, 10)
    assert reserve(schema(minimum=0.5), 1000).nbytes <= 1000


def test_no_number_of_distinct_cells_asks_for_more_memory(tmp_path, monkeypatch):
    """A wide image and any column of a file named as the image column: 5,000 different cells ended the agent before."""
    asked = []
    zeros = np.zeros
    monkeypatch.setattr(image_store.np, "zeros", lambda shape, *kind: asked.append(shape) or zeros(shape, *kind))
    for count in (1, 3, 300):
        rows = [f"p{i},50,10,f,yes,A,1,{i}.png" for i in range(count)]
        path = tmp_path / f"{count}.csv"
        path.write_text("\n".join([SCANS, *rows]) + "\n")
        asked.clear()
        assert len(read_records(path, scans_schema()).records) == 0
        assert [shape for shape in asked if np.size(shape) == 4] == [(image_store.ROOM_BYTES // 64, 1, 8, 8)]


@pytest.mark.parametrize("room", [2, 1000])
def test_images_go_to_another_process_without_the_room_that_they_leave(tmp_path, room):
    cells = sample(tmp_path)
    found = store_of(tmp_path, cells, room)
    sent = pickle.dumps(found)
    assert len(sent) < 4000
    np.testing.assert_array_equal(pickle.loads(sent).take(slice(None)), found.take(slice(None)))  # noqa: S301


def test_images_are_decoded_by_workers_before_they_are_needed_and_are_the_same(tmp_path, monkeypatch):
    threads, decode = set(), image_store._decoded
    names = [f"{place}.png" for place in range(30)]
    for place, name in enumerate(names):
        write_png(tmp_path / name, np.full((8, 10), place, np.uint8))
    lines = [f"p{place},50,10,f,yes,A,1,{name}" for place, name in enumerate([*names, "none.png", names[3]])]
    (tmp_path / "ward.csv").write_text("\n".join([SCANS, *lines]) + "\n")

    def seen(path, image):
        threads.add(threading.current_thread().name)
        return decode(path, image)

    monkeypatch.setattr(image_store, "_decoded", seen)
    images = read_records(tmp_path / "ward.csv", scans_schema(), room=reserve(scans_schema().image, 4)).records.images
    assert len(images) == 31
    assert any(name.startswith("decoding") for name in threads)
    levels = [round(float(image.mean() + 1) * 255 / 2) for image in images.take(slice(None))]
    assert levels == [*range(30), 3]
    threads.clear()
    images.expect(np.arange(31)[::-1])
    again = [images.take(np.array([place])) for place in range(30, -1, -1)]
    assert [round(float(image.mean() + 1) * 255 / 2) for image in again] == levels[::-1]
    assert MAIN not in threads


MAIN = threading.main_thread().name


def test_a_dicom_file_is_told_by_its_suffix_in_any_case(tmp_path, monkeypatch):
    write_png(tmp_path / "a.png", GRAY).rename(tmp_path / "a.DCM")
    monkeypatch.setattr(image_store.dicom_files, "decode", image_files.decode)
    monkeypatch.setattr(image_store.image_files, "decode", None)
    assert len(read(tmp_path, "a.DCM")) == 1
