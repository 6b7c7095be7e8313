"""What a model is made of: its encoder, and what the heads read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from policies.documents import bounds
from policies.documents.about import About
from policies.documents.document import Closed
from policies.documents.sections.kinds import Positive


class Model(Closed):
    """An encoder phi with values in [-1, 1]^k / sqrt(k), so that ||phi|| <= 1, and one linear head per domain.

    Heads read the representation, and beside it the inputs and random features of them if the study says so
    (docs/design/heads.md, "What a head reads").

    An image passes through its own network. The output is put beside the features, and both enter the `hidden` layers
    and the projection to the representation. Architectures are names: the silo builds them from its own list
    (`silo_agent.learning`), and code never comes from outside.
    """

    encoder: Annotated[
        Literal["mlp", "cnn", "resnet18", "raw", "linear"],
        About(
            (
                "what turns a record into the representation; raw: nothing, the heads read the inputs;"
                " linear: one matrix, only for records declared public"
            ),
            comment="from a record to the representation; raw: nothing, the heads read the inputs",
            change=(
                "there are images, or fewer than some 30,000 patients: `raw`, with `random_features`"
                " ([when an encoder pays](docs/design/heads.md#when-an-encoder-pays))"
            ),
        ),
    ] = "mlp"
    """raw: no network; the heads read the inputs themselves, divided by a public number, and `representation` is their
    number. linear: a matrix times these, without biases and tanh; only for data declared public. mlp: a network on the
    inputs alone. cnn: a 3x3 convolution with GroupNorm and a halving per entry of `channels`. resnet18: ResNet-18 (He
    et al. 2016) with GroupNorm."""
    channels: Annotated[
        tuple[Annotated[int, Field(ge=4, le=512)], ...],
        Field(min_length=1, max_length=6),
        About(
            "convolutions of the cnn; each halves the image",
            comment="of the cnn's convolutions",
            unit="list of channels",
            change="images are large: add one",
            since="0.2",
        ),
    ] = (16, 32)
    hidden: Annotated[
        tuple[Annotated[int, Field(ge=1, le=4096)], ...],
        Field(max_length=8),
        About(
            "layers between inputs and representation; `[]` is one linear layer",
            comment="widths of layers before the representation",
            unit="list of widths",
            change="there are few patients: `[]` loses least",
        ),
    ] = (32,)
    representation: Annotated[
        int,
        Field(ge=1, le=256),
        About(
            "what a head sees of the encoder; heads release about k^2 / 2 numbers for each domain",
            comment="what a head sees; of raw, the number of inputs",
            unit="width, k",
            change="there are many inputs and patients; more width is more noise",
        ),
    ] = 16
    skip: Annotated[
        bool,
        About(
            "heads read the inputs too, beside the encoder's output",
            comment="the inputs stand beside the encoder's output",
            change="an encoder is trained on columns: `true`, always",
            since="0.6",
        ),
    ] = False
    """Whether heads read the inputs too, beside the encoder's output: first the k values of the representation, then
    the inputs, divided by a public number."""
    random_features: Annotated[
        int,
        Field(ge=0, le=256),
        About(
            (
                "so many public random features of the inputs, which heads read beside the inputs; with"
                " `encoder: raw` or `skip`. They cost no epsilon, but wider heads hold more noise"
            ),
            comment="public random features of the inputs, beside them",
            unit="number",
            change=(
                "the outcome hardly follows a straight line, and there are some 7,000 patients or more:"
                " 100. With a linear outcome they gain nothing"
            ),
            since="0.6",
        ),
    ] = 0
    """Public random features of the inputs, which heads read after the inputs themselves: cosines of random directions,
    made from `seed` and never trained. With `encoder: raw` or `skip`."""
    input_scale: Annotated[
        Literal["even", "counted"],
        About(
            (
                "the public number by which inputs that heads read are divided: even takes each number for a fifth of"
                " its bound; counted takes one from 0 to 1 for the yes or no that it is, and each input for absence for"
                " a fifth"
            ),
            comment="counted: numbers from 0 to 1 count as yes or no in what raw inputs are divided by",
            change="new studies with `encoder: raw`: `counted`",
            since="0.7",
        ),
    ] = "even"
    """What raw inputs are divided by, so that their norm is about 1. even: each number adds 1/5 to the square. counted:
    a number from 0 to 1, which is nearly always a yes or no, adds 1, and each input that says a number is absent
    1/5."""
    bias: Annotated[
        bool,
        About(
            "whether heads have a bias",
            comment="false: heads without an intercept",
            change="one of the inputs is constant, or the outcome is 0 where the inputs are",
            since="0.6",
        ),
    ] = True
    gain: Annotated[
        Positive,
        bounds.within(1e-6, 1e3),
        About(
            "scale of the last layer's first weights; the representation saturates above",
            comment="scale of the last layer's first weights",
            unit="factor",
            change="inputs hardly move the representation: raise it",
        ),
    ] = 1.0
    first_biases: Annotated[
        float,
        Field(ge=0, le=100),
        About(
            "spread of the hidden layers' first biases; with 0 the network is odd at first, and finds squares slowly",
            comment="of hidden layers: how far their first biases spread",
            unit="half-width",
            change="an encoder is trained: `1`",
            since="0.6",
        ),
    ] = 0.0
    """The hidden layers' first biases lie evenly between this and its negative. With 0 the network starts as an odd
    function of its inputs, and finds squares and products slowly."""
    start: Annotated[
        Literal["gram-schmidt", "hadamard"],
        About(
            (
                "how the public first weights are made orthogonal; hadamard: in integers, in a time that grows with"
                " their number"
            ),
            comment="how the public first weights are made orthogonal",
            change="a layer is wider than 500: `hadamard`, which takes seconds where the other takes minutes",
            since="0.7",
        ),
    ] = "gram-schmidt"
    seed: Annotated[
        int,
        Field(ge=0, lt=2**32),
        About(
            "the public first weights",
            comment="of the public first weights",
            unit="number",
            change="never for a better result: that would be a choice on private data",
        ),
    ]
    samples: Annotated[
        int,
        Field(ge=0, le=100),
        About(
            (
                "with `encoder.cmi`: a prediction is the mean over so many public draws of the"
                " representation, the same for every record ([FedSR](docs/design/terms.md#fedsr)); 0: it is"
                " taken at the mean. The personal model always predicts at the mean"
            ),
            comment="with encoder.cmi: draws over which a prediction is averaged",
            unit="draws",
            change="`20`, as in the paper, if patients of other hospitals are to be predicted",
            since="0.6",
        ),
    ] = 0
