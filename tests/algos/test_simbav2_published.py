"""SimbaV2 reproduces the published updates number by number."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hadamard.algos.simbav2 import Config, SimbaV2
from hadamard.compute.jit import jit
from hadamard.core.config import NetSpec, RunSpec, TrainSpec
from hadamard.core.types import EnvSpec
from hadamard.learning.replay import Batch
from tests.support.golden import arrays

CPU = torch.device("cpu")
ENV = EnvSpec((7,), torch.float32, action_size=3, max_steps=500)

# Our parameters' names in the published tree.
HEADS = {"inner": "w1", "outer": "w2"}

ACTOR = {
    "trunk.embedding.weight": "embedder/w/hyper_dense/kernel",
    "trunk.scaler.vector": "embedder/scaler/scaler",
    **{
        f"{head}.{ours}.weight": f"predictor/{theirs}_{w}/hyper_dense/kernel"
        for head, theirs in (("mean", "mean"), ("deviation", "std"))
        for ours, w in HEADS.items()
    },
    "mean.scaler.vector": "predictor/mean_scaler/scaler",
    "mean.bias": "predictor/mean_bias",
    "deviation.scaler.vector": "predictor/std_scaler/scaler",
    "deviation.bias": "predictor/std_bias",
}

CRITIC = {
    "trunk.embedding.weight": "embedder/w/hyper_dense/kernel",
    "trunk.scaler.vector": "embedder/scaler/scaler",
    "head.inner.weight": "predictor/w1/hyper_dense/kernel",
    "head.outer.weight": "predictor/w2/hyper_dense/kernel",
    "head.scaler.vector": "predictor/scaler/scaler",
    "head.bias": "predictor/value_bias",
}

BLOCK = {
    "hidden.affine.weight": "mlp/w1/hyper_dense/kernel",
    "hidden.norm.vector": "mlp/scaler/scaler",
    "out.weight": "mlp/w2/hyper_dense/kernel",
    "alpha.vector": "alpha_scaler/scaler",
}

# The first gradient of this entry is 1e-7, the rounding error of a sum of terms up to 1e-2, and the
# length of Adam's first step depends on its sign alone. In double precision the sign is ours.
ROUNDING = ("trunk.blocks.0.out.weight", (0, 96, 21))


def published_names(part: str) -> dict[str, str]:
    table, blocks, prefix = (
        (ACTOR, 1, "actor/") if part == "actor" else (CRITIC, 2, f"{part}/VmapSimbaV2Critic_0/")
    )
    names = {ours: prefix + theirs for ours, theirs in table.items()}
    for i in range(blocks):
        for ours, theirs in BLOCK.items():
            names[f"trunk.blocks.{i}.{ours}"] = f"{prefix}encoder/layers_{i}/{theirs}"
    return names


def published(golden: Any, step: int, part: str, module: nn.Module) -> dict[str, Tensor]:
    """Return the published parameters with our names and shapes."""
    shapes = {name: p.shape for name, p in module.named_parameters()}
    parameters = {}
    for ours, theirs in published_names(part).items():
        value = torch.from_numpy(golden[f"step{step}/{theirs}"])
        parameters[ours] = value.reshape(shapes[ours])
    assert parameters.keys() == shapes.keys()
    return parameters


@pytest.fixture(scope="module")
def golden() -> Any:
    return arrays("simbav2_updates")


def golden_agent(golden: Any, device: torch.device, compile: str = "off") -> SimbaV2:
    published_config = json.loads(bytes(golden["config"]))
    config = Config(
        actor_width=published_config["actor_hidden_dim"],
        updates_per_step=1,
        batch_size=16,
        gamma=published_config["gamma"],
    )
    spec = RunSpec(
        algo=config,
        net=NetSpec(width=published_config["critic_hidden_dim"]),
        train=TrainSpec(steps=published_config["learning_rate_decay_step"], compile=compile),
    )
    agent = SimbaV2(ENV, spec, device)
    assert config.learning_rate == published_config["learning_rate_init"]
    assert config.learning_rate_final == published_config["learning_rate_end"]
    for part, module in (
        ("actor", agent.actor),
        ("critic", agent.critic),
        ("target_critic", agent.target),
    ):
        with torch.no_grad():
            for name, value in published(golden, 0, part, module).items():
                module.get_parameter(name).copy_(value)
    assert agent.temperature.log.item() == pytest.approx(
        float(golden["step0/temperature/log_temp"])
    )
    return agent


def check_golden(golden: Any, agent: SimbaV2, update: Any) -> None:
    device = agent.device

    def array(name: str) -> Tensor:
        return torch.from_numpy(golden[name]).to(device)

    for i in range(3):
        batch = Batch(
            array(f"batch{i}/observation"),
            array(f"batch{i}/action"),
            array(f"batch{i}/reward"),
            array(f"batch{i}/terminated") > 0,
            array(f"batch{i}/next_observation"),
        )
        metrics = update(batch, array(f"noise{i}/actor"), array(f"noise{i}/critic_next"))
        for ours, theirs in (
            ("loss", "critic/loss"),
            ("actor_loss", "actor/loss"),
            ("entropy", "actor/entropy"),
            ("temperature", "temperature/value"),
        ):
            assert float(metrics[ours]) == pytest.approx(
                float(golden[f"info{i}/{theirs}"]), abs=1e-5
            )
        for part, module in (
            ("actor", agent.actor),
            ("critic", agent.critic),
            ("target_critic", agent.target),
        ):
            for name, value in published(golden, i + 1, part, module).items():
                weight = module.get_parameter(name).detach().cpu().clone()
                if (part, name) == ("critic", ROUNDING[0]):
                    assert abs(weight[ROUNDING[1]] - value[ROUNDING[1]]) < 2.1e-4
                    weight[ROUNDING[1]] = value[ROUNDING[1]]
                torch.testing.assert_close(weight, value, atol=1e-5, rtol=0, msg=f"{part} {name}")
        log = float(golden[f"step{i + 1}/temperature/log_temp"])
        assert agent.temperature.log.item() == pytest.approx(log, abs=1e-5)
    obs, action = array("forward/observation"), array("forward/action")
    with torch.no_grad():
        mean, deviation = agent.actor(obs)
        log_probability = agent.critic(obs, action)
    value = agent.critic.value(log_probability)
    for output, theirs in (
        (mean, "actor_mean"),
        (deviation, "actor_std"),
        (log_probability, "log_prob"),
        (value, "q"),
    ):
        expected = array(f"forward/{theirs}")
        torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5, msg=theirs)


def test_three_published_updates(golden: Any) -> None:
    agent = golden_agent(golden, CPU)
    check_golden(golden, agent, agent._update)


@pytest.mark.gpu
@pytest.mark.parametrize("compile", ["off", "auto"])
def test_three_published_updates_captured(golden: Any, compile: str) -> None:
    device = torch.device("cuda")
    agent = golden_agent(golden, device, compile=compile)

    def update(*tensors: Tensor) -> Any:
        return agent._update(Batch(*tensors[:5]), *tensors[5:])

    changes = [agent.network, agent.target, agent.temperature, agent.rate]
    captured = jit(update, device, [*changes, *agent.optimizers.values()])
    check_golden(golden, agent, lambda batch, *noise: captured(*batch, *noise))
