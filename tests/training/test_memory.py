"""Memory: runs that cannot fit are refused before anything is allocated, and failures explained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import envs
from hadamard.core import discover
from hadamard.core.config import overridden
from hadamard.training import memory, setup, start
from tests.support.agents import MODULES, settings
from tests.support.commands import Command, checkpoint_names, small

ALGORITHMS = discover.names("hadamard.algos")
CPU = torch.device("cpu")
HUGE = 10**12
TASKS = {"discrete": ("both", "image"), "continuous": ("track",)}


@pytest.mark.parametrize(
    ("algorithm", "changes", "part"),
    [
        ("dqn", {"--algo.num-envs": HUGE}, "environments"),
        ("pqn", {"--train.greedy-envs": HUGE}, "environments"),
        ("ppo", {"--train.eval-every": 10, "--train.eval-episodes": HUGE}, "environments"),
        ("pqn", {"--algo.num-envs": 20_000, "--train.env-workers": 20_001}, "worker processes"),
        ("dqn", {"--algo.replay-capacity": HUGE, "--train.steps": HUGE}, "replay"),
        ("ppo", {"--algo.rollout-steps": HUGE}, "rollout"),
        ("dqn", {"--algo.batch-size": HUGE}, "batch"),
        ("ppo", {"--net.width": HUGE, "--train.health-every": 0}, "network"),
        ("mrq", {"--algo.hidden-width": HUGE}, "network"),
        ("simbav2", {"--algo.actor-width": HUGE}, "network"),
        ("simbav2", {"--algo.critic-blocks": HUGE}, "network"),
        ("simbav2", {"--net.width": HUGE}, "network"),
        ("simbav2", {"--algo.bins": HUGE}, "network"),
        ("dqn", {"--train.health-samples": HUGE, "--train.health-every": HUGE}, "diagnosis"),
    ],
)
def test_a_run_that_cannot_fit_is_refused_before_it_is_made(
    algorithm: str, changes: dict[str, int], part: str, command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    result = command(*small(algorithm, path, {**changes, "--device": "cpu"}))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("hadamard: the run needs at least ")
    assert f"({part} " in result.err
    flag, value = max(changes.items(), key=lambda item: item[1])
    assert f"lower {flag} {value}" in result.err
    assert not path.exists()


def test_a_replay_larger_than_the_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(free=10**5)
    monkeypatch.setattr(memory.shutil, "disk_usage", lambda folder: free)
    changes = {"algo.replay_capacity": 3_000, "algo.replay_storage": "disk"}
    spec = settings("dqn", "image", {**changes, "run_dir": str(tmp_path / "new" / "run")})
    environments = envs.make(spec.env, 0, 1)
    message = r"at least 0.\d MB of disk \(replay .* lower --algo.replay-capacity 3000"
    with pytest.raises(ValueError, match=message):
        memory.check(spec, CPU, environments.spec)
    free.free = 10**9
    memory.check(spec, CPU, environments.spec)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_default_runs_fit_a_laptop(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = discover.find("hadamard.algos", algorithm, "algorithm")
    monkeypatch.setattr(memory, "host_memory", lambda: (16 * 10**9, 16 * 10**9))
    spec = start.default_spec(algorithm)
    if envs.trouble(module.ENV.partition("/")[0]) is not None:
        pytest.skip("needs the suite's packages and files")
    environments = envs.make(module.ENV, 0, 1)
    environments.close()
    memory.check(spec, CPU, environments.spec)


def test_a_run_that_may_not_fit_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "host_memory", lambda: (16 * 10**9, 10**6))
    spec = overridden(start.default_spec("dqn"), {"algo.num_envs": 3_000})
    with pytest.warns(UserWarning, match=r"1.0 MB free now: if it fails, lower --algo.num-envs"):
        memory.check(spec, CPU)


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [
        (name, task)
        for name in ALGORITHMS
        for kind, tasks in TASKS.items()
        for task in tasks
        if kind in MODULES[name].ACTIONS
    ],
)
def test_the_estimate_is_at_most_what_a_run_keeps(algorithm: str, env: str, tmp_path: Path) -> None:
    changes = {"run_dir": str(tmp_path / "run"), "train.steps": 200, "algo.num_envs": 4}
    spec = settings(algorithm, env, changes)
    environments = envs.make(spec.env, 0, 4)
    agent: Any = setup.make_agent(algorithm, spec, environments, CPU)
    values = memory.flattened(memory.to_dict(spec))
    sizes: dict[str, int] = {}
    for part in memory._parts(spec, values, CPU, environments.spec):
        sizes[part.name] = sizes.get(part.name, 0) + part.size
    weights = sum(p.nbytes for p in agent.network.parameters())
    assert 0 < sizes["network"] <= memory.COPIES_OF_WEIGHTS * weights + 10 * memory.BLOCK_BYTES
    if hasattr(agent, "replay"):
        assert 0.1 * agent.replay.nbytes <= sizes["replay"] <= agent.replay.nbytes


def failing(error: Exception | None) -> Any:
    one_step = start.Trainer.one_step

    def stepping(self: start.Trainer, *stopping: bool) -> Iterator[None]:
        yield from one_step(self, *stopping)
        if self.step == 150:
            if error is not None:
                raise error
            torch.empty(2**60)

    return stepping


@pytest.mark.parametrize(
    "error",
    [
        None,  # an allocation that fails
        MemoryError(),
        np.linalg.LinAlgError("not about memory"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore words"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_a_failed_allocation_says_what_to_lower(
    error: Exception | None, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(start.Trainer, "one_step", failing(error))
        result = command(*small("dqn", path))
    if isinstance(error, np.linalg.LinAlgError):
        assert "out of memory" not in result.err
        return
    (saved,) = checkpoint_names(path)
    assert result.code == 1
    assert result.err.startswith("hadamard: out of memory: ")
    assert "Lower --algo.replay-capacity 200, --algo.num-envs 1, --algo.batch-size 32" in result.err
    assert f"{path / 'checkpoints' / saved} is the newest checkpoint" in result.err
    assert f"`hadamard train --resume {path}`" in result.err
    assert result.err.count("\n") == 1
    assert command("train", "--resume", path).code == 0


@pytest.mark.gpu
def test_a_failed_allocation_on_a_gpu_says_what_to_lower(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_step = start.Trainer.one_step

    def stepping(self: start.Trainer, *stopping: bool) -> Iterator[None]:
        yield from one_step(self, *stopping)
        torch.empty(2**45, device="cuda")

    monkeypatch.setattr(start.Trainer, "one_step", stepping)
    result = command(*small("dqn", tmp_path / "run", {"--device": "cuda"}))
    assert result.code == 1
    assert "out of memory: CUDA out of memory" in result.err
    assert "No checkpoint was written" in result.err


def test_memory_is_what_a_container_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total, free = memory.host_memory()
    assert 0 < free <= total
    files = {
        "/proc/meminfo": ["MemTotal: 9 kB", "MemAvailable: 900000 kB"],
        "/proc/self/cgroup": ["1:cpu,memory:/old/job", "0::/batch/job"],
        "/sys/fs/cgroup/batch/memory.max": ["500000000"],
        "/sys/fs/cgroup/batch/memory.current": ["100000000"],
        "/sys/fs/cgroup/batch/job/memory.max": ["max"],
        "/sys/fs/cgroup/memory/old/memory.limit_in_bytes": ["700000000"],
    }
    monkeypatch.setattr(memory, "_lines", lambda path: files.get(str(path), []))
    assert memory.host_memory() == (500_000_000, 400_000_000)
