"""FedAvg: encoder and one head for all are trained together and averaged; or a head for each domain."""

from __future__ import annotations

from policies.documents.recipes.composition import Composition

FEDAVG = Composition("fedavg", "McMahan et al. 2017", heads="averaged", one_head=True)
MULTI_HEAD_FEDAVG = Composition("multi-head-fedavg", "FedDAR, ICLR 2023, Table 2", heads="averaged")
