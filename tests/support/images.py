"""Made-up scans: one PNG per record at a few sites, the CSV files that name them, and the study that fits them.

A scan shows one bright bar on noise; its direction is the record's class, and the age in the CSV shifts with it.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from support import small_cohort

SILOS = ("north", "south", "west")
DIRECTIONS = ("level", "upright", "falling", "rising")


def write_png(path: Path, values: NDArray[np.generic]) -> Path:
    """Write uint8 (h, w) or (h, w, 3), or uint16 (h, w), as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.ascontiguousarray(values)).save(path, "PNG")
    return path


def scan(rng: np.random.Generator, kind: int, size: int = 16, channels: int = 1) -> NDArray[np.uint8]:
    """A bar in direction `kind` through a random place near the middle: uint8 (size, size) or (size, size, 3)."""
    y, x = np.mgrid[:size, :size] - (size - 1) / 2 + rng.uniform(-size / 6, size / 6, (2, 1, 1))
    distance = np.abs((y, x, (y - x) / np.sqrt(2), (y + x) / np.sqrt(2))[kind])
    gray = np.clip(40 + 160 * (distance < size / 8) + rng.normal(0, 15, (size, size)), 0, 255).astype(np.uint8)
    return gray if channels == 1 else np.repeat(gray[..., None], channels, axis=2)


def write_sites(
    folder: Path, *, patients: int = 24, classes: int = 2, size: int = 16, channels: int = 1, seed: int = 1
) -> dict[str, Path]:
    """One CSV file per silo beside a folder of its PNGs; some patients have two records, of one scan or of two."""
    rng = np.random.default_rng(seed)
    files = {}
    for silo in SILOS:
        files[silo] = folder / silo / "scans.csv"
        files[silo].parent.mkdir(parents=True, exist_ok=True)
        with files[silo].open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["patient", "group", "age", "scan", "kind"])
            for number in range(patients):
                kind = number % classes
                age = round(float(np.clip(rng.normal(40 + 10 * kind, 12), 0, 100)), 1)
                name = f"png/{number}.png"
                write_png(files[silo].parent / name, scan(rng, kind, size, channels))
                row = [f"{silo}-{number}", "ab"[number // classes % 2], age, name, DIRECTIONS[kind]]
                writer.writerow(row)
                if rng.random() < 0.2:
                    writer.writerow(row)
    return files


def study_document(*, classes: int = 2, size: int = 16, channels: int = 1, **changes: object) -> dict[str, object]:
    """The small cohort's study, learning from scans and age instead: with a cnn of two narrow maps."""
    codes = [[name] for name in DIRECTIONS[:classes]]
    label = {"classes": codes} if classes > 2 else {"negative": codes[0], "positive": codes[1]}
    document = small_cohort.study_document(
        name="scans",
        data={
            "patient": "patient",
            "label": {"column": "kind", **label},
            "domain": [{"column": "group", "values": ["a", "b"], "names": ["a", "b"]}],
            "features": [{"column": "age", "kind": "number", "minimum": 0, "maximum": 100}],
            "image": {"column": "scan", "channels": channels, "height": size, "width": size},
        },
        model={"encoder": "cnn", "channels": [4, 8], "hidden": [8], "representation": 4, "seed": 7},
    )
    return {**document, **changes}
