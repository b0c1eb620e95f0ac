"""Measures beside dormancy, rank and hidden bias, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hadamard import HadamardLinear, diagnose
from hadamard.health import (
    Monitor,
    diagnose_together,
    entropy_rank,
    gradient_dormant,
    gradient_norm,
    ntk_rank,
    policy_churn,
    random_residuals,
    stable_rank,
    tau_dormant,
    update_ratio,
    value_churn,
    weight_norm,
    weights_of,
)
from hadamard.health.network import Chosen, choose


def test_tau_dormancy_does_not_depend_on_scale() -> None:
    # Mean absolute outputs 3, 1, 0.01 and 0: their mean is 1.0025, and a fortieth of it 0.0251.
    x = torch.tensor([[3.0, 1.0, 0.01, 0.0], [-3.0, 1.0, 0.01, 0.0]])
    for scale in (1.0, 1e-12, 1e12):
        assert tau_dormant(scale * x).tolist() == [False, False, True, True]
    assert tau_dormant(x, tau=0.0).tolist() == [False, False, False, True]
    assert tau_dormant(x, tau=0.999).tolist() == [False, True, True, True]
    assert tau_dormant(torch.zeros(3, 2)).tolist() == [True, True]


def test_a_network_of_small_activations_is_not_tau_dormant() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 2))
    net[0].weight.data.mul_(1e-3)
    net[0].bias.data.mul_(1e-3)
    (layer,) = diagnose(net, torch.randn(500, 6))
    assert layer.dormant_fraction == 1.0  # by the paper's rule, which depends on scale
    assert layer.tau_dormant_fraction < 0.1


def test_gradient_dormancy_of_rows_and_of_products() -> None:
    rows = torch.tensor([[4.0, -4.0], [0.0, 0.0], [0.1, 0.1], [3.9, -3.9]])  # mean 2, limit 0.05
    assert gradient_dormant(rows).tolist() == [False, True, False, False]
    # Two neurons of two branches: means of rows 0 and 2, and of rows 1 and 3.
    assert gradient_dormant(rows, neurons=2).tolist() == [False, False]
    rows[3] = 0.01
    assert gradient_dormant(rows, neurons=2).tolist() == [False, True]
    # Both outputs of a concatenated activation come from one row.
    assert gradient_dormant(rows, neurons=8).tolist() == [False, True, False, True]


def test_ranks_without_a_threshold() -> None:
    values = torch.tensor([4.0, 2.0, 2.0])
    g = torch.Generator().manual_seed(0)
    left, _ = torch.linalg.qr(torch.randn(50, 3, generator=g))
    right, _ = torch.linalg.qr(torch.randn(3, 3, generator=g))
    matrix = left * values @ right
    assert stable_rank(matrix) == pytest.approx(24 / 16)
    shares = np.array([0.5, 0.25, 0.25])
    assert entropy_rank(matrix) == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-5)
    assert stable_rank(torch.zeros(4, 3)) == entropy_rank(torch.zeros(4, 3)) == 0.0
    assert stable_rank(torch.ones(4, 3)) == pytest.approx(1.0)
    assert entropy_rank(1e-30 * torch.eye(5)) == pytest.approx(5.0)


def test_norms_and_ratios() -> None:
    weights = {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([2.0])}
    assert weight_norm(weights) == 3.0
    assert weight_norm([]) == 0.0
    assert weight_norm([torch.zeros(0, 4), torch.tensor([2.0])]) == 2.0
    assert gradient_norm([torch.tensor([3.0]), None, torch.tensor([4.0])]) == 5.0
    assert update_ratio(weights, {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([5.0])}) == 1.0
    assert update_ratio([torch.zeros(2)], [torch.zeros(2)]) == 0.0
    assert update_ratio([torch.zeros(2)], [torch.ones(2)]) == math.inf
    with pytest.raises(ValueError, match=r"tensors 0, \(2,\) and \(3,\)"):
        update_ratio([torch.zeros(2)], [torch.zeros(3)])


def test_churn() -> None:
    before = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0], [4.0, 0.0, 0.0]])
    after = before.clone()
    after[1] = torch.tensor([9.0, 2.0, 0.0])
    assert policy_churn(before, after) == 0.25
    assert policy_churn(before, before + 7) == 0.0  # the greedy actions stay
    values = torch.tensor([[0.0], [0.0], [6.0], [6.0]])  # standard deviation 3
    assert value_churn(values, values + 1.5) == 0.5
    assert value_churn(100 * values, 100 * values + 150) == 0.5
    assert value_churn(torch.ones(3, 1), torch.ones(3, 1)) == 0.0
    assert value_churn(torch.ones(3, 1), torch.zeros(3, 1)) == math.inf


def test_the_kernels_rank() -> None:
    assert ntk_rank(torch.eye(4)) == 4
    assert ntk_rank(torch.ones(4, 9)) == 1
    assert ntk_rank(torch.zeros(4, 9)) == 0
    # Eigenvalues 100 and 0.5: the first holds more than 99 %.
    assert ntk_rank(torch.tensor([[10.0, 0.0], [0.0, 0.5**0.5]])) == 1
    assert ntk_rank(1e30 * torch.eye(3)) == 3  # the squares would overflow


@pytest.mark.parametrize("kind", [nn.ReLU, nn.Tanh])
def test_the_kernels_rank_in_a_diagnosis(kind: type[nn.Module]) -> None:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 20), kind(), nn.Linear(20, 2))
    x = torch.randn(64, 3)
    rows = []
    for observation in x:
        net.zero_grad()
        net(observation).amax().backward()
        rows.append(torch.cat([p.grad.flatten() for p in net.parameters()]))  # type: ignore[union-attr]
    kernel = (torch.stack(rows) @ torch.stack(rows).T).double().numpy()
    values = np.linalg.svd(kernel, compute_uv=False)
    expected = len(values) - int((np.cumsum(values) >= 0.99 * values.sum()).sum()) + 1
    assert diagnose(net, x, measures="ntk").network["ntk_rank"] == expected
    # Of more observations, 64 at most are taken, evenly spaced.
    more = torch.stack([x, torch.randn(64, 3)], 1).flatten(0, 1)
    assert diagnose(net, more, measures="ntk").network["ntk_rank"] == expected


def test_the_gradient_is_that_of_the_loss() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        net[0].bias.zero_()
        net[2].weight.copy_(torch.tensor([[2.0, 5.0]]))
    x = torch.tensor([[1.0, 0.0], [3.0, 0.0]])  # outputs 2 and 6; the second neuron is dead

    def loss(network: nn.Module, inputs: Tensor) -> Tensor:
        return network(inputs).mean()

    report = diagnose(net, x, measures=["gradient"], loss=loss)
    # Mean input 2 times outgoing weight 2, its bias 2, and the mean of the first neuron's outputs.
    assert report.network["gradient_norm"] == pytest.approx((4**2 + 2**2 + 2**2) ** 0.5)
    assert report["1"].gradient_dormant_fraction == 0.5
    assert all(p.grad is None for p in net.parameters())
    assert diagnose(net, x)["1"].gradient_dormant_fraction is None


def test_random_residuals_are_those_of_a_regression() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    x = torch.randn(50, 3)
    directions = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    targets = net(x).detach() - nn.functional.normalize(directions, dim=1)

    def regression(network: nn.Module, inputs: Tensor) -> Tensor:
        return 0.5 * (network(inputs) - targets).square().sum(1).mean()

    one, other = (
        diagnose(net, x, measures="gradient", loss=loss).network["gradient_norm"]
        for loss in (random_residuals, regression)
    )
    assert one == pytest.approx(other, rel=1e-5)


def test_gradient_dormancy_finds_the_branches_of_a_product() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(HadamardLinear(4, 10), nn.Linear(10, 3))
    with torch.no_grad():
        net[0].affine.bias[[2, 12, 15]] = 30.0  # both factors of neuron 2, one of neuron 5
    report = diagnose(net, torch.randn(300, 4), measures="gradient", loss=random_residuals)
    # Neuron 2 gets no gradient; one factor of neuron 5 still does.
    assert report["0"].gradient_dormant_fraction == 0.1


@pytest.mark.parametrize("convolution", [False, True])
def test_changes_are_against_the_earlier_weights(convolution: bool) -> None:
    torch.manual_seed(0)
    first = nn.Conv2d(2, 3, 3) if convolution else nn.Linear(4, 3)
    x = torch.randn(40, 2, 5, 5) if convolution else torch.randn(40, 4)
    width = 27 if convolution else 3
    net = nn.Sequential(first, nn.Tanh(), nn.Flatten(), nn.Linear(width, 3))
    before, old = weights_of(net), net(x).detach()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    new = net(x).detach()
    report = diagnose(net, x, measures="update,churn", before=before)
    assert report.network["policy_churn"] == policy_churn(old, new) > 0
    assert report.network["value_churn"] == pytest.approx(value_churn(old, new), rel=1e-5)
    earlier = [before[name] for name, _ in net.named_parameters()]
    assert report.network["update_ratio"] == pytest.approx(update_ratio(earlier, net.parameters()))
    continuous = diagnose(net, x, measures="churn", before=before, discrete=False).network
    assert set(continuous) == {"weight_norm", "value_churn"}
    assert torch.equal(net(x).detach(), new)  # the network keeps its weights


def test_together_they_have_the_measures_that_they_have_alone() -> None:
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)) for _ in range(4)]
    inputs = torch.randn(4, 100, 4)
    before = [weights_of(net) for net in nets]
    for net in nets:
        net[2].weight.data += 0.3 * torch.randn(3, 16)
    chosen = choose("all", random_residuals)
    together = diagnose_together(nets, inputs, chosen=chosen, before=before)
    for net, x, old, report in zip(nets, inputs, before, together, strict=True):
        alone = diagnose(net, x, measures="all", loss=random_residuals, before=old)
        assert not isinstance(report, ValueError)
        assert dict(report.network) == pytest.approx(dict(alone.network), rel=1e-5)
        assert report[0].gradient_dormant_fraction == alone[0].gradient_dormant_fraction
    nets[1][2].weight.data.fill_(float("nan"))
    failed = diagnose_together(nets, inputs, chosen=Chosen(("ntk",)))
    assert [isinstance(report, ValueError) for report in failed] == [False, True, False, False]


def test_the_default_measures_and_nothing_else() -> None:
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    x = torch.randn(60, 4)
    report = diagnose(net, x)
    assert dict(report.network) == {"weight_norm": pytest.approx(weight_norm(net.parameters()))}
    samples = net[:2](x).detach()
    assert report["1"].stable_rank == pytest.approx(stable_rank(samples))
    assert report["1"].entropy_rank == pytest.approx(entropy_rank(samples))
    assert report["1"].tau_dormant == int(tau_dormant(samples).sum())
    row = report.to_dict()
    assert row["network"] == dict(report.network)
    assert row["layers"][0]["tau_dormant_fraction"] == report["1"].tau_dormant / 16


def test_a_monitor_compares_with_the_call_before() -> None:
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    x = torch.randn(30, 2)
    monitor = Monitor(net, every=4, path=None, measures="update,churn,gradient", loss=_mean)
    for call in range(1, 9):
        before = weights_of(net)
        net[2].weight.data += 0.1 * call
        report = monitor.step(x)
        if report is not None:
            expected = update_ratio(
                [before[n] for n, _ in net.named_parameters()], net.parameters()
            )
            # The copy was made at the call before, after that call's update.
            assert report.network["update_ratio"] == pytest.approx(expected)
            assert "policy_churn" in report.network
            assert "gradient_norm" in report.network
    monitor.step(x, step=20)  # a jump: the call before was not the one that was expected
    assert monitor.latest is not None
    assert "update_ratio" not in monitor.latest.network
    monitor.step(x, step=40)  # calls are 20 apart now, so the one at 20 was
    assert monitor.latest.network["update_ratio"] == 0.0


def _mean(network: nn.Module, inputs: Tensor) -> Tensor:
    return network(inputs).mean()


NET = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def test_wrong_choices_are_refused_before_anything_is_measured() -> None:
    for make in (lambda **o: Monitor(NET, path=None, **o), lambda **o: diagnose(NET, None, **o)):
        with pytest.raises(ValueError, match="unknown measure 'chrun'; did you mean 'churn'"):
            make(measures="gradient,chrun", loss=_mean)
        with pytest.raises(ValueError, match=r"'gradient' needs a loss: pass loss="):
            make(measures="gradient")
        with pytest.raises(ValueError, match="'ntk' is named twice"):
            make(measures=["ntk", "ntk"])
        with pytest.raises(TypeError, match="loss must be a function of the network .* got float"):
            make(measures="gradient", loss=0.5)
    with pytest.raises(ValueError, match="compares with earlier weights: pass before="):
        diagnose(NET, torch.randn(9, 4), measures="churn")
    with pytest.raises(ValueError, match="the earlier weights lack '0.weight' in the shape"):
        diagnose(NET, torch.randn(9, 4), measures="update", before={})


def test_losses_that_cannot_be_used() -> None:
    x = torch.randn(9, 4)
    with pytest.raises(ValueError, match=r"one number as a tensor, got \(9, 2\)"):
        diagnose(NET, x, measures="gradient", loss=lambda network, inputs: network(inputs))
    with pytest.raises(ValueError, match="does not depend on the network's weights"):
        diagnose(NET, x, measures="gradient", loss=lambda _, inputs: inputs.mean())
    with pytest.raises(ValueError, match="a gradient of the loss is not finite"):
        diagnose(NET, x, measures="gradient", loss=lambda n, i: n(i).mean() * float("nan"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tau_dormant(torch.zeros(4, 0)), "empty"),
        (lambda: tau_dormant(torch.full((4, 2), math.nan)), "NaN or infinite"),
        (lambda: tau_dormant(torch.ones(4, 2), tau=1.0), "tau must be at least 0 and below 1"),
        (lambda: stable_rank(torch.zeros(0, 3)), "batch of at least 2"),
        (lambda: entropy_rank(torch.full((3, 2), math.inf)), "NaN or infinite"),
        (lambda: gradient_dormant(torch.zeros(0, 3)), "a row of weights for each neuron"),
        (lambda: gradient_dormant(torch.zeros(3)), "a row of weights for each neuron"),
        (lambda: gradient_dormant(torch.ones(5, 1), neurons=2), "cannot be divided"),
        (lambda: gradient_dormant(torch.full((2, 2), math.nan)), "gradient holds NaN"),
        (lambda: policy_churn(torch.ones(4, 1), torch.ones(4, 1)), "two actions or more"),
        (lambda: policy_churn(torch.ones(4, 2), torch.ones(3, 2)), "of the same observations"),
        (lambda: value_churn(torch.ones(1, 2), torch.ones(1, 2)), "at least two observations"),
        (lambda: value_churn(torch.ones(2, 1), torch.full((2, 1), math.nan)), "outputs hold NaN"),
        (lambda: ntk_rank(torch.zeros(0, 3)), "not empty"),
        (lambda: ntk_rank(torch.full((2, 2), math.inf)), "jacobian holds NaN"),
    ],
)
def test_bad_tensors(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
