"""The shared encoder phi: from a record's d inputs, its image or both, to R^k. Its architectures are on a fixed list.

Guarantees a public bound of what heads read, `norm_bound`, for every input and all weights: phi is at most 1 long by
its last layer tanh(.) / sqrt(k), and inputs and random features (`beside`) are as long as their ranges imply. A linear
encoder alone has no such bound, unless its rows are orthonormal; it is for public data only. Nothing
is clamped to a shorter norm: that was measured to destroy information, and the clip of a record's term bounds the
release anyway. The start is a pure function of the public seed, bit-identical on every platform.
`dpsgd.training` trains the encoder.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from policies.documents.study import DataSchema, Model
from policies.plan import architectures
from silo_agent.data.images import Images
from silo_agent.data.inputs import Inputs
from silo_agent.learning.encoder import image_networks
from silo_agent.learning.encoder.draws import public_draws
from silo_agent.learning.encoder.first_weights import even, orthogonal
from silo_agent.learning.encoder.random_features import Beside, longest, raw_scale

# Whoever lends a model's memory (`view`) may not write to it. Nobody does: what is not trained is only read and copied.
warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)

MIN_DEVIATION = 1e-3
"""Added to every deviation, because noise may push a raw deviation far down and a KL term must stay finite."""
_ROWS = 65_536
_MAP_VALUES = 1 << 24
"""Most values of the largest map of one chunk of images: 64 MiB of float32."""


class Encoder(nn.Module):
    """Linear/Tanh stack on records and image features: phi = tanh(a(x)) / sqrt(k), and beside it what heads read too.

    Stochastic (FedSR): a ~ N(mean(x), deviation(x)^2). The map from a to phi is one-to-one, so the KL divergence of
    FedSR's q(z|x) from r(z|y) equals that of the Gaussians of a. If nothing is drawn, phi is taken at the mean.
    Predictions are averaged over the public `draws`, if a study wants any. An image goes through `image_network` first;
    its features follow the record's inputs. A new encoder is all zeros; `build_encoder` gives one at the common start.
    """

    def __init__(self, model: Model, data: DataSchema, *, stochastic: bool) -> None:
        super().__init__()
        self.representation = model.representation
        self.stochastic = stochastic
        self.scale = raw_scale(data, model.input_scale) if model.encoder in {"raw", "linear"} else None
        """What raw inputs, or their linear map, are divided by; None if there is a network."""
        self.beside = Beside(model, data)
        self.draws = torch.from_numpy(public_draws(model.seed, model.samples, model.representation))
        """Standard normals (S, k) that predictions are averaged over, the same for every record; S is 0 if a prediction
        is taken at the mean."""
        own = 1.0 if self.scale is None else longest(data) / self.scale
        self.norm_bound = math.hypot(own, self.beside.norm_bound)
        self.width = model.representation + self.beside.width
        """Number of values that a head reads: the k of phi, then those beside it."""
        self.row = self.width + model.bias
        """Weights in one row of a head."""
        self.image_network: nn.Module | None = None
        self.image: tuple[int, int, int] | None = None
        """Channels, height and width of an image, if any is read."""
        self.largest_map = 0
        """Values of the largest map that one image becomes; 0 if no image is read."""
        pixels = 0
        if data.image is not None:
            self.image_network = image_networks.build_image_network(model, data.image)
            self.image = data.image.channels, data.image.height, data.image.width
            self.largest_map = architectures.widest(model, data.image)
            pixels = architectures.features(model, data.image)
        widths = (data.inputs + pixels, *model.hidden, model.representation * (2 if stochastic else 1))
        if model.encoder == "raw":
            widths = ()
        layers: list[nn.Module] = []
        for width, following in pairwise(widths):
            # The meta device has no storage, so torch does not draw a random start that nobody uses.
            layers += [nn.Linear(width, following, bias=model.encoder != "linear", device="meta"), nn.Tanh()]
        self.layers = nn.Sequential(*layers[:-1])
        for layer in self.layers:
            # `to_empty` would load sympy to find the shapes, which costs half a second in every silo.
            for name, parameter in list(layer.named_parameters()):
                setattr(layer, name, nn.Parameter(torch.zeros(parameter.shape)))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()

    def moments(self, x: torch.Tensor, images: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Mean (n, k) of a, and its deviation (n, k) > 0, or None if the encoder is not stochastic.

        `x` (n, d), d may be 0; `images` (n, c, h, w) exactly if the study has images. Raises ValueError otherwise.
        """
        out: torch.Tensor = self.layers(torch.cat(self._joined(x, images), dim=1))
        return self._split(out)

    def layered(self, x: torch.Tensor, images: torch.Tensor | None = None) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return what `forward` does, and the outputs of the layers below, from the last down (n, w) each.

        These are the hidden layers after their tanh, and at the end the image network. With encoder raw there are none.
        """
        joined = self._joined(x, images)
        outputs, passed = joined[1:], torch.cat(joined, dim=1)
        for layer in self.layers:
            passed = layer(passed)
            if isinstance(layer, nn.Tanh):
                outputs.append(passed)
        return self.read(self._split(passed)[0], x), outputs[::-1]

    def _joined(self, x: torch.Tensor, images: torch.Tensor | None) -> list[torch.Tensor]:
        if (images is None) != (self.image_network is None):
            msg = "this study's records have images: give them" if images is None else "this study reads no images"
            raise ValueError(msg)
        return [x] if self.image_network is None else [x, self.image_network(images)]

    def _split(self, out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        if not self.stochastic:
            return out, None
        deviation = functional.softplus(out[:, self.representation :]) + MIN_DEVIATION
        return out[:, : self.representation], deviation

    def squash(self, a: torch.Tensor) -> torch.Tensor:
        """Return phi for the values a."""
        if self.scale is not None:
            return a / self.scale
        return torch.tanh(a) / math.sqrt(self.representation)

    def read(self, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return what a head reads, (n, `width`): phi for the values a, then what stands beside it for the inputs."""
        phi = self.squash(a)
        return torch.cat([phi, self.beside(x)], dim=1) if self.beside.width else phi

    def forward(self, x: torch.Tensor, images: torch.Tensor | None = None) -> torch.Tensor:
        """Return what a head reads, (n, `width`), at the mean of a."""
        return self.read(self.moments(x, images)[0], x)

    def to_predict(self, x: torch.Tensor, images: torch.Tensor | None = None) -> torch.Tensor:
        """Return what a head reads of a record whose outcome is predicted: (n, S, `width`), once for every draw.

        The prediction is the mean of the S probabilities. With S = 0 it is (n, `width`), as `forward` gives it.
        """
        mean, deviation = self.moments(x, images)
        if deviation is None or not len(self.draws):
            return self.read(mean, x)
        drawn = mean[:, None, :] + deviation[:, None, :] * self.draws.to(mean)
        rows, samples, values = drawn.shape
        beside = x[:, None, :].expand(-1, samples, -1).reshape(rows * samples, x.shape[1])
        return self.read(drawn.reshape(rows * samples, values), beside).reshape(rows, samples, self.width)

    def extra_repr(self) -> str:
        """Name what has no layer of its own, so that networks which compute alike print alike."""
        return f"row={self.row}, beside={self.beside}, samples={len(self.draws)}"


def build_encoder(model: Model, data: DataSchema, *, stochastic: bool) -> Encoder:
    """An encoder at the common start, from `model.seed`: the image network's start, then orthogonal weights.

    `model.start` says how these are made (`first_weights`). The hidden layers' biases are even in
    +-`model.first_biases`, all others 0.

    The last layer's weights are orthogonal times `model.gain`. In the layer that joins image and record, each of the
    two has its own orthogonal weights. In one common matrix, the many image features would leave almost no weight for
    the few inputs.
    """
    encoder = Encoder(model, data, stochastic=stochastic)
    linears = [layer for layer in encoder.layers if isinstance(layer, nn.Linear)]
    generator = np.random.PCG64(model.seed)
    if encoder.image_network is not None:
        image_networks.start(encoder.image_network, generator)
    with torch.no_grad():
        for layer in linears:
            last = layer is linears[-1]
            # The deviations' weights start at zero. If means and deviations shared the orthogonal rows, the rows of the
            # means alone would not be orthogonal, and information of the inputs would be lost.
            rows = model.representation if last else layer.out_features
            blocks = (layer.in_features,) if layer is not linears[0] else (data.inputs, layer.in_features - data.inputs)
            start = orthogonal(generator, rows, blocks, model.start) * (model.gain if last else 1.0)
            layer.weight[:rows].copy_(torch.from_numpy(start.astype(np.float32)))
            if model.first_biases and not last:
                biases = model.first_biases * even(generator, layer.out_features)
                layer.bias.copy_(torch.from_numpy(biases.astype(np.float32)))
    return encoder


def features(
    encoder: Encoder,
    inputs: NDArray[np.float32] | Inputs,
    images: Images | None = None,
    device: torch.device | str = "cpu",
    *,
    rows: int | None = None,
    to_predict: bool = False,
) -> torch.Tensor:
    """Return what heads read of all rows, float32 (n, `width`) on `device`, without gradients. The encoder is moved.

    With `to_predict` it is what they read for a prediction, (n, S, `width`) if it is averaged over S draws. With
    `rows`, the network always sees exactly so many: the last chunk is filled up with zeros
    (`learning.steady_features`).
    """
    return torch.cat(list(feature_parts(encoder, inputs, images, device, rows=rows, to_predict=to_predict)))


def feature_parts(
    encoder: Encoder,
    inputs: NDArray[np.float32] | Inputs,
    images: Images | None = None,
    device: torch.device | str = "cpu",
    *,
    rows: int | None = None,
    to_predict: bool = False,
) -> Iterator[torch.Tensor]:
    """The same in chunks of rows, at least one, so memory is bounded for any n. Large maps make small chunks."""
    encoder = encoder.to(device)
    read = encoder.to_predict if to_predict else encoder
    chunk = rows or most_rows(encoder)
    if images is not None:
        images.expect(slice(None))
    for start in range(0, max(len(inputs), 1), chunk):
        part = slice(start, start + chunk)
        x, pixels = torch.tensor(inputs[part], device=device), None
        count = len(x)
        if images is not None:
            pixels = torch.from_numpy(images.take(part)).to(device)
        if rows is not None:
            x, pixels = _filled(x, rows), None if pixels is None else _filled(pixels, rows)
        with torch.no_grad():
            features = read(x, pixels)[:count]
        yield features


def most_rows(encoder: Encoder) -> int:
    """How many records an encoder may read at once, so that no map takes more than 64 MiB: at least 1."""
    largest = max(encoder.largest_map, len(encoder.draws) * encoder.width, 1)
    return max(1, min(_ROWS, _MAP_VALUES // largest))


def _filled(values: torch.Tensor, rows: int) -> torch.Tensor:
    whole = values.new_zeros((rows, *values.shape[1:]))
    whole[: len(values)] = values
    return whole


def flatten(module: nn.Module) -> NDArray[np.float32]:
    """All parameters as one vector, in the order of `named_parameters` (layer by layer, weight before bias)."""
    parts = [parameter.detach().cpu().numpy().ravel() for _, parameter in module.named_parameters()]
    return np.concatenate([np.zeros(0, np.float32), *parts]).astype(np.float32, copy=False)


def unflatten(module: nn.Module, vector: NDArray[np.float32]) -> None:
    """Inverse of `flatten`, in place. Raises ValueError for another length."""
    with torch.no_grad():
        for parameter, part in _parts(module, vector):
            parameter.copy_(torch.tensor(part, dtype=torch.float32))


def view(module: nn.Module, vector: NDArray[np.float32]) -> None:
    """The same without a copy: the parameters lie in the vector's memory, and are not trained.

    Raises ValueError for another length.
    """
    for parameter, part in _parts(module, vector):
        parameter.requires_grad = False
        parameter.set_(torch.from_numpy(part))  # type: ignore[call-overload]


def _parts(module: nn.Module, vector: NDArray[np.float32]) -> Iterator[tuple[nn.Parameter, NDArray[np.float32]]]:
    parameters = list(module.parameters())
    if vector.shape != (sum(parameter.numel() for parameter in parameters),):
        msg = f"{sum(parameter.numel() for parameter in parameters)} weights were expected, {vector.shape} came"
        raise ValueError(msg)
    start = 0
    for parameter in parameters:
        yield parameter, vector[start : start + parameter.numel()].reshape(parameter.shape)
        start += parameter.numel()
