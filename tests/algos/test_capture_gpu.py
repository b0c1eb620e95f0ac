"""Learning in a captured graph is eager learning. Needs a CUDA device."""

from __future__ import annotations

import pytest
import torch

from hadamard.compute import optimizers
from tests.support.agents import ALGORITHMS, build_agent, recorded_batches, settings


@pytest.mark.gpu
@pytest.mark.parametrize("layer", ["plain", "hadamard"])
@pytest.mark.parametrize("task", ["both", "image84"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_captured_learning_is_eager_learning(
    algorithm: str, task: str, layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Convolutions may run in TF32 by default, and differently from call to call.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    device = torch.device("cuda")
    spec = settings(algorithm, task, {"net.layer": layer, "net.activation": "tanh"})
    player, env = build_agent(algorithm, spec, device)
    batches = recorded_batches(player, env, 80)[:20]
    assert len(batches) == 20
    captured, eager = (build_agent(algorithm, spec, device)[0] for _ in range(2))
    eager.learn = eager._learn
    start = [p.detach().clone() for p in eager.network.parameters()]
    for i, batch in enumerate(batches):
        results = []
        for agent in (captured, eager):
            optimizers.set_learning_rate(agent.optimizer, 1e-3 / (1 + i // 5))
            results.append(agent.learn(*batch))
        for name in results[0]:
            torch.testing.assert_close(results[0][name], results[1][name], rtol=1e-3, atol=1e-4)
    for before, ours, theirs in zip(
        start, captured.network.parameters(), eager.network.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        assert not torch.equal(ours, before)
    for group in captured.optimizer.param_groups:
        assert float(group["lr"]) == pytest.approx(1e-3 / 4)
