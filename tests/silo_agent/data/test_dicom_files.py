import io
import logging
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from silo_agent.data import dicom_files
from silo_agent.data.dicom_files import decode
from silo_agent.data.errors import Unfit
from silo_agent.data.raster import MAX_PIXELS

IMPLICIT, EXPLICIT, BIG = "1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.2"
RUNS, JPEG, JPEG_2000 = "1.2.840.10008.1.2.5", "1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.90"
DEFLATED, LOSSLESS_JPEG = "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.4.70"
RNG = np.random.default_rng(0)
SCAN = RNG.integers(-1000, 3000, (9, 12), np.int16)
SMOOTH = np.tile(np.linspace(0, 255, 32).astype(np.uint8), (24, 1))
COLOUR = np.stack([SMOOTH, 255 - SMOOTH, SMOOTH // 2], axis=-1)


def require_pydicom():
    return pytest.importorskip("pydicom", reason="pydicom (the extra dicom) is not installed")


def write(path, values, syntax=EXPLICIT, *, frames=None, **attributes):
    """A DICOM file as a scanner writes it; `frames` is what a compressed one holds."""
    pydicom = require_pydicom()
    colour = values.ndim == 3
    dataset = pydicom.Dataset()
    dataset.SOPClassUID, dataset.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.2", "1.2.3"
    dataset.PatientName, dataset.PatientID = "SECRET^NAME", "SECRET"
    dataset.Rows, dataset.Columns = values.shape[:2]
    dataset.SamplesPerPixel = 3 if colour else 1
    dataset.PhotometricInterpretation = "RGB" if colour else "MONOCHROME2"
    if colour:
        dataset.PlanarConfiguration = 0
    dataset.BitsAllocated = dataset.BitsStored = 8 * values.itemsize
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = int(values.dtype.kind == "i")
    stored = values.astype(values.dtype.newbyteorder(">" if syntax == BIG else "<")).tobytes()
    dataset.PixelData = pydicom.encaps.encapsulate(frames) if frames else stored + b"\0" * (len(stored) % 2)
    dataset["PixelData"].VR = "OB" if values.itemsize == 1 or frames else "OW"
    for name, value in attributes.items():
        setattr(dataset, name, value)
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = EXPLICIT if syntax == RUNS else syntax
    if syntax == RUNS:
        dataset.compress(RUNS)
    dataset.save_as(path, enforce_file_format=True)
    return path


def refusal(path, channels=1):
    with pytest.raises(Unfit) as caught:
        decode(path, channels)
    return f"{caught.value.found}; {caught.value.expected}"


@pytest.mark.parametrize("syntax", [IMPLICIT, EXPLICIT, BIG, RUNS])
@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.uint8])
def test_every_value_is_kept_in_every_plain_transfer_syntax(tmp_path, syntax, dtype):
    values = SCAN.astype(dtype)
    raster = decode(write(tmp_path / "a.dcm", values, syntax), 1)
    assert np.array_equal(raster.values, values[None])
    assert not raster.inverted


def test_thirty_two_bits_are_read(tmp_path):
    values = SCAN.astype(np.int32) * 100_000
    assert np.array_equal(decode(write(tmp_path / "a.dcm", values), 1).values[0], values)


def test_slope_and_intercept_are_applied_and_a_window_is_not(tmp_path):
    window = {"WindowCenter": 40, "WindowWidth": 80}
    path = write(tmp_path / "ct.dcm", SCAN, RescaleSlope="0.5", RescaleIntercept="-1024", **window)
    assert np.array_equal(decode(path, 1).values[0], SCAN * 0.5 - 1024)
    assert np.array_equal(decode(path, 3).values, np.stack([SCAN * 0.5 - 1024] * 3))


def test_monochrome1_is_told(tmp_path):
    raster = decode(write(tmp_path / "a.dcm", SCAN, PhotometricInterpretation="MONOCHROME1"), 1)
    assert raster.inverted
    assert np.array_equal(raster.values[0], SCAN)


def test_colour_is_read_and_becomes_luminance_where_the_study_is_gray(tmp_path):
    path = write(tmp_path / "a.dcm", COLOUR)
    assert np.array_equal(decode(path, 3).values, np.moveaxis(COLOUR, -1, 0))
    assert np.array_equal(decode(path, 1).values[0], np.asarray(Image.fromarray(COLOUR).convert("L")))
    planes = write(tmp_path / "b.dcm", np.moveaxis(COLOUR, -1, 0).reshape(COLOUR.shape), PlanarConfiguration=1)
    assert np.array_equal(decode(planes, 3).values, np.moveaxis(COLOUR, -1, 0))


@pytest.mark.parametrize(
    ("syntax", "codec", "values", "kind"),
    [
        (JPEG, "JPEG", SMOOTH, "MONOCHROME2"),
        (JPEG, "JPEG", COLOUR, "YBR_FULL_422"),
        (JPEG_2000, "JPEG2000", SMOOTH, "MONOCHROME2"),
        (JPEG_2000, "JPEG2000", COLOUR, "YBR_RCT"),
    ],
)
def test_jpeg_and_jpeg_2000_are_decoded(tmp_path, syntax, codec, values, kind):
    buffer = io.BytesIO()
    options = {"no_jp2": True, "mct": 1} if codec == "JPEG2000" else {"quality": 95}
    Image.fromarray(values).save(buffer, codec, **options)
    path = write(tmp_path / "a.dcm", values, syntax, frames=[buffer.getvalue()], PhotometricInterpretation=kind)
    got = decode(path, values.ndim).values if values.ndim == 3 else decode(path, 1).values[0]
    wanted = np.moveaxis(values, -1, 0) if values.ndim == 3 else values
    assert np.abs(got.astype(int) - wanted).max() <= (0 if codec == "JPEG2000" else 12)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"NumberOfFrames": 2}, "several frames"),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "PALETTE COLOR"),
        ({"Rows": 8192, "Columns": 8192}, "8192 x 8192"),
        ({"Rows": 0}, "0 x 12"),
        ({"Rows": 10}, "cannot be read or decoded"),
        ({"BitsAllocated": 64}, "64 bits"),
        ({"SamplesPerPixel": 2}, "2 samples"),
        ({"RescaleSlope": "1e308"}, "not a finite number"),
        ({"PixelData": b""}, "cannot be read or decoded"),
    ],
)
def test_what_is_not_understood_is_named(tmp_path, attributes, expected):
    assert MAX_PIXELS < 8192 * 8192
    assert expected in refusal(write(tmp_path / "a.dcm", SCAN, **attributes))


@pytest.mark.parametrize(
    "name", ["ModalityLUTSequence", "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"]
)
def test_pixels_whose_meaning_stands_elsewhere_are_refused(tmp_path, name):
    pydicom = require_pydicom()
    assert name in refusal(write(tmp_path / "a.dcm", SCAN, **{name: [pydicom.Dataset()]}))


def test_deep_colour_is_refused(tmp_path):
    deep = COLOUR.astype(np.uint16) * 200
    assert "3 samples of 16 bits" in refusal(write(tmp_path / "a.dcm", deep), 3)


@pytest.mark.parametrize("syntax", [DEFLATED, LOSSLESS_JPEG])
def test_other_transfer_syntaxes_are_refused_before_anything_is_unpacked(tmp_path, syntax, monkeypatch):
    frames = [b"never decoded"] if syntax == LOSSLESS_JPEG else None
    path = write(tmp_path / "a.dcm", SCAN, syntax, frames=frames)
    monkeypatch.setattr(require_pydicom(), "dcmread", lambda *_, **__: pytest.fail("it was read"))
    assert f"transfer syntax {syntax}" in refusal(path)


def test_pixels_of_another_size_than_the_header_are_refused(tmp_path):
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((100, 100), np.uint8)).save(buffer, "JPEG")
    refusal(write(tmp_path / "a.dcm", SMOOTH, JPEG, frames=[buffer.getvalue()]))


def test_without_the_extra_the_error_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr(dicom_files, "installed", lambda: False)
    assert "requirements-silo.txt of the release" in refusal(tmp_path / "a.dcm")


def test_a_png_of_this_suffix_and_an_absent_file_are_refused(tmp_path):
    require_pydicom()
    Image.fromarray(SMOOTH).save(tmp_path / "a.dcm", "PNG")
    assert "cannot be read or decoded (InvalidDicomError)" in refusal(tmp_path / "a.dcm")
    assert "FileNotFoundError" in refusal(tmp_path / "no.dcm")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dicom")
    paths = [write(folder / f"{i}.dcm", SCAN, syntax) for i, syntax in enumerate((IMPLICIT, EXPLICIT, RUNS))]
    return folder / "foul.dcm", [path.read_bytes() for path in paths]


@given(data=st.data())
def test_foul_bytes_give_an_image_or_a_refusal_and_are_never_quoted(corpus, data):
    path, contents = corpus
    content = bytearray(data.draw(st.sampled_from(contents)))
    places = st.integers(128, 700) | st.integers(0, len(content) - 1)
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=8)):
        content[min(place, len(content) - 1)] = value
    path.write_bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    said = []
    handler = logging.Handler()
    handler.emit = said.append
    logging.getLogger().addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            raster = decode(path, 1)
        assert raster.values.ndim == 3
        assert np.isfinite(raster.values.astype(np.float64)).all()
    except Unfit as unfit:
        said += ["SECRET"] if "SECRET" in unfit.found + unfit.expected else []
    finally:
        logging.getLogger().removeHandler(handler)
    assert not said
    assert not warned


def test_what_the_decoders_log_goes_nowhere(corpus, capfd):
    path, contents = corpus
    path.write_bytes(contents[0])
    decode(path, 1)
    heard = []
    handler = logging.Handler()
    handler.emit = heard.append
    logging.getLogger().addHandler(handler)
    try:
        for name in ("pydicom", "pydicom.pixels.decoders.base"):
            logging.getLogger(name).warning("SECRET")
    finally:
        logging.getLogger().removeHandler(handler)
    assert heard == []
    assert "SECRET" not in "".join(capfd.readouterr())
