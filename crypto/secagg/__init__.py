"""Secure aggregation: a roster agrees on keys, seals its contributions and opens nothing but their sum.

The room holds keys (`agreement`, `packages`), masks (`masks`, `labels`), who covers whom (`circle`), sealing and
opening (`sealing`, `layout`, `checks`), and dropouts (`dealt`, `unmasking`, `survivors`, `voids`, `holding`, `words`),
after Bonawitz et al., CCS 2017.
"""

__all__ = [
    "agreement",
    "blame",
    "circle",
    "dealt",
    "holding",
    "labels",
    "layout",
    "masks",
    "packages",
    "sealing",
    "spoilt",
    "survivors",
    "unmasking",
    "voids",
    "words",
]
