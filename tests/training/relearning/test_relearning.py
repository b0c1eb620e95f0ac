"""Networks of kept checkpoints on new targets: what they learn is what each would learn alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hadamard import load_runs
from hadamard.core import record
from hadamard.core.random import child_seed
from hadamard.health import diagnose
from hadamard.report.data.from_record import run_with_densities
from hadamard.report.data.packed import packed, record_of, unpacked
from hadamard.training.relearning import FILE, Budget, relearn, targets
from hadamard.training.relearning.fine_tuning import Regressor, fine_tune
from hadamard.training.relearning.measures import measure
from hadamard.training.relearning.networks import Group, groups
from tests.support.commands import Command, small

CPU = torch.device("cpu")


def group_of(folder: Path, *names: str) -> Group:
    problems: list[str] = []
    (group,) = groups([folder / name for name in names], 2, CPU, problems)
    assert not problems
    return group


def test_it_equals_plain_training_of_each_network(trained: Path) -> None:
    group = group_of(trained, "breakout-hr-0", "breakout-hr-1")
    networks = [saved.network for saved in group.saved]
    assert len(networks) == 4
    obs = targets.own_observations(networks, group.env, 96, CPU)
    target = targets.random_targets(obs, 1.0)
    together = fine_tune(networks, obs, target, Budget(96, 12, 32, 0.01))
    order = [
        torch.randperm(96, generator=generator)
        for generator in [torch.Generator().manual_seed(child_seed(31, 1))]
        for _ in range(4)
    ]
    batches = [part for epoch in order for part in epoch.split(32)]
    for network, own_obs, own_target, result in zip(networks, obs, target, together, strict=True):
        alone = Regressor(network.get_submodule("encoder"), 4)  # type: ignore[arg-type]
        optimizer = torch.optim.Adam(alone.parameters(), 0.01)
        for batch in batches[:12]:
            optimizer.zero_grad()
            F.mse_loss(alone(own_obs[batch]), own_target[batch]).backward()
            optimizer.step()
        error = (alone(own_obs) - own_target).detach().square().mean()
        explained = 1 - float(error / own_target.var(0, correction=0).mean())
        assert result == pytest.approx(explained, abs=2e-3)
    assert len({round(value or 0, 4) for value in together}) == 4


def test_more_updates_learn_more(trained: Path) -> None:
    group = group_of(trained, "breakout-relu-0")
    networks = [saved.network for saved in group.saved]
    obs = targets.own_observations(networks, group.env, 64, CPU)
    target = targets.random_targets(obs, 1.0)
    before, after = (fine_tune(networks, obs, target, Budget(64, n, 32, 0.01)) for n in (1, 150))
    assert max(value for value in before if value is not None) < 0.2
    assert min(value or 0 for value in after) > 0.2


def test_equal_observations_have_equal_targets() -> None:
    obs = (torch.rand(1, 200, 4, 10, 10) < 0.05).to(torch.uint8)
    obs[0, 1] = obs[0, 0]
    target = targets.random_targets(obs, 1.0)
    assert torch.equal(target[0, 0], target[0, 1])
    assert abs(float(target.mean())) < 0.15
    assert float(target[0, 2:].var()) == pytest.approx(0.5, abs=0.1)
    shares = np.corrcoef(target[0, 2:].T.numpy())
    assert np.abs(shares - np.eye(4)).max() < 0.25


def test_the_other_game_fits(trained: Path) -> None:
    group = group_of(trained, "space_invaders-relu-0")
    assert targets.other_task(group.env, group.spec, CPU) == "minatar/asterix"
    breakout = group_of(trained, "breakout-relu-0")
    # Only Asterix has as few channels as Breakout.
    assert targets.other_task(breakout.env, breakout.spec, CPU) == "minatar/asterix"
    frames, returns = targets.returns_of("minatar/asterix", group.spec, 100, CPU)
    assert frames.shape == (100, *group.spec.obs_shape)
    assert frames[:, :4].any()
    assert not frames[:, 4:].any()
    assert returns.shape == (100, 1)
    assert float(returns.mean()) == pytest.approx(0, abs=1e-5)
    assert float(returns.std()) == pytest.approx(1, abs=1e-5)


def test_returns_end_with_the_game() -> None:
    rewards = torch.tensor([[1.0], [0.0], [2.0], [10.0]])
    ends = torch.tensor([[False], [False], [True], [False]])
    expected = [1 + 0.9 * 0.9 * 2, 0.9 * 2, 2.0, 10.0]
    assert targets.discounted(rewards, ends).squeeze(1).tolist() == pytest.approx(expected)


def test_measures_are_those_of_a_diagnosis_and_change_nothing(trained: Path) -> None:
    group = group_of(trained, "breakout-relu-0", "breakout-relu-1")
    networks = [saved.network for saved in group.saved]
    before = [{n: p.clone() for n, p in network.named_parameters()} for network in networks]
    obs = targets.own_observations(networks, group.env, 100, CPU)
    rows = measure(networks, obs)
    for network, own, row, weights in zip(networks, obs, rows, before, strict=True):
        assert isinstance(row, dict)
        report = diagnose(network, own, "encoder.hidden.1", measures="ntk")
        assert row["dormant_fraction"] == report[0].dormant_fraction
        assert row["effective_rank"] == report[0].effective_rank
        assert row["weight_norm"] == pytest.approx(report.network["weight_norm"])
        assert row["ntk_rank"] == report.network["ntk_rank"]
        assert 0 <= (row["policy_churn"] or 0) <= 1
        assert (row["value_churn"] or 0) > 0
        for name, parameter in network.named_parameters():
            assert torch.equal(parameter, weights[name])


def test_a_runs_file_holds_each_kept_checkpoint(
    trained: Path, command: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(trained, folder)
    words = ["relearn", str(folder), "--observations", "64", "--updates", "3", "--batch-size", "16"]
    result = command(*words, "--device", "cpu")
    assert (result.code, result.err) == (0, "")
    for path in folder.iterdir():
        values = json.loads((path / FILE).read_text())
        saved = sorted(record.step_of(p) for p in record.checkpoints(path / "checkpoints"))
        assert [row["step"] for row in values["rows"]] == saved
        assert saved[0] < 400 < saved[-1]
        assert values["other_task"] == "minatar/asterix"
        for row in values["rows"]:
            assert set(row["learned"]) == {"random", "other"}
            assert all(value < 1 for value in row["learned"].values())
    before = (path / FILE).stat().st_mtime_ns
    result = command(*words, "--device", "cpu")
    assert result.code == 0
    assert result.out == "6 runs done before\n"
    assert (path / FILE).stat().st_mtime_ns == before
    # A packed run has the same, and an overwritten run's folder may hold the file.
    data = packed(record_of(path))
    (run,) = load_runs(path)
    again = run_with_densities(path, unpacked(data, path))
    for one in (run, again):
        assert one.relearned is not None
        assert one.relearned.steps.tolist() == saved
        assert one.relearned.budget["updates"] == 3
        assert one.relearned.other_task == "minatar/asterix"
        rows = json.loads((path / FILE).read_text())["rows"]
        for target in ("random", "other"):
            expected = [row["learned"][target] for row in rows]
            assert one.relearned.learned[target] == pytest.approx(expected, rel=1e-6)
        ranks = [row["measures"]["stable_rank"] for row in rows]
        assert one.relearned.measures["stable_rank"] == pytest.approx(ranks, rel=1e-6)


@pytest.mark.parametrize(
    ("content", "trouble"),
    [
        ("{", "is damaged"),
        ("[]", "its value"),
        ('{"rows": 3, "budget": {}}', "holds no rows and budget"),
        ('{"rows": [{"step": -1}, 4], "budget": {}}', "2 rows of .* have no step"),
    ],
)
def test_a_damaged_file_is_reported(
    trained: Path, tmp_path: Path, content: str, trouble: str
) -> None:
    path = tmp_path / "run"
    shutil.copytree(trained / "breakout-relu-0", path)
    (path / FILE).write_text(content)
    with pytest.warns(UserWarning, match=trouble):
        (run,) = load_runs(path)
    assert run.finished
    assert run.relearned is None or not len(run.relearned.steps)


def test_numbers_of_other_types_count_as_missing(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(trained / "breakout-relu-0", path)
    row: dict[str, Any] = {"step": 5, "measures": {"stable_rank": "x"}, "learned": {"random": True}}
    good = {"step": 9, "measures": {"stable_rank": 2.0}, "learned": {"random": 0.5}}
    (path / FILE).write_text(json.dumps({"rows": [row, good], "budget": {"updates": 1}}))
    (run,) = load_runs(path)
    assert run.relearned is not None
    assert np.isnan(run.relearned.measures["stable_rank"]).tolist() == [True, False]
    assert np.isnan(run.relearned.learned["random"]).tolist() == [True, False]


def test_what_cannot_relearn_is_named(trained: Path, command: Command, tmp_path: Path) -> None:
    unfinished, other, good = (tmp_path / name for name in ("unfinished", "simba", "good"))
    shutil.copytree(trained / "breakout-relu-0", unfinished)
    (unfinished / "DONE").unlink()
    assert command(*small("simbav2", other, {"--train.steps": 120})).code == 0
    shutil.copytree(trained / "breakout-relu-1", good)
    broken = record.checkpoints(good / "checkpoints")[0] / "tensors.safetensors"
    broken.write_bytes(broken.read_bytes()[:-8])
    said: list[str] = []
    budget = Budget(observations=32, updates=1, batch_size=8)
    problems = relearn([unfinished, other, good], budget, "cpu", say=said.append)
    text = "\n".join(problems)
    assert f"{unfinished} is not finished: train it to its end first" in text
    assert "needs discrete actions and one encoder, as DQN, PPO and PQN have; simbav2" in text
    assert "is damaged" in text
    assert len(problems) == 3
    rows = json.loads((good / FILE).read_text())["rows"]
    assert len(rows) == len(record.checkpoints(good / "checkpoints")) - 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--updates", "0"], "--updates must be at least 1, got 0"),
        (["--observations", "100", "--batch-size", "200"], "--batch-size 200 is more than"),
        (["--learning-rate", "0"], "--learning-rate must be above 0"),
        (["--checkpoints", "0"], "--checkpoints must be at least 1"),
    ],
)
def test_wrong_budgets(trained: Path, command: Command, options: list[str], message: str) -> None:
    result = command("relearn", str(trained / "breakout-relu-0"), *options)
    assert result.code == 2
    assert message in result.err
