"""What a study asks of every silo's budget."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from policies.documents import bounds
from policies.documents.about import About
from policies.documents.document import Closed
from policies.documents.sections.kinds import Noise


class Privacy(Closed):
    """What the study asks of every silo's budget, in addition to the noise of each part."""

    delta: Annotated[
        float,
        Field(gt=0, lt=1e-2),
        bounds.within(1e-12, 1e-2),
        About(
            "at which epsilon is stated; well below 1 / patients, and at most the policies'",
            comment="at which epsilon is stated",
            unit="probability",
        ),
    ]
    mode: Annotated[
        Literal["local", "distributed", "none"],
        About(
            "who carries the noise of counts, heads and metrics",
            comment="who carries the noise: each silo all of it, or all together",
            change="`distributed` gives better models; `none` is for published data",
        ),
    ]
    """Who carries the noise of head, count and metric sums, and of the encoder's sealed steps (docs/design/noise.md,
    "Distributed noise"). The noise of an encoder's update is always local. `none`: no noise anywhere, for data that
    every silo's policy declares public; everything is sealed all the same."""
    colluders: Annotated[
        int,
        Field(ge=0, le=1000),
        About(
            "how many may pool what they know with the coordinator",
            comment="silos that may pool what they know with the coordinator",
            unit="silos",
        ),
    ] = 1
    """t: silos that may share what they know with the coordinator. Recovery from a dropout needs more shares than they
    hold, and distributed noise protects against them."""
    count_noise: Annotated[
        Noise,
        About(
            "noise of the patients by domain; 20 is nearly free",
            comment="deviation of the patients by domain",
            unit="deviation at sensitivity 1",
            change="domains are small and weights matter",
        ),
    ]
    max_patients: Annotated[
        int,
        Field(ge=1, le=10_000_000),
        About(
            "public bound of every sum, and of memory",
            comment="public bound on one silo's patients",
            unit="patients of one silo",
            change="a hospital has more",
        ),
    ] = 100_000
    """Public bound on the number of patients of one silo. Statistics are clamped to the range that it implies, never
    refused."""
    smallest_domain: Annotated[
        int,
        Field(ge=0, le=10_000_000),
        About(
            "a domain with fewer, by the noised sums, keeps the pooled head and gets no figure",
            comment="a domain with fewer, by noised sums, gets no head and no figure of its own",
            unit="patients",
            change="a policy asks for it",
            since="0.3",
        ),
    ] = 0
    """Least number of patients, by the opened and noised sums of all silos, with which a domain gets its own results.
    Below it, the head stays where the pooled rounds left it, and no figure of the domain is reported."""
