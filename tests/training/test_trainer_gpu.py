"""Training on a GPU: saving, resuming and learning. Needs a CUDA device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hadamard.core import checkpoint
from hadamard.core.run import Run
from hadamard.experiments.bench import Quiet
from hadamard.training.start import train
from tests.support.gpu import DEVICE, settings
from tests.support.trainers import trainer_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
def test_a_run_is_trained_saved_and_gone_on_with(algorithm: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    spec = settings(algorithm, folder)
    with trainer_of(algorithm, spec, folder) as trainer:
        while trainer.step < 768 or not trainer.settled:
            trainer.advance()
        trainer.save()
    saved = [p.detach().clone() for p in trainer.agent.network.parameters()]
    with trainer_of(algorithm, spec, folder, resume=True) as again:
        assert again.step == trainer.step
        for ours, theirs in zip(saved, again.agent.network.parameters(), strict=True):
            assert torch.equal(ours, theirs)
        for group in again.agent.optimizer.param_groups:
            assert torch.as_tensor(group["lr"]).device.type == DEVICE.type
        while again.step < spec.train.steps or not again.settled:
            again.advance()
        again.save()
    (held,) = again.agent.optimizer.state.values()
    assert held["step"].device.type == DEVICE.type
    assert int(held["step"]) == again.agent.counters["updates"]  # counted on in the graph
    changed = [
        not torch.equal(a, b) for a, b in zip(saved, again.agent.network.parameters(), strict=True)
    ]
    assert all(changed)
    assert [row["step"] for row in Run.open(folder).rows("health")] == [512, 1024, 1536]
    assert checkpoint.newest(folder / "checkpoints").name == "step-000000001536"


@pytest.mark.parametrize("search", [True, False])
def test_convolutions_are_searched_as_asked(search: bool, tmp_path: Path) -> None:
    before = torch.backends.cudnn.benchmark
    spec = settings("pqn", tmp_path / "run", **{"train.conv_search": search})
    with trainer_of("pqn", spec, tmp_path / "run"):
        assert torch.backends.cudnn.benchmark == search
    assert torch.backends.cudnn.benchmark == before


@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
def test_a_policy_is_learned(algorithm: str, tmp_path: Path) -> None:
    steps = 4_096 if algorithm == "dqn" else 16_384
    changes: dict[str, Any] = {"train.steps": steps, "algo.learning_rate": 1e-3}
    if algorithm == "dqn":
        changes |= {"algo.epsilon_steps": 1_000, "algo.target_period": 100}
    summary = train(algorithm, settings(algorithm, tmp_path / "run", **changes), Quiet)
    assert summary["score"] > 0.6  # 0 by chance, 1 at best
