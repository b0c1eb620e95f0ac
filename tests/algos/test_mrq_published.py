"""MR.Q reproduces the published updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hadamard.algos.mrq import MRQ, NET, Config
from hadamard.compute.jit import jit
from hadamard.core.config import RunSpec, TrainSpec
from hadamard.core.types import EnvSpec
from hadamard.learning.distributions import TwoHot
from hadamard.nets.mrq import Widths
from tests.support.golden import arrays


@pytest.fixture(params=["state", "pixels"])
def golden(request: pytest.FixtureRequest) -> dict[str, Tensor]:
    stored = arrays(f"mrq_updates_{request.param}")
    return {name: torch.from_numpy(array) for name, array in stored.items()}


def inside(golden: Mapping[str, Tensor], folder: str) -> dict[str, Tensor]:
    start = f"{folder}/"
    return {k.removeprefix(start): v for k, v in golden.items() if k.startswith(start)}


def translated(
    encoder: dict[str, Tensor], policy: dict[str, Tensor], value: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Return published weights with our names; we split two maps and join the two values."""
    names = {
        "state_action.action": "za",
        "state_action.hidden": "zsa.l2",
        "state_action.zsa.layer.affine": "zsa.l3",
    }
    if "zs_lin.weight" in encoder:
        names |= {f"state.layers.{i}.affine": f"zs_cnn{i + 1}" for i in range(4)}
        names["state.layers.4.layer.affine"] = "zs_lin"
    else:
        names |= {f"state.layers.{i}.affine": f"zs_mlp.l{i + 1}" for i in range(2)}
        names["state.layers.2.layer.affine"] = "zs_mlp.l3"
    weights: dict[str, Tensor] = {}
    for kind in ("weight", "bias"):
        weights |= {f"encoder.{a}.{kind}": encoder[f"{b}.{kind}"] for a, b in names.items()}
        for i, layer in enumerate(("first", "second", "action"), start=1):
            weights[f"policy.{layer}.{kind}"] = policy[f"policy.l{i}.{kind}"]
        model = encoder[f"model.{kind}"]
        weights[f"encoder.next_state.{kind}"] = model[1:25]
        weights[f"encoder.outcome.{kind}"] = torch.cat([model[:1], model[25:]])
    first = encoder["zsa.l1.weight"]
    weights["encoder.state_action.from_state.weight"] = first[:, :24]
    weights["encoder.state_action.from_action.weight"] = first[:, 24:]
    weights["encoder.state_action.from_action.bias"] = encoder["zsa.l1.bias"]
    values = {f"hidden.{i}": f"q1.l{i + 1}" for i in range(3)} | {"value": "q2"}
    for layer, published in values.items():
        pair = [value[f"q{q}.{published}.weight"].T for q in (1, 2)]
        weights[f"values.{layer}.weight"] = torch.stack(pair)
        biases = [value[f"q{q}.{published}.bias"][None] for q in (1, 2)]
        weights[f"values.{layer}.bias"] = torch.stack(biases)
    return weights


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_published_updates_are_reproduced(
    golden: dict[str, Tensor], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target_device, tolerance = torch.device(device), 1e-6 if device == "cpu" else 1e-5
    golden = {name: tensor.to(target_device) for name, tensor in golden.items()}
    states = golden["encoder0/states"]
    pixels = states.dtype == torch.uint8
    env = EnvSpec(tuple(states.shape[2:]), states.dtype, frames=3 if pixels else 1, action_size=3)
    small = Widths(action=12, state_action=20, encoder=16, value=18, policy=14)
    monkeypatch.setattr(Widths, "from_hidden", lambda hidden: small)
    agent = MRQ(
        env,
        RunSpec(algo=Config(), net=replace(NET, width=24), train=TrainSpec(steps=99)),
        target_device,
    )
    parts = {name: inside(golden, f"start/{name}") for name in ("encoder", "policy", "value")}
    agent.network.load_state_dict(translated(**parts))
    targets = [inside(golden, f"start/{name}_target") for name in ("encoder", "policy", "value")]
    agent.target.load_state_dict(translated(*targets))
    now, before = golden["reward_scales"].tolist()
    agent.state.reward_scale.fill_(now)
    agent.state.target_reward_scale.fill_(before)
    agent.state.ended.fill_(not pixels)

    def learn(*batch: Tensor) -> dict[str, Tensor]:
        priority, metrics = agent._update(*batch)
        return {"priority": priority, **metrics}

    changes = [agent.network, *agent.optimizers.values()]
    learn_encoder = jit(agent._update_encoder, target_device, changes)
    learn_values = jit(learn, target_device, changes)

    def check() -> None:
        weights, expected = agent.network.state_dict(), translated(**parts)
        assert weights.keys() == expected.keys()
        for name, weight in expected.items():
            torch.testing.assert_close(weights[name], weight, rtol=0, atol=tolerance, msg=name)

    for i in range(2):
        recorded = inside(golden, f"encoder{i}")
        states = recorded["states"]
        ends = recorded["not_done"].squeeze(-1) == 0
        assert bool(ends.any()) == (not pixels)
        learn_encoder(
            states[:, 0], states[:, 1:], recorded["action"], recorded["reward"].squeeze(-1), ends
        )
        parts["encoder"] = inside(golden, f"after_encoder{i}/encoder")
        check()
        recorded = inside(golden, f"rl{i}")
        batch = (
            recorded["state"],
            recorded["action"],
            recorded["multi_step_reward"].squeeze(1),
            0.99**3 * recorded["multi_step_not_done"].squeeze(1),
            recorded["next_state"],
            recorded["noise"],
        )
        with torch.no_grad():
            target, (values, _) = agent._value_target(*batch[2:]), agent._evaluate(*batch[:2])
        torch.testing.assert_close(values.T, recorded["Q"], rtol=0, atol=1e-5)
        torch.testing.assert_close(target, recorded["Q_target"].squeeze(1), rtol=0, atol=1e-5)
        metrics = learn_values(*batch)
        torch.testing.assert_close(metrics["priority"], recorded["priority"], rtol=0, atol=1e-5)
        error = (recorded["Q"] - recorded["Q_target"]).abs()
        huber = torch.where(error < 1, error.square() / 2, error - 0.5).mean()
        torch.testing.assert_close(metrics["loss"], huber, rtol=0, atol=1e-5)
        parts |= {name: inside(golden, f"after_rl{i}/{name}") for name in ("policy", "value")}
        check()


def test_two_hot_codes_equal_the_published_ones(golden: dict[str, Tensor]) -> None:
    code = TwoHot(65).encode(golden["twohot/x"].squeeze(1))
    torch.testing.assert_close(code, golden["twohot/transform"], rtol=0, atol=1e-6)
