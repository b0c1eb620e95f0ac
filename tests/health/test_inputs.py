"""What a network is run on, what its modules return, and which call of a module is which."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hadamard import diagnose, mark
from hadamard.health import dormant, effective_rank, hidden_bias
from hadamard.health.dormant import Kind
from tests.support.health import sick_network

WITH_JAX = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="jax is not installed"
)
OWN_PROCESS = pytest.mark.own_process


def test_numpy_arrays_are_inputs() -> None:
    net, x = sick_network(), np.random.default_rng(0).standard_normal((50, 6))
    expected = diagnose(net, torch.as_tensor(x, dtype=torch.float32)).to_dict()
    for inputs in (x, (x,), [x], {"input": x}, np.asfortranarray(x)):
        assert diagnose(net, inputs).to_dict() == expected
    assert diagnose(net.double(), x)["1"].samples == 50
    pixels = np.random.default_rng(0).integers(0, 255, (50, 6), np.uint8)
    with pytest.raises(RuntimeError):  # integers stay integers, which a linear layer refuses
        diagnose(sick_network(), pixels)
    with pytest.raises(TypeError, match="an array of <U3 is no observation"):
        diagnose(net, np.array(["abc"]))


class Camera(nn.Module):
    """Its observation is a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.speed = nn.Linear(9, 4), nn.Linear(2, 4)

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        image, speed = observation["image"].flatten(1), observation["speed"]
        return F.relu(self.image(image) + self.speed(speed))


def test_a_dict_is_one_argument_if_asked_for() -> None:
    net = Camera()
    pixels = np.random.default_rng(0).random((20, 3, 3))
    x = {"image": pixels, "speed": torch.randn(20, 2)}
    report = diagnose(net, x, dict_as="positional")
    assert (report[0].neurons, report[0].samples) == (4, 20)
    assert report.to_dict() == diagnose(net, (x,)).to_dict()
    assert report.to_dict() == diagnose(net, {"observation": x}).to_dict()  # keyword arguments
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        diagnose(Camera(), x)
    with pytest.raises(ValueError, match="dict_as must be 'keywords' or 'positional', got 'whole'"):
        diagnose(Camera(), x, dict_as="whole")


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.Module] = nn.LSTM, **options: Any) -> None:
        super().__init__()
        self.body, self.head = cell(5, 8, **options), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0])


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("batch_first", [True, False])
def test_the_output_of_a_recurrent_layer_is_a_representation(
    cell: type[nn.Module], batch_first: bool
) -> None:
    net, x = Recurrent(cell, batch_first=batch_first), torch.randn(30, 7, 5)
    (layer,) = diagnose(net, x)
    assert (layer.name, layer.kind, layer.neurons) == ("body.output", "tanh", 8)
    assert layer.samples == 210
    assert layer.readers == ("head",)
    z = net.body(x)[0].flatten(0, 1)
    assert layer.effective_rank == effective_rank(z)


def test_the_state_of_an_lstm_by_name() -> None:
    net, x = Recurrent(num_layers=2, batch_first=True), torch.randn(30, 7, 5)
    names = [layer.name for layer in diagnose(net, x, layers="body")]
    assert names == ["body.output", "body.hidden", "body.cell"]
    (cell,) = diagnose(net, x, layers="body.cell")
    assert (cell.name, cell.neurons, cell.samples) == ("body.cell", 16, 30)
    _, (_, c) = net.body(x)
    assert cell.effective_rank == effective_rank(torch.cat(list(c), dim=1))
    with pytest.raises(TypeError, match="body has no output 'sell'; it has: output, hidden, cell"):
        diagnose(net, x, layers="body.sell")
    with pytest.raises(ValueError, match="no layer is called 'bdy.cell'"):
        diagnose(net, x, layers="bdy.cell")


def test_cells_are_representations_too() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.gru = nn.LSTMCell(5, 8), nn.GRUCell(8, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.gru(self.lstm(x)[0])

    names = [layer.name for layer in diagnose(Steps(), torch.randn(20, 5))]
    assert names == ["lstm.hidden", "lstm.cell", "gru"]


def test_attention_by_name() -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor, weights: bool = True) -> Tensor:
            return self.attention(x, x, x, need_weights=weights)[0]

    net, x = Attending(), torch.randn(10, 5, 8)
    names = [layer.name for layer in diagnose(net, x, layers="attention")]
    assert names == ["attention.output", "attention.weights"]
    (layer,) = diagnose(net, {"x": x, "weights": False}, layers="attention")
    assert (layer.name, layer.neurons) == ("attention.output", 8)


@dataclasses.dataclass
class Latent:
    mean: Tensor
    count: int


Pair = namedtuple("Pair", "first second")


@pytest.mark.parametrize(
    ("returned", "names"),
    [
        (lambda z: {"mean": z, "count": 3}, ["body.mean"]),
        (lambda z: Latent(z, 3), ["body.mean"]),
        (lambda z: Pair(z, 2 * z), ["body.first", "body.second"]),
        (lambda z: (z, None, -z, z.argmax()), ["body.0", "body.2"]),
    ],
)
def test_named_outputs_of_any_module(returned: Any, names: list[str]) -> None:
    class Body(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return returned(x.tanh())

    net = nn.Sequential()
    net.body = mark(Body())
    assert [layer.name for layer in diagnose(net, torch.randn(20, 4))] == names


class ActorCritic(nn.Module):
    """One encoder, registered in two networks."""

    class Part(nn.Module):
        def __init__(self, encoder: nn.Module, outputs: int) -> None:
            super().__init__()
            self.encoder, self.head = encoder, nn.Linear(8, outputs)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.encoder(x))

    def __init__(self) -> None:
        super().__init__()
        encoder = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
        self.actor, self.critic = self.Part(encoder, 2), self.Part(encoder, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(x), self.critic(-x)


def test_calls_of_one_module_are_told_apart_by_the_caller() -> None:
    names = [layer.name for layer in diagnose(ActorCritic(), torch.randn(30, 4))]
    assert names == ["actor.encoder.1 (in actor)", "actor.encoder.1 (in critic)"]


def test_calls_of_one_module_are_told_apart_by_what_comes_before() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.act = nn.Linear(4, 8), nn.Linear(8, 6), nn.Tanh()

        def forward(self, x: Tensor) -> Tensor:
            return self.act(self.second(self.act(self.first(x))))

    report = diagnose(Net(), torch.randn(30, 4))
    assert [layer.name for layer in report] == ["act (after first)", "act (after second)"]
    assert [layer.neurons for layer in report] == [8, 6]
    assert report["act (after first)"].readers == ("second",)


@pytest.mark.parametrize("kind", ["tanh", "relu"])
@pytest.mark.parametrize("library", ["numpy", pytest.param("jax", marks=[WITH_JAX, OWN_PROCESS])])
def test_measures_take_arrays(kind: Kind, library: str) -> None:
    z = F.relu(torch.randn(200, 12)) if kind == "relu" else torch.tanh(torch.randn(200, 12))
    z[:, :3] = 0
    array: Any = z.numpy().copy()
    array.flags.writeable = False
    if library == "jax":
        array = importlib.import_module("jax.numpy").asarray(array)
    expected, result = dormant(z, kind), dormant(array, kind)
    assert torch.equal(result.mask, expected.mask)
    assert result.mask[:3].all()
    assert effective_rank(array) == effective_rank(z)
    layer = nn.Linear(12, 4)
    split = hidden_bias(array, layer, result.mask.numpy())
    torch.testing.assert_close(split.live, hidden_bias(z, layer, expected.mask).live)
