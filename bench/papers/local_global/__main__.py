"""`make bench NAME=local-global`: LG-FedAvg beside FedAvg, part after part.

`mnist` has digits in two-class shards at 100 silos, and a new silo whose digits are turned; `adult` has representations
that hide race and sex. What has been measured is kept in `bench/out/local-global`; `--again` measures the digits anew.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from bench import idx
from bench.papers.local_global import adult, mnist
from bench.places import DATA
from bench.table import Criterion, judge


def main() -> int:
    """Measure what is wanted, print, judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=len(mnist.SEEDS))
    arguments.add_argument("--first", type=int, default=0, help="the first seed; rounds were chosen on 100 and 101")
    arguments.add_argument("--only", choices=("mnist", "adult"), help="a part")
    arguments.add_argument("--workers", type=int, default=2, help="processes in which silos train; the same figures")
    arguments.add_argument("--again", action="store_true", help="measure again what has been measured")
    arguments.add_argument("--data", type=Path, default=DATA, help="folder with mnist/ and adult/ in it")
    asked = arguments.parse_args()
    seeds, figures, details = range(asked.first, asked.first + asked.seeds), list[Criterion](), dict[str, object]()
    if asked.only != "adult":
        if not idx.there(asked.data / "mnist"):
            print(f"there is no mnist/ with MNIST's idx files in {asked.data}; give the folder with DATA=<folder>")
            return 1
        torch.set_num_threads(1)
        of_part, details["mnist"] = mnist.parts(asked.data / "mnist", seeds, asked.workers, again=asked.again)
        figures += of_part
    if asked.only != "mnist":
        of_part, details["adult"] = adult.parts(asked.data, seeds)
        figures += of_part
    return judge("local-global", figures, details)


if __name__ == "__main__":
    sys.exit(main())
