import struct
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from silo_agent.data.errors import Unfit
from silo_agent.data.image_files import decode
from silo_agent.data.raster import MAX_PIXELS

RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (9, 7), np.uint8)
DEEP = RNG.integers(0, 65536, (9, 7), np.uint16)
COLOUR = RNG.integers(0, 256, (9, 7, 3), np.uint8)


@pytest.fixture
def save(tmp_path):
    def _save(image, name="image.png", **options):
        image = image if isinstance(image, Image.Image) else Image.fromarray(image)
        image.save(tmp_path / name, **options)
        return tmp_path / name

    return _save


def png(width, height, depth, colour, rows, *, extra=b"", size=None):
    """A PNG written by hand, for what Pillow cannot write."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", *(size or (width, height)), depth, colour, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra
    return content + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def refusal(path, channels=1):
    with pytest.raises(Unfit) as caught:
        decode(path, channels)
    return caught.value


@pytest.mark.parametrize("values", [GRAY, DEEP], ids=["8 bit", "16 bit"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_gray_png_keeps_every_value(save, values, channels):
    raster = decode(save(values), channels)
    assert np.array_equal(raster.values, np.stack([values] * channels))
    assert not raster.inverted


def test_a_colour_png_keeps_every_value_or_becomes_its_luminance(save):
    path = save(COLOUR)
    assert np.array_equal(decode(path, 3).values, np.moveaxis(COLOUR, -1, 0))
    luminance = COLOUR @ np.array([0.299, 0.587, 0.114])
    assert np.abs(decode(path, 1).values[0] - luminance).max() <= 0.51


def test_a_jpeg_is_read_by_its_content_whatever_its_name(save):
    smooth = np.tile(np.linspace(0, 255, 32).astype(np.uint8), (24, 1))
    for name in ("image.jpg", "image.png"):
        values = decode(save(smooth, name, format="JPEG", quality=95), 1).values
        assert (values.shape, values.dtype) == ((1, 24, 32), np.uint8)
        assert np.abs(values[0].astype(int) - smooth).max() < 8
    assert decode(save(COLOUR, "colour.jpg"), 3).values.shape == (3, 9, 7)


@pytest.mark.parametrize("mode", ["1", "P", "LA", "RGBA"])
def test_other_png_modes_mean_what_png_says(save, mode):
    flat = np.where(GRAY > 127, 255, 0).astype(np.uint8)
    image = Image.fromarray(np.repeat(flat[..., None], 3, axis=2)).convert(mode)
    assert np.array_equal(decode(save(image), 1).values[0], flat)


def test_orientation_is_applied(save):
    exif = Image.Exif()
    exif[0x0112] = 6
    assert np.array_equal(decode(save(GRAY, exif=exif), 1).values[0], np.rot90(GRAY, -1))


def test_precision_is_never_dropped_silently(tmp_path):
    path = tmp_path / "deep.png"
    for colour, samples in ((2, 3), (4, 2), (6, 4)):
        path.write_bytes(png(2, 2, 16, colour, (b"\0" + b"\x12\x34" * 2 * samples) * 2))
        Image.open(path).load()  # Pillow reads it, and would cut it to 8 bits
        assert "more than 8 bits" in refusal(path, 3).found


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_transparent_pixels_are_refused(save, mode):
    image = Image.fromarray(GRAY).convert(mode)
    image.putalpha(Image.fromarray(np.where(GRAY > 127, 255, 254).astype(np.uint8)))
    assert "transparent" in refusal(save(image)).found
    assert "transparent" in refusal(save(Image.fromarray(GRAY), transparency=3)).found


def test_animations_and_other_formats_and_modes_are_refused(save):
    second = Image.fromarray(255 - GRAY)
    moving = save(GRAY, save_all=True, append_images=[second])
    assert "several frames" in refusal(moving).found
    several = save(COLOUR, "two.jpg", format="MPO", save_all=True, append_images=[Image.fromarray(255 - COLOUR)])
    assert "MPO" in refusal(several).found
    assert "CMYK" in refusal(save(Image.fromarray(COLOUR).convert("CMYK"), "print.jpg")).found
    for format_ in ("BMP", "GIF", "TIFF", "WEBP", "PPM"):
        assert "cannot be read or decoded" in refusal(save(GRAY, format=format_)).found


def test_a_header_that_claims_too_many_pixels_is_refused_before_they_are_unpacked(tmp_path):
    path = tmp_path / "bomb.png"
    for size in ((MAX_PIXELS + 1, 1), (9_000, 9_000), (12_000, 12_000), (2**31 - 1, 2**31 - 1)):
        path.write_bytes(png(1, 1, 8, 0, b"\0\0", size=size))
        unfit = refusal(path)
        assert str(size[0]) in unfit.found or "DecompressionBomb" in unfit.found


def test_a_text_chunk_that_unpacks_to_much_is_refused(tmp_path):
    data = b"note\0\0" + zlib.compress(bytes(1 << 27))
    chunk = struct.pack(">I", len(data)) + b"zTXt" + data + struct.pack(">I", zlib.crc32(b"zTXt" + data))
    path = tmp_path / "text.png"
    path.write_bytes(png(1, 1, 8, 0, b"\0\0", extra=chunk))
    refusal(path)


def test_an_absent_and_an_empty_file_are_refused(tmp_path):
    assert "FileNotFoundError" in refusal(tmp_path / "no.png").found
    (tmp_path / "empty.png").write_bytes(b"")
    assert "cannot be read or decoded" in refusal(tmp_path / "empty.png").found


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    contents = {}
    for name, values in (("gray", GRAY), ("deep", DEEP), ("colour", COLOUR)):
        Image.fromarray(values).save(folder / name, "PNG")
        contents[name] = (folder / name).read_bytes()
    Image.fromarray(COLOUR).save(folder / "jpeg", "JPEG")
    return folder / "foul", contents, (folder / "jpeg").read_bytes()


def test_a_png_cut_anywhere_is_refused(corpus):
    path, contents, _ = corpus
    for content in contents.values():
        ends = np.linspace(0, len(content) - 13, 67).astype(int)  # up to the start of the chunk that says "end"
        for end in ends:
            path.write_bytes(content[:end])
            refusal(path)


@given(st.data())
def test_a_png_with_a_bit_turned_is_refused_or_the_same_image(corpus, data):
    path, contents, _ = corpus
    name = data.draw(st.sampled_from(sorted(contents)))
    content = bytearray(contents[name])
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    wanted = {"gray": GRAY, "deep": DEEP, "colour": COLOUR}[name]
    try:
        values = decode(path, 3 if name == "colour" else 1).values
    except Unfit:
        return
    assert np.array_equal(values, np.moveaxis(wanted, -1, 0) if name == "colour" else wanted[None])


@given(st.data())
def test_a_jpeg_with_bytes_changed_gives_an_image_or_a_refusal_and_nothing_else(corpus, data):
    path, _, content = corpus
    content = bytearray(content)
    for place, value in data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)))):
        content[place] = value
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        raster = decode(path, 1)
    except Unfit:
        return
    assert raster.values.ndim == 3


@given(st.binary(max_size=200))
def test_any_bytes_give_a_refusal(corpus, content):
    path = corpus[0]
    path.write_bytes(content)
    refusal(path)


def test_a_file_with_foul_attributes_is_read_without_a_word(save):
    """Pillow's warnings would stand in the agent's log and tell that such a file was met."""
    path = save(GRAY, "scan.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x05\x01\x12\0\x03\0\0\0\x01\0")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert decode(path, 1).values.shape == (1, 9, 7)
    assert said == []
