"""DICOM files of one frame, by pydicom (the optional extra `dicom`).

Guarantees: values are in the modality's own unit, such as Hounsfield units (rescale slope and intercept are applied).
A window in the file is ignored: the study's public range is the window. Everything that this module does not understand
raises an `Unfit` that names it. No attribute of the patient is read, and nothing is logged.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from silo_agent.data.errors import Unfit
from silo_agent.data.raster import BOMB, ONE_FRAME, Raster, check_size, unreadable

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

_EXTRA = "the DICOM reader to be installed, the extra dicom: requirements-silo.txt of the release has it"
_EXPECTED = "a complete DICOM image of one frame, gray or RGB of 8 bits"
_GRAY = ("MONOCHROME1", "MONOCHROME2")
_COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_RCT", "YBR_ICT")
_BITS = (8, 16, 32)
_SYNTAXES = (
    "1.2.840.10008.1.2",  # implicit little endian
    "1.2.840.10008.1.2.1",  # explicit little endian
    "1.2.840.10008.1.2.2",  # explicit big endian
    "1.2.840.10008.1.2.5",  # run lengths
    "1.2.840.10008.1.2.4.50",  # JPEG of 8 bits
    "1.2.840.10008.1.2.4.90",  # JPEG 2000, lossless
    "1.2.840.10008.1.2.4.91",  # JPEG 2000
)
"""Transfer syntaxes that pydicom and Pillow decode by themselves. Deflated files are left out, because
their unpacked size is not known beforehand."""
_PIXELS = (
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "PlanarConfiguration",
    "NumberOfFrames",
    "Rows",
    "Columns",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
    "RescaleIntercept",
    "RescaleSlope",
    "ExtendedOffsetTable",
    "ExtendedOffsetTableLengths",
    "PixelData",
)
_UNREAD = ("ModalityLUTSequence", "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence")
"""Attributes that can change what pixels mean in ways that this module does not understand."""


def installed() -> bool:
    """Whether the extra is installed."""
    return importlib.util.find_spec("pydicom") is not None


def decode(path: Path, channels: int) -> Raster:
    """Decode a file. Raises `Unfit`."""
    if not installed():
        raise Unfit(_EXTRA, "a DICOM file")
    # pydicom's warnings quote attributes.
    said = logging.getLogger("pydicom")
    # pydicom's modules log under names below this one, which `disabled` would not affect.
    said.handlers, said.propagate = [logging.NullHandler()], False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", BOMB)
            return _decode(path, channels)
    except Unfit:
        raise
    except Exception as error:  # noqa: BLE001  # decoders raise anything on bad bytes; every error means unreadable
        raise unreadable(_EXPECTED, error) from None


def _decode(path: Path, channels: int) -> Raster:
    from pydicom import dcmread  # noqa: PLC0415  # an optional extra
    from pydicom.filereader import read_file_meta_info  # noqa: PLC0415
    from pydicom.pixels.utils import pixel_array  # noqa: PLC0415

    syntax = str(read_file_meta_info(path).TransferSyntaxUID)
    if syntax not in _SYNTAXES:
        expected = "a transfer syntax that is uncompressed, run-length, JPEG or JPEG 2000; convert it (with dcmconv)"
        raise Unfit(expected, f"a DICOM file of transfer syntax {syntax[:64]}")
    dataset = dcmread(path, specific_tags=[*_PIXELS, *_UNREAD])
    _check(dataset)
    values: NDArray[np.generic] = pixel_array(dataset)
    if dataset.SamplesPerPixel != 1:
        return Raster.colour(np.ascontiguousarray(values, np.uint8), channels)
    slope, intercept = float(dataset.get("RescaleSlope", 1)), float(dataset.get("RescaleIntercept", 0))
    rescaled = values.astype(np.float64) * slope + intercept
    if not np.isfinite(rescaled).all():
        raise Unfit(_EXPECTED, "a rescale slope or intercept that is not a finite number")
    return Raster.gray(rescaled, channels, inverted=dataset.PhotometricInterpretation == "MONOCHROME1")


def _check(dataset: Dataset) -> None:
    check_size(int(dataset.Rows), int(dataset.Columns))
    if int(dataset.get("NumberOfFrames") or 1) != 1:
        raise Unfit(ONE_FRAME, "several frames in one file")
    unread = [name for name in _UNREAD if name in dataset]
    if unread:
        raise Unfit(
            _EXPECTED + ", with no other scaling than a rescale slope and intercept", f"a file with {unread[0]}"
        )
    samples, kind, bits = int(dataset.SamplesPerPixel), str(dataset.PhotometricInterpretation), dataset.BitsAllocated
    gray, colour = samples == 1 and kind in _GRAY and bits in _BITS, samples == 3 and kind in _COLOUR and bits == 8  # noqa: PLR2004
    if not gray and not colour:
        raise Unfit(_EXPECTED, f"{samples} samples of {bits} bits, {kind[:64]}")
