"""Sealed sums beside NVFLARE's parameters: bytes, CPU time of a silo, memory of the coordinator, error of CKKS.

Both sides are measured in one run, on one core. NVFLARE's side is its CKKS as its homomorphic-encryption example has it
(TenSEAL, N = 8192, primes of 60, 40, 40 bits, scale 2^40), each layer a vector of its own; what is linear in the number
of values is measured on `SAMPLE` of them. About three minutes and 6 GiB of memory.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tenseal
from numpy.typing import NDArray
from tenseal import sealapi

from bench.table import Criterion, judge
from coordinator.sums.aggregation import add_contents
from crypto.entropy import SystemEntropy
from crypto.hkdf import KEY_BYTES
from crypto.rings import ckks_public
from crypto.rings.ckks_secret import CkksKey
from crypto.rings.rings import Kind, Ring, ring_of
from crypto.secagg.labels import SumLabel
from crypto.secagg.masks import Masks
from crypto.secagg.packages import GroupKeys
from crypto.secagg.sealing import Sealer
from protos.chunks import ChunkList

SILOS, ENCODER, SAMPLE = 10, 21_000_000, 1 << 20
REPEATS = 3
ADDERS, SHORT, LONG = 16, 1_000_000, 10_000_000
SUMMED, SUMS = 64, 10
WHOLE, KINDS = "whole vectors", ("ckks", "ring32", "ring64")
THEIR_SLOTS = 4096
REPRESENTATION, DOMAINS = 16, 5
NAMES = tuple(f"silo-{number:02d}" for number in range(SILOS))


def main() -> int:
    """Measure, print, judge."""
    rng = np.random.default_rng(0)
    theirs = Theirs()
    sample = rng.integers(-(1 << 20), 1 << 20, SAMPLE)
    their_bytes, their_us = theirs.per_value(sample.astype(float))
    figures = [
        *ciphertexts(sample, their_bytes, their_us),
        heads(rng, theirs),
        *encoder(rng, their_bytes, their_us),
        *coordinator(theirs),
        *error(rng),
    ]
    return judge("sealed", figures, {"theirs": {"bytes_per_value": their_bytes, "us_per_value": their_us}})


class Theirs:
    """NVFLARE's parameters."""

    def __init__(self) -> None:
        self.context = tenseal.context(
            tenseal.SCHEME_TYPE.CKKS,
            8192,
            coeff_mod_bit_sizes=[60, 40, 40],
            encryption_type=tenseal.ENCRYPTION_TYPE.SYMMETRIC,
        )
        self.context.global_scale = 2.0**40

    def seal(self, values: NDArray[np.float64]) -> list[bytes]:
        """One ciphertext for every 4096 values."""
        parts = (values[at : at + THEIR_SLOTS].tolist() for at in range(0, len(values), THEIR_SLOTS))
        return [tenseal.ckks_vector(self.context, part).serialize() for part in parts]

    def per_value(self, values: NDArray[np.float64]) -> tuple[float, float]:
        """Bytes, and microseconds of CPU to encrypt and serialize."""
        sealed: list[bytes] = []
        seconds = cpu(lambda: sealed.extend(self.seal(values)), repeats=1)
        return sum(map(len, sealed)) / len(values), 1e6 * seconds / len(values)


def ciphertexts(sample: NDArray[np.int64], their_bytes: float, their_us: float) -> list[Criterion]:
    """CKKS per value: on the wire, and CPU without and with masks for ten silos."""
    key, ring = CkksKey.create(), ring_of("ckks")
    parts = [sample[at : at + ring.frame_values] for at in range(0, SAMPLE, ring.frame_values)]
    plain = 1e6 * cpu(lambda: [ring.write(key.encrypt(part)) for part in parts]) / SAMPLE
    size, seconds = seal_cost("ckks", sample)
    return [
        figure("CKKS bytes per value on the wire", their_bytes, 14, size / SAMPLE),
        figure("CKKS encrypt + serialize, CPU us per value", their_us, 0.25, plain),
        figure("the same with masks for 10 silos, slots and checks", their_us, 0.45, 1e6 * seconds / SAMPLE),
    ]


def heads(rng: np.random.Generator, theirs: Theirs) -> Criterion:
    """Hessians of k = 16, two classes, five domains: all that one silo sends in a round."""
    width = REPRESENTATION + 1
    their_kib = sum(len(blob) for _ in range(DOMAINS) for blob in theirs.seal(rng.normal(size=width * width)))
    values = DOMAINS * (width * (width + 1) // 2 + width)
    size, _ = seal_cost("ckks", rng.integers(-1000, 1000, values))
    return figure("Hessians k=16, C=1, M=5: kB per silo and round", their_kib / 1000, 40, size / 1000)


def encoder(rng: np.random.Generator, their_bytes: float, their_us: float) -> list[Criterion]:
    """An encoder of 21 M weights in integers mod 2^32, ten silos."""
    values = rng.integers(-(1 << 21), 1 << 21, ENCODER)
    size, seconds = seal_cost("ring32", values)
    return [
        figure("encoder of 21 M weights: MB", their_bytes * ENCODER / 1e6, 84.5, size / 1e6),
        figure("the same: silo CPU s, 10 silos", their_us * ENCODER / 1e6, 0.5, seconds),
    ]


def seal_cost(kind: Kind, values: NDArray[np.int64]) -> tuple[int, float]:
    """Bytes and CPU seconds of sealing as a silo does it: pair masks towards nine, its own, pads, slots, checks."""
    entropy = SystemEntropy()
    keys = GroupKeys(CkksKey.create().to_bytes(), entropy.bytes(KEY_BYTES), entropy.bytes(KEY_BYTES))
    pairs = {name: entropy.bytes(KEY_BYTES) for name in NAMES[1:]}
    masks = Masks(NAMES[0], entropy.bytes(KEY_BYTES), pairs, keys.group)
    sealer = Sealer(NAMES[0], keys, NAMES)
    sizes: list[int] = []

    def seal() -> None:
        label = SumLabel("0" * 64, "0" * 64, "", len(sizes), 1, "bench")
        sizes.append(sum(len(frame) for frame in sealer.seal(kind, values, label, masks)))

    seconds = cpu(seal)
    return sizes[0], seconds


def coordinator(theirs: Theirs) -> list[Criterion]:
    """Growth of the adding process's peak memory from 1 M to 10 M values, 16 silos."""
    public = theirs.context.serialize(
        save_secret_key=False, save_public_key=False, save_relin_keys=False, save_galois_keys=False
    )
    vector = theirs.seal(np.ones(THEIR_SLOTS))[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "context").write_bytes(public)
        (folder / "vector").write_bytes(vector)
        whole = growth(WHOLE, folder)
        grown = {kind: growth(kind, folder) for kind in KINDS}
    what = "coordinator, 16 silos, 1 M to 10 M values"
    return [figure(f"{what}, {kind}: MB of memory", whole, 5, grown[kind]) for kind in KINDS]


def growth(kind: str, folder: Path) -> float:
    """MB by which the peak grows; each length in a process of its own."""
    peaks = []
    for values in (SHORT, LONG):
        command = [sys.executable, "-m", "bench.speed.sealed", "--add", kind, str(values), str(folder)]
        peaks.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return peaks[1] - peaks[0]


def add(kind: str, values: int, folder: Path) -> float:
    """Add 16 uploads of one kind; returns this process's peak memory in MB, that of its start left out."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak to what is held now
    if kind == WHOLE:
        add_whole(values, folder)
    else:
        ring = ring_of(kind)
        upload, total = folder / f"{kind}-{values}", folder / f"{kind}-{values}.sum"
        with upload.open("wb") as file:
            for begin in range(0, values, ring.frame_values):
                file.write(frame_of(ring, min(ring.frame_values, values - begin)))
        add_contents([upload] * ADDERS, [ChunkList.of(upload).digest] * ADDERS, kind, total)
        if total.stat().st_size != upload.stat().st_size:
            msg = f"the sum of {kind} has another size than its parts"
            raise RuntimeError(msg)
        upload.unlink()
        total.unlink()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1000


def frame_of(ring: Ring, values: int) -> bytes:
    """Well-formed bytes of one frame: adding does not see what they hide."""
    size = 2 * ckks_public.DEGREE if ring.kind == "ckks" else values
    word = np.uint32 if ring.kind == "ring32" else np.uint64
    return ring.write(np.arange(1, size + 1, dtype=word))


def add_whole(values: int, folder: Path) -> None:
    """What a server does that receives a model as a list of vectors and keeps a sum of the whole."""
    context = tenseal.context_from((folder / "context").read_bytes())
    blob, total = (folder / "vector").read_bytes(), None
    for _ in range(ADDERS):
        received = [bytes(bytearray(blob)) for _ in range(0, values, THEIR_SLOTS)]
        vectors = [tenseal.ckks_vector_from(context, one) for one in received]
        if total is None:
            total = vectors
        else:
            for mine, theirs in zip(total, vectors, strict=True):
                mine += theirs  # noqa: PLW2901  # TenSEAL adds in place


def error(rng: np.random.Generator) -> list[Criterion]:
    """The largest error of 64 silos' sum before rounding, in grid steps, at the largest values; exact afterwards.

    The raw error needs SEAL itself: `CkksKey` never gives a decryption that is not rounded.
    """
    limit = ring_of("ckks").limit(SUMMED)
    values = rng.integers(-limit, limit + 1, (SUMMED, ckks_public.FRAME_VALUES))
    parameters = sealapi.EncryptionParameters(sealapi.SCHEME_TYPE.CKKS)
    parameters.set_poly_modulus_degree(ckks_public.DEGREE)
    parameters.set_coeff_modulus([sealapi.Modulus(ckks_public.PRIME)])
    context = sealapi.SEALContext(parameters, False, sealapi.SEC_LEVEL_TYPE.TC128)  # noqa: FBT003  # of SEAL's making
    secret = sealapi.KeyGenerator(context).secret_key()
    encoder, evaluator = sealapi.CKKSEncoder(context), sealapi.Evaluator(context)
    encryptor, decryptor = sealapi.Encryptor(context, secret), sealapi.Decryptor(context, secret)
    worst = 0.0
    for _ in range(SUMS):
        rng.permuted(values, axis=1, out=values)
        total = None
        for own in values:
            plaintext, ciphertext = sealapi.Plaintext(), sealapi.Ciphertext()
            encoder.encode(own.astype(float).view(np.complex128).tolist(), ckks_public.SCALE, plaintext)
            encryptor.encrypt_symmetric(plaintext, ciphertext)
            if total is None:
                total = ciphertext
            else:
                evaluator.add_inplace(total, ciphertext)
        opened = sealapi.Plaintext()
        decryptor.decrypt(total, opened)
        slots = np.array(encoder.decode_complex(opened)).view(np.float64)
        worst = max(worst, float(np.abs(slots - values.sum(axis=0)).max()))
    half = f"{0.5 / worst:.0f} x below half the grid"
    key, exact = CkksKey.create(), np.zeros(2 * ckks_public.DEGREE, dtype=np.uint64)
    for own in values:
        ckks_public.add_residues(exact, key.encrypt(own))
    same = np.array_equal(key.decrypt(exact, ckks_public.FRAME_VALUES), values.sum(axis=0))
    name = f"CKKS sum of {SUMMED} silos at +-{limit:.1e} grid steps"
    return [
        Criterion(f"{name}: error before rounding, steps", "< 0.5", f"{worst:.4f} ({half})", worst < 0.5),
        Criterion(f"{name}: after rounding", "exact", "exact" if same else "WRONG", same),
    ]


def figure(name: str, theirs: float, wanted: float, ours: float) -> Criterion:
    """A line with NVFLARE's figure of the same run."""
    return Criterion(name, f"<= {wanted:g}", f"{ours:.3g} (NVFLARE's {theirs:.4g})", ours <= wanted)


def cpu(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median CPU seconds of this process."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


if __name__ == "__main__":
    if "--add" in sys.argv:
        print(add(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
    else:
        sys.exit(main())
