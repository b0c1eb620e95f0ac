"""MR.Q on a GPU: captured updates, and a run that is trained, saved and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hadamard import envs
from hadamard.algos.mrq import MRQ
from hadamard.compute.jit import Captured
from hadamard.core.config import RunSpec, overridden
from hadamard.training.load_agent import load_agent
from tests.support.mrq import play, settings
from tests.support.trainers import trainer_of


def filled(spec: RunSpec[Any], device: torch.device) -> MRQ:
    """Return an agent whose replay holds random steps, the same on every device."""
    env = envs.make(spec.env, spec.seed, 1, device)
    agent = MRQ(env.spec, spec, device)
    play(agent, env, spec.algo.random_steps)
    return agent


@pytest.mark.gpu
@pytest.mark.usefixtures("exact")
@pytest.mark.filterwarnings("ignore")  # the compiler recommends TF32
@pytest.mark.parametrize("compile", ["off", "on"])
@pytest.mark.parametrize("layer", ["plain", "hadamard"])
@pytest.mark.parametrize("task", ["steer", "track84"])
def test_captured_learning_equals_eager_learning(task: str, layer: str, compile: str) -> None:
    changes = {
        "net.layer": layer,
        "algo.random_steps": 100,
        "algo.batch_size": 32,
        "algo.learning_rate": 1e-4,
        "algo.encoder_learning_rate": 1e-4,
        # A slot drawn twice gets either priority: they must be the same.
        "algo.priority_exponent": 0.0,
    }
    device = torch.device("cuda")
    spec = settings(task, changes)
    captured = filled(overridden(spec, {"train.compile": compile}), device)
    eager = filled(overridden(spec, {"train.compile": "off", "train.capture": False}), device)
    assert not isinstance(eager.learn, Captured)
    assert captured.replay.frames.is_cuda
    start = {name: p.detach().clone() for name, p in eager.network.named_parameters()}
    for i in range(12):
        for agent in (captured, eager):
            if i % 6 == 0:
                agent.target.load_state_dict(agent.network.state_dict())
        metrics, expected = (
            {**agent.learn_encoder(), **agent.learn()} for agent in (captured, eager)
        )
        torch.testing.assert_close(metrics, expected, rtol=1e-4, atol=1e-4)
    for (name, weight), other in zip(
        captured.network.named_parameters(), eager.network.parameters(), strict=True
    ):
        moved = (other - start[name]).norm().item()
        assert moved > 0, name
        assert (weight - other).norm().item() < 2e-3 * moved, name
    states = [agent.sampling_random.generator.get_state() for agent in (captured, eager)]
    assert torch.equal(*states)


@pytest.mark.gpu
def test_a_captured_update_sets_the_priorities_of_its_batch() -> None:
    agent = filled(settings("track84", {"algo.random_steps": 100}), torch.device("cuda"))
    assert agent.replay.priority is not None
    agent.state.reward_scale.fill_(1e-3)
    before = agent.replay.priority.clone()
    changed: set[tuple[int, ...]] = set()
    for _ in range(20):
        agent.learn()
        now = agent.replay.priority
        changes = (now != before).nonzero()
        assert 0 < len(changes) <= 8
        assert agent.replay.usable[tuple(changes.T)].all()
        changed |= {tuple(index) for index in changes.tolist()}
        before = now.clone()
    assert len(changed) > 20
    assert agent.replay.largest_priority >= before.max() > 1


@pytest.mark.gpu
@pytest.mark.parametrize("storage", ["device", "memory"])
def test_a_run_on_a_gpu_is_trained_and_resumed(storage: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    changes = {
        "device": "cuda",
        "run_dir": str(folder),
        "net.layer": "hadamard",
        "algo.replay_storage": storage,
        "train.steps": 80,
        "train.log_every": 20,
        "train.health_every": 40,
        "train.health_samples": 32,
        "train.checkpoint_every": 40,
        "train.tensorboard": False,
    }
    spec = settings("track84", changes)
    with trainer_of("mrq", spec, folder) as trainer:
        while trainer.step < 50:
            trainer.advance()
        trainer.save()
    saved = {name: p.detach().clone() for name, p in trainer.agent.network.named_parameters()}
    with trainer_of("mrq", spec, folder, resume=True) as resumed:
        assert resumed.step == 50
        for name, parameter in resumed.agent.network.named_parameters():
            assert torch.equal(parameter, saved[name]), name
        while resumed.step < 80:
            resumed.advance()
        for name, parameter in resumed.agent.network.named_parameters():
            assert torch.isfinite(parameter).all()
            assert not torch.equal(parameter, saved[name]), name
        resumed.save()
    # A run from a GPU can be loaded on a CPU.
    agent, _, step, *_ = load_agent(str(folder), "cpu")
    assert step == 80
    assert agent.act(torch.zeros(1, 9, 84, 84, dtype=torch.uint8), step)[0].shape == (1, 2)
