"""A hospital's table from the file to two cohorts: CSV, Parquet and PostgreSQL, beside pyarrow, polars and DuckDB.

40 columns: a patient, an outcome, a domain, 28 numbers (whole, with two decimals, with all digits; 2 % absent in a
third of them) and 9 codes. One row in 200 has a number outside its range and is left out. FedWard reads, checks, keeps
the rows sealed on the disk, and divides the patients into two cohorts. The others read the same file, make the same
checks as expressions over whole columns, and give the same records as one float32 array; they keep nothing. Every way
has a process of its own. CPU seconds are user and system of all its threads, memory is the peak above the process with
its libraries. `--before COMMIT` measures that commit's code, too, from a worktree.
"""

from __future__ import annotations

import argparse
import getpass
import json
import math
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from PIL import Image as Pillow

from bench.memory import begin_peak, resident
from bench.table import Criterion, judge
from crypto.entropy import SystemEntropy
from policies.documents.study import DataSchema
from silo_agent.config import SqlSource
from silo_agent.data.errors import Faults
from silo_agent.data.reader import read_records
from silo_agent.data.sources.data_set import Division
from silo_agent.data.sources.snapshot import read_begun
from silo_agent.data.table import Source
from silo_agent.storage.folders import StudyFolder
from silo_agent.storage.rows import SealedRows

SIZES: Final = {"10k": 10_000, "100k": 100_000, "1M": 1_000_000, "10M": 10_000_000}
LARGEST_CSV: Final = 1_000_000
WHOLE, DECIMAL, FULL, CODES = 5, 13, 10, 9
NUMBERS: Final = WHOLE + DECIMAL + FULL
PATIENT, OUTCOME, DOMAIN = "patient", "ill", "site"
LOW, HIGH, FILL = -100.0, 200.0, 50.0
LETTERS: Final = ("a", "b", "c", "d", "e")
CHUNK: Final = 250_000
WANTED: Final = {"csv": 8.0, "parquet": 3.0}
"""CPU seconds of a million rows."""
SIDE, CONTENTS, IMAGES_MB = 224, 200, 2000.0
TIMES, CHECK_SECONDS, LARGE_MB, GROWTH = 3.0, 12.0, 1000.0, 1.1
COLUMNS: Final = (
    PATIENT,
    OUTCOME,
    DOMAIN,
    *(f"x{place}" for place in range(NUMBERS)),
    *(f"c{place}" for place in range(CODES)),
)


def chunks(rows: int) -> Iterator[pa.Table]:
    """Draw a table from a fixed seed."""
    rng = np.random.default_rng(1)
    for begin in range(0, rows, CHUNK):
        n = min(CHUNK, rows - begin)
        columns: dict[str, pa.Array] = {
            PATIENT: pa.array([f"p{place // 2:08d}" for place in range(begin, begin + n)]),
            OUTCOME: pa.array(rng.integers(0, 2, n)),
            DOMAIN: pa.array(np.array(["north", "south", "west"])[rng.integers(0, 3, n)]),
        }
        spoilt = rng.integers(0, 200, n) == 0
        for place in range(NUMBERS):
            values = rng.normal(50.0, 15.0, n)
            if place < WHOLE + DECIMAL:
                values = np.round(values, 0 if place < WHOLE else 2)
            if place == NUMBERS - 1:
                values[spoilt] = 999.0
            absent = rng.random(n) < (0.02 if place % 3 == 0 else 0.0)
            columns[f"x{place}"] = pa.array(values, mask=absent)
        for place in range(CODES):
            columns[f"c{place}"] = pa.array(np.array(LETTERS)[rng.integers(0, len(LETTERS), n)])
        yield pa.table(columns)


def write(folder: Path, name: str) -> None:
    """Write the table of this size in both formats."""
    rows, csv = SIZES[name], None
    parquet = None
    for table in chunks(rows):
        parquet = parquet or pq.ParquetWriter(folder / f"{name}.parquet", table.schema)
        parquet.write_table(table, row_group_size=CHUNK)
        if rows <= LARGEST_CSV:
            csv = csv or pyarrow.csv.CSVWriter(folder / f"{name}.csv", table.schema)
            csv.write(table)
    for writer in (parquet, csv):
        if writer is not None:
            writer.close()


def schema() -> dict[str, Any]:
    """The study's data, as its document has them."""
    numbers = [
        {"column": f"x{place}", "kind": "number", "minimum": LOW, "maximum": HIGH, "fill": FILL}
        for place in range(NUMBERS)
    ]
    codes = [{"column": f"c{place}", "kind": "category", "values": list(LETTERS)} for place in range(CODES)]
    return {
        "patient": PATIENT,
        "label": {"column": OUTCOME, "positive": [1], "negative": [0]},
        "domain": [{"column": DOMAIN, "values": ["north", "south", "west"], "names": ["n", "s", "w"]}],
        "features": numbers + codes,
    }


def _source(where: str) -> Source:
    if not where.startswith("postgresql:"):
        return Path(where)
    url, secret, table = where.split(" ")
    # Arrow's tables name no type of truth values; whole numbers stay whole.
    return SqlSource(url=url, statement=f"SELECT * FROM t{table}", credentials=Path(secret))  # noqa: S608 - our own


def by_fedward(where: str, turn: Callable[[], None]) -> int:
    """Read, keep sealed, divide."""
    folder = Path(tempfile.mkdtemp(prefix="fedward-bench-", dir=os.environ["FEDWARD_BENCH_FOLDER"]))
    (folder / "studies" / "s").mkdir(parents=True)
    place = StudyFolder(folder / "studies" / "s")
    store = SealedRows(place, lambda: bytes(32), frozenset, SystemEntropy())
    read = DataSchema.model_validate(schema())
    turn()
    records = read_begun(_source(where), read, (), store)
    training, held_out = Division("bench", 0.2, ()).split(records)
    return len(training) + len(held_out)


def by_check(where: str, turn: Callable[[], None]) -> int:
    """What `fedward-silo data check` reads and counts."""
    turn()
    return len(read_records(_source(where), DataSchema.model_validate(schema()), faults=Faults(20)).records)


def by_pyarrow(where: str, turn: Callable[[], None]) -> int:
    """Read a table, filter it by one expression, and stack its columns."""
    turn()
    table = pyarrow.csv.read_csv(where) if where.endswith(".csv") else pq.read_table(where)
    fits = pc.is_in(table[OUTCOME], value_set=pa.array([0, 1]))
    columns = []
    for place in range(NUMBERS):
        values = pc.cast(table[f"x{place}"], pa.float64())
        inside = pc.and_(pc.greater_equal(values, LOW), pc.less_equal(values, HIGH))
        fits = pc.and_(fits, pc.fill_null(inside, fill_value=True))
        columns.append(pc.fill_null(values, FILL))
    for place in range(CODES):
        codes = pc.index_in(table[f"c{place}"], value_set=pa.array(LETTERS))
        fits = pc.and_(fits, pc.is_valid(codes))
        columns.append(codes)
    domains = pc.index_in(table[DOMAIN], value_set=pa.array(["north", "south", "west"]))
    fits = pc.and_(fits, pc.is_valid(domains))
    patients = table[PATIENT].filter(fits).dictionary_encode()
    kept = np.empty((int(pc.sum(fits).as_py()), len(columns)), np.float32)
    for place, values in enumerate(columns):
        kept[:, place] = values.filter(fits).to_numpy()
    return len(kept) if len(patients) == len(kept) else 0


def by_polars(where: str, turn: Callable[[], None]) -> int:
    """Scan the file and filter it by one expression."""
    import polars as pl  # noqa: PLC0415 - no other way's memory

    turn()
    frame = pl.scan_csv(where) if where.endswith(".csv") else pl.scan_parquet(where)
    fits = pl.col(OUTCOME).is_in([0, 1]) & pl.col(DOMAIN).is_in(["north", "south", "west"])
    for place in range(NUMBERS):
        fits &= pl.col(f"x{place}").is_between(LOW, HIGH).fill_null(value=True)
    for place in range(CODES):
        fits &= pl.col(f"c{place}").is_in(LETTERS)
    numbers = [pl.col(f"x{place}").fill_null(FILL).cast(pl.Float32) for place in range(NUMBERS)]
    codes = [
        pl.col(f"c{place}").replace_strict({letter: k for k, letter in enumerate(LETTERS)}, return_dtype=pl.Float32)
        for place in range(CODES)
    ]
    patients = pl.col(PATIENT).cast(pl.Categorical)
    found = frame.filter(fits).select([*numbers, *codes, patients]).collect()
    kept = found.drop(PATIENT).to_numpy()
    return len(kept) if kept.dtype == np.float32 else 0


def by_duckdb(where: str, turn: Callable[[], None]) -> int:
    """One statement over the file."""
    import duckdb  # noqa: PLC0415 - no other way's memory

    turn()
    numbers = [f"x{place}" for place in range(NUMBERS)]
    codes = [f"c{place}" for place in range(CODES)]
    letters = ", ".join(f"'{letter}'" for letter in LETTERS)
    checks = [f"coalesce({name} BETWEEN {LOW} AND {HIGH}, true)" for name in numbers]
    checks += [f"{name} IN ({letters})" for name in codes]
    checks += [f"{OUTCOME} IN (0, 1)", f"{DOMAIN} IN ('north', 'south', 'west')"]
    chosen = [f"CAST(coalesce({name}, {FILL}) AS FLOAT)" for name in numbers]
    chosen += [f"CAST(list_position([{letters}], {name}) - 1 AS FLOAT)" for name in codes]
    statement = f"SELECT {', '.join(chosen)}, {PATIENT} FROM '{where}' WHERE {' AND '.join(checks)}"  # noqa: S608
    table: pa.Table = duckdb.execute(statement).to_arrow_table()
    kept = np.empty((table.num_rows, len(chosen)), np.float32)
    for place in range(len(chosen)):
        kept[:, place] = table.column(place).to_numpy()
    return len(kept)


def write_images(folder: Path, count: int) -> None:
    """Write a table whose every row names a file of its own: gray images of 224 x 224, of 200 contents."""
    rng = np.random.default_rng(1)
    (folder / "scans").mkdir()
    for place in range(count):
        path = folder / "scans" / f"{place}.png"
        if place < CONTENTS:
            Pillow.fromarray(rng.integers(0, 256, (28, 28), np.uint8)).resize((SIDE, SIDE)).save(path)
        else:
            path.hardlink_to(folder / "scans" / f"{place % CONTENTS}.png")
    rows = (f"p{place},{place % 2},{place % 3},scans/{place}.png" for place in range(count))
    (folder / "images.csv").write_text("\n".join(["patient,ill,site,scan", *rows]) + "\n", encoding="ascii")


def by_images(where: str, turn: Callable[[], None]) -> int:
    """Read a table of images, and take each of them once, as an evaluation does."""
    document = {
        **{key: value for key, value in schema().items() if key in ("patient", "label")},
        "domain": [{"column": DOMAIN, "values": [0, 1, 2], "names": ["n", "s", "w"]}],
        "image": {"column": "scan", "height": SIDE, "width": SIDE},
    }
    turn()
    images = read_records(Path(where), DataSchema.model_validate(document)).records.images
    if images is None:
        return 0
    images.expect(slice(None))
    sums = [images.take(slice(begin, begin + 64)).sum() for begin in range(0, len(images), 64)]
    return len(images) if np.isfinite(sums).all() else 0


WAYS: Final[dict[str, Callable[[str, Callable[[], None]], int]]] = {
    "fedward": by_fedward,
    "check": by_check,
    "pyarrow": by_pyarrow,
    "polars": by_polars,
    "duckdb": by_duckdb,
}
IMAGES: Final = "images"


def one(way: str, where: str) -> dict[str, float]:
    """Measure one way in this process."""
    begun = dict[str, float]()

    def turn() -> None:
        """Called when everything is loaded."""
        begin_peak()
        begun.update(memory=resident("VmRSS"), cpu=time.process_time(), wall=time.monotonic())

    kept = {**WAYS, IMAGES: by_images}[way](where, turn)
    return {
        "cpu": time.process_time() - begun["cpu"],
        "wall": time.monotonic() - begun["wall"],
        "above": resident("VmHWM") - begun["memory"],
        "resident": resident("VmHWM"),
        "kept": kept,
    }


def measured(way: str, where: str, folder: Path, tree: Path | None = None) -> dict[str, float]:
    """The same in a process of its own, with the code of a worktree if one is given."""
    root = tree or Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root), "FEDWARD_BENCH_FOLDER": str(folder)}
    command = [sys.executable, __file__, "--one", way, where]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"{way} failed on {where}:\n{done.stderr[-2000:]}"
        raise RuntimeError(msg)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def postgres(csv: Path) -> Iterator[str | None]:
    """A new cluster with the table of a CSV file; None where there is no PostgreSQL."""
    tools = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not tools:
        yield None
        return
    user, own = getpass.getuser(), dict[str, Any]()
    if os.getuid() == 0:
        entry = pwd.getpwnam("postgres")
        user, own = "postgres", {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": list[int]()}
    home = Path(tempfile.mkdtemp(prefix="fw-pg-"))
    secret = home / "secret"
    secret.write_text("bench", encoding="ascii")
    secret.chmod(0o600)
    if own:
        os.chown(home, own["user"], own["group"])
        os.chown(secret, own["user"], own["group"])

    def tool(name: str, *words: str) -> None:
        command = [str(tools[-1].parent / name), *words]
        subprocess.run(command, check=True, cwd=home, stdout=subprocess.DEVNULL, timeout=300, **own)

    try:
        tool("initdb", "-D", f"{home}/data", "-U", user, "--auth=scram-sha-256", f"--pwfile={secret}", "-N")
        options = f"-k {home} -c listen_addresses="
        tool("pg_ctl", "-D", f"{home}/data", "-w", "-l", f"{home}/log", "-o", options, "start")
        try:
            url = f"postgresql://{user}@/postgres?host={home}"
            _fill(url.replace("@", ":bench@", 1), csv)
            yield f"{url} {secret} {csv.stem}"
        finally:
            tool("pg_ctl", "-D", f"{home}/data", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home)


def _fill(url: str, csv: Path) -> None:
    import psycopg  # noqa: PLC0415 - no other way's memory

    kinds = {PATIENT: "text", OUTCOME: "bigint", DOMAIN: "text"}
    columns = ", ".join(f"{name} {kinds.get(name, 'float8' if name[0] == 'x' else 'text')}" for name in COLUMNS)
    with psycopg.connect(url) as connection, csv.open("rb") as file:
        connection.execute(f"CREATE TABLE t{csv.stem} ({columns})")
        with connection.cursor().copy(f"COPY t{csv.stem} FROM STDIN (FORMAT csv, HEADER)") as copy:
            while part := file.read(1 << 20):
                copy.write(part)


@contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Path]:
    """The code of a commit."""
    root, tree = Path(__file__).parents[3], folder / "before"
    subprocess.run(["git", "worktree", "add", "--detach", str(tree), commit], cwd=root, check=True, capture_output=True)
    try:
        yield tree
    finally:
        with suppress(subprocess.CalledProcessError):
            command = ["git", "worktree", "remove", "--force", str(tree)]
            subprocess.run(command, cwd=root, check=True, capture_output=True)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--before", metavar="COMMIT", help="measure this commit's code, too, up to --most-before rows")
    parser.add_argument("--most-before", type=int, default=100_000)
    parser.add_argument("--images", type=int, default=100_000, help="how many images of 224 x 224 are read, and taken")
    parser.add_argument("--folder", type=Path, help="where the tables are written; by default among temporary files")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "SOURCE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(*args.one)))
        return 0
    with tempfile.TemporaryDirectory(prefix="fedward-bench-", dir=args.folder) as root:
        found = dict[str, dict[str, float]]()
        for name in args.sizes:
            _of_size(name, Path(root), found, args)
        if args.images:
            write_images(Path(root), args.images)
            found[IMAGES] = measured(IMAGES, f"{root}/images.csv", Path(root))
            print(f"{args.images} images: {found[IMAGES]}", flush=True)
    return judge("data", list(_figures(found)), found)


def _of_size(name: str, folder: Path, found: dict[str, dict[str, float]], args: argparse.Namespace) -> None:
    write(folder, name)

    def measure(way: str, what: str, where: str, tree: Path | None = None) -> None:
        key = f"{name} {what} {way}{' before' if tree else ''}"
        try:
            found[key] = measured(way, where, folder, tree)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return
        shown = {figure: round(value, 2) for figure, value in found[key].items()}
        print(f"{key}: {shown}", flush=True)

    formats = [form for form in ("csv", "parquet") if (folder / f"{name}.{form}").exists()]
    # Of ten million rows the others hold all in memory; nothing is compared there.
    ways = list(WAYS) if SIZES[name] <= LARGEST_CSV else ["fedward", "check"]
    for form in formats:
        for way in ways:
            measure(way, form, f"{folder}/{name}.{form}")
    if "csv" in formats:
        with postgres(folder / f"{name}.csv") as database:
            if database is None:
                print("PostgreSQL is not measured: it is not installed")
            else:
                measure("fedward", "postgresql", database)
    if args.before and SIZES[name] <= args.most_before:
        with worktree(args.before, folder) as tree:
            for form in formats:
                measure("fedward", form, f"{folder}/{name}.{form}", tree)
    for form in formats:
        (folder / f"{name}.{form}").unlink()


def _figures(found: dict[str, dict[str, float]]) -> Iterator[Criterion]:
    for form, seconds in WANTED.items():
        if own := found.get(f"1M {form} fedward"):
            cpu, array = own["cpu"], SIZES["1M"] * len(COLUMNS) * 4 / 1e6
            yield Criterion(f"1 M rows, {form}: CPU s", f"<= {seconds:g}", f"{cpu:.2f}", cpu <= seconds)
            times = own["above"] / array
            yield Criterion(f"1 M rows, {form}: memory", f"<= {TIMES:g} arrays", f"{times:.2f}", times <= TIMES)
            check = found[f"1M {form} check"]["wall"]
            limit = CHECK_SECONDS
            yield Criterion(f"1 M rows, {form}: data check, s", f"<= {limit:g}", f"{check:.2f}", check <= limit)
            kept = {key: own["kept"] for key, own in found.items() if key.startswith(f"1M {form}")}
            same = len(set(kept.values())) == 1
            yield Criterion(f"1 M rows, {form}: records", "the same by all", str(sorted(set(kept.values()))), same)
    if own := found.get("10M parquet fedward"):
        most = own["resident"]
        yield Criterion("10 M rows, parquet: resident MB", f"<= {LARGE_MB:g}", f"{most:.0f}", most <= LARGE_MB)
    if own := found.get(IMAGES):
        most = own["resident"]
        name = f"{int(own['kept'])} images of {SIDE} x {SIDE}: resident MB"
        yield Criterion(name, f"<= {IMAGES_MB:g}", f"{most:.0f}", most <= IMAGES_MB)
    for form in WANTED:
        ways = {name: f"{name} {form} fedward" for name, rows in SIZES.items() if rows >= SIZES["100k"]}
        points = [(SIZES[name], found[way]["cpu"]) for name, way in ways.items() if way in found]
        if len(points) > 1:
            (small, less), (large, more) = points[0], points[-1]
            power = math.log(more / less) / math.log(large / small)
            yield Criterion(f"{form}: growth of CPU", f"rows^{GROWTH} at most", f"rows^{power:.2f}", power <= GROWTH)


if __name__ == "__main__":
    sys.exit(main())
