"""Generate the Python code of the wire: `python -m protos.generate`. `--check` compares it with the committed code."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "protos" / "v1").glob("*.proto"))


def generate(target: Path) -> list[Path]:
    """Run protoc with the output folder `target`. Return the written files, relative to it."""
    names = [str(path.relative_to(ROOT)) for path in SOURCES]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}"]
    outputs = [f"--python_out={target}", f"--pyi_out={target}", f"--grpc_python_out={target}"]
    subprocess.run([*command, *outputs, *names], check=True, cwd=ROOT)
    return sorted(path.relative_to(target) for path in target.rglob("*_pb2*.py*") if "__pycache__" not in path.parts)


def main() -> int:
    """Write the code in place. With `--check`, return 1 and name the files that differ."""
    if "--check" not in sys.argv[1:]:
        generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        fresh = generate(target)
        stale = [
            name
            for name in fresh
            if not (ROOT / name).exists() or (ROOT / name).read_bytes() != (target / name).read_bytes()
        ]
    for name in stale:
        print(f"{name} is stale: run python -m protos.generate")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
