"""Which representations are captured, and that capturing does not change the network."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hadamard import diagnose, mark
from hadamard.health import effective_rank
from tests.support.health import nature_cnn, sick_network


def test_activation_functions_are_captured_too() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.head = nn.Linear(5, 8), nn.Linear(8, 7), nn.Linear(7, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = F.relu(self.fc1(x))
            return self.head(torch.tanh(self.fc2(h)))

    net, x = Net(), torch.randn(50, 5)
    report = diagnose(net, x)
    assert [layer.name for layer in report] == ["fc1:relu", "fc2:tanh"]
    assert [layer.kind for layer in report] == ["relu", "tanh"]
    assert [layer.readers for layer in report] == [("fc2",), ("head",)]
    z = torch.tanh(net.fc2(F.relu(net.fc1(x))))
    assert report[1].effective_rank == effective_rank(z)


def test_activation_functions_are_captured_beside_modules() -> None:
    """A function inside an activation module is a part of it; one after the module is not."""

    class Scaled(nn.Module):
        dormancy_kind = "tanh"

        def forward(self, x: Tensor) -> Tensor:
            return 2 * torch.tanh(x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.act, self.fc2 = nn.Linear(5, 8), Scaled(), nn.Linear(8, 7)

        def forward(self, x: Tensor) -> Tensor:
            h = F.relu(self.fc2(self.act(self.fc1(x))))
            return torch.sigmoid(self.act(h))

    report = diagnose(Net(), torch.randn(50, 5))
    assert [layer.name for layer in report] == [
        *("act (after fc1)", "fc2:relu", "act (after fc2:relu)", "act:sigmoid")
    ]
    assert [layer.readers for layer in report] == [("fc2",), (), (), ()]


def test_only_marked_modules_are_measured_if_there_are_any() -> None:
    net = sick_network()
    net = nn.Sequential(mark(net[:2], kind="tanh"), net[2:])
    assert [layer.name for layer in diagnose(net, torch.randn(20, 6))] == ["0"]
    encoder = mark(nn.Sequential(nn.Linear(4, 8), nn.Tanh()))
    assert diagnose(encoder, torch.randn(20, 4))[0].neurons == 8
    with pytest.raises(ValueError, match="kind must be"):
        mark(encoder, kind="gelu")


def test_layers_are_chosen_by_name_pattern_or_predicate() -> None:
    net, x = sick_network(), torch.randn(20, 6)
    assert [layer.name for layer in diagnose(net, x, layers="3")] == ["3"]
    assert [layer.name for layer in diagnose(net, x, layers=["1", "[34]"])] == ["1", "3", "4"]
    linear = diagnose(net, x, layers=lambda name, module: isinstance(module, nn.Linear))
    assert [layer.name for layer in linear] == ["0", "2", "4"]


def test_readers_are_found_only_where_the_layout_matches() -> None:
    class Rearranged(nn.Module):
        """(batch, channels, length) is transposed to (batch, length, channels)."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act, self.fc = nn.Conv1d(3, 5, 3), nn.Tanh(), nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.act(self.conv(x)).transpose(1, 2))

    layer = diagnose(Rearranged(), torch.randn(20, 3, 12))["act"]
    assert layer.readers == ()
    assert layer.hidden_bias_share is None
    assert str(diagnose(Rearranged(), torch.randn(20, 3, 12))).splitlines()[3].endswith("-")

    x = torch.rand(20, 4, 84, 84)
    net = nature_cnn()
    expected = diagnose(net, x)["2"]
    net, x = (value.to(memory_format=torch.channels_last) for value in (net, x))
    layer = diagnose(net, x)["2"]
    assert layer.readers == ("4",)  # Flatten copies here
    assert layer.live_contribution == pytest.approx(expected.live_contribution, rel=1e-4)


def test_later_in_place_changes_have_no_effect() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.act = nn.Linear(4, 8), nn.Tanh()

        def forward(self, x: Tensor) -> Tensor:
            z = self.act(self.fc(x))
            z.zero_()
            return z

    assert diagnose(Net(), torch.randn(30, 4))["act"].dead == 0


def test_a_module_called_twice_is_measured_twice() -> None:
    class Twins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.act = nn.Linear(4, 4), nn.Tanh()

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.act(self.fc(x)) + self.act(self.fc(self.act(self.fc(y))))

    x = torch.randn(30, 4)
    for inputs in ((x, x), {"x": x, "y": x}):
        names = [layer.name for layer in diagnose(Twins(), inputs)]
        assert names == ["act (after fc)", "act (after fc) (call 2)", "act (after fc) (call 3)"]


class Noisy(nn.Module):
    """Everything a diagnosis could change: dropout, running statistics, random state, modes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm, self.act = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU()
        self.drop, self.frozen = nn.Dropout(), nn.BatchNorm1d(8).eval()
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        z = self.act(self.norm(self.fc(x))) + torch.rand(8)
        return self.head(self.frozen(self.drop(z)))


def hook_count(net: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules())


def test_a_diagnosis_does_not_change_the_network() -> None:
    net, x = Noisy(), torch.randn(40, 6, requires_grad=True)
    before, modes = copy.deepcopy(net.state_dict()), [m.training for m in net.modules()]
    state = torch.get_rng_state()
    diagnose(net, x)
    assert hook_count(net) == 0
    assert [m.training for m in net.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    for key, value in net.state_dict().items():
        assert torch.equal(value, before[key]), key
    assert x.grad is None
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_operators_of_higher_order_are_run() -> None:
    """Attention by a function of the scores, which torch does not run under every mode."""
    attention = pytest.importorskip("torch.nn.attention.flex_attention")

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.head = nn.Linear(6, 8), nn.Linear(8, 2)

        def attend(self, h: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(h, h, h)

        def forward(self, x: Tensor) -> Tensor:
            h = self.fc(x).view(1, 1, -1, 8)
            return self.head(torch.tanh(self.attend(h)[0, 0]))

    class Flexible(Plain):
        def attend(self, h: Tensor) -> Tensor:
            out: Tensor = attention.flex_attention(h, h, h)
            return out

    net, plain, x = Flexible(), Plain(), torch.randn(40, 6)
    plain.load_state_dict(net.state_dict())
    (layer,), (expected,) = diagnose(net, x), diagnose(plain, x)
    assert layer.readers == ("head",)
    assert layer.live_contribution == pytest.approx(expected.live_contribution, rel=1e-5)


def test_hooks_and_modes_are_restored_after_an_exception() -> None:
    net = Noisy().train()
    modes = [m.training for m in net.modules()]
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        diagnose(net, torch.randn(40, 5))
    with pytest.raises(ValueError, match=r"activations of act hold \d+ NaN"):
        diagnose(net, torch.full((40, 6), float("nan")))
    with pytest.raises(ValueError, match="batch of at least 2 observations, got 1"):
        diagnose(net, torch.randn(1, 6))
    assert hook_count(net) == 0
    assert [m.training for m in net.modules()] == modes
    # The function mode is no longer active.
    assert torch.tanh(torch.zeros(1)).item() == 0


def test_compiled_low_precision_and_autocast_networks() -> None:
    net, x = sick_network(), torch.randn(64, 6)
    expected = diagnose(net, x)
    compiled = diagnose(torch.compile(net), x)
    assert compiled.to_dict() == expected.to_dict()
    low = diagnose(copy.deepcopy(net).bfloat16(), x.bfloat16())
    assert low["3"].dormant >= 10
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert diagnose(net, x)["3"].dormant >= 10
