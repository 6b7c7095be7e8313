"""`make bench-local-global`: LG-FedAvg beside FedAvg, part after part.

`mnist` has digits in two-class shards at 100 silos, and a new silo whose digits are turned. What has been measured is
kept in `bench/out/local-global`, and measured anew with `--again`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from bench.local_global import mnist
from bench.mnist import DATA
from bench.table import judge


def main() -> int:
    """Measure what is wanted, print, judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=len(mnist.SEEDS))
    arguments.add_argument("--first", type=int, default=0, help="the first seed; rounds were chosen on 100 and 101")
    arguments.add_argument("--only", choices=("mnist",), help="a part")
    arguments.add_argument("--workers", type=int, default=2, help="processes in which silos train; the same figures")
    arguments.add_argument("--again", action="store_true", help="measure again what has been measured")
    arguments.add_argument("--data", type=Path, default=DATA.parent, help="folder with mnist/ in it")
    asked = arguments.parse_args()
    if not (asked.data / "mnist" / "train-images-idx3-ubyte.gz").is_file():
        print(f"there is no mnist/ with MNIST's idx files in {asked.data}; give the folder with DATA=<folder>")
        return 1
    torch.set_num_threads(1)
    seeds = range(asked.first, asked.first + asked.seeds)
    figures, found = mnist.parts(asked.data / "mnist", seeds, asked.workers, again=asked.again)
    return judge("local-global", figures, {"mnist": found})


if __name__ == "__main__":
    sys.exit(main())
