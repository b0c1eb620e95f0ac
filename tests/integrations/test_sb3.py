"""The callback and the conversion on Stable-Baselines3's own algorithms."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from hadamard.core.run import RunError
from hadamard.integrations.sb3 import HealthCallback, convert
from hadamard.layers import HadamardLinear
from hadamard.report.data.runs import load

OFF = {"buffer_size": 300, "learning_starts": 20, "batch_size": 16}
# Twin critics and an actor of two layers each; what squashes the actions is no hidden layer.
PENDULUM = {**OFF, "policy_kwargs": {"net_arch": [16, 16]}}
ON = {"n_steps": 64}


def ppo(env: Any = "CartPole-v1", policy: str = "MlpPolicy", **settings: Any) -> PPO:
    settings = {"n_epochs": 1, "batch_size": 32, **ON, **settings}
    return PPO(policy, env, seed=0, device="cpu", **settings)


def pendulum(algorithm: Any) -> Any:
    return algorithm("MlpPolicy", "Pendulum-v1", **copy.deepcopy(PENDULUM))


MODELS = {
    "ppo": (ppo, 4, ["policy_net.1", "policy_net.3", "value_net.1", "value_net.3"]),
    "a2c": (lambda: A2C("MlpPolicy", "CartPole-v1", **ON), 4, None),
    "dqn": (lambda: DQN("MlpPolicy", "CartPole-v1", **OFF), 2, ["q_net.1", "q_net.3"]),
    "td3": (lambda: pendulum(TD3), 6, ["mu.1", "qf1.3"]),
    "sac": (lambda: pendulum(SAC), 6, ["latent_pi.1", "qf1.3"]),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("converted", [False, True])
def test_health_of_every_network_that_learns(tmp_path: Path, name: str, converted: bool) -> None:
    make, layers, endings = MODELS[name]
    model = make()
    if converted:
        convert(model)
    callback = HealthCallback(tmp_path / "run", every=64)
    model.learn(192, callback=callback)
    assert len(callback.latest) == layers
    if not converted:
        for ending in endings or ():
            assert any(layer.name.endswith(ending) for layer in callback.latest)
    (run,) = load([tmp_path / "run"])
    assert run.algorithm == f"sb3-{name}"
    assert run.spec["train.steps"] == 192
    assert run.finished
    assert run.health_steps.tolist() == [64, 128, 192]
    assert run.label.endswith("+ HR") == converted
    if name == "ppo":
        assert run.episodes == len(model.ep_info_buffer)
        assert run.finals["training"] == pytest.approx(
            np.mean([episode["r"] for episode in model.ep_info_buffer])
        )


def test_what_is_measured_is_what_the_network_computes(tmp_path: Path) -> None:
    model = ppo()
    callback = HealthCallback(None, every=64)
    model.learn(64, callback=callback)
    observations = torch.as_tensor(model.rollout_buffer.observations).reshape(-1, 4)
    assert len(observations) == callback.latest.observations == 64


@pytest.mark.parametrize("algorithm", [PPO, DQN, SAC])
def test_a_converted_model_saves_and_loads(tmp_path: Path, algorithm: Any) -> None:
    env = "Pendulum-v1" if algorithm is SAC else "CartPole-v1"
    settings = {"n_steps": 64, "n_epochs": 1} if algorithm is PPO else OFF
    model = algorithm("MlpPolicy", env, seed=0, device="cpu", **settings)
    conversion = convert(model, activation="tanh", branches=3)
    assert conversion.optimizers_updated == (2 if algorithm is SAC else 1)
    model.learn(64)
    model.save(tmp_path / "model")
    other = algorithm.load(tmp_path / "model", env=DummyVecEnv([lambda: gymnasium.make(env)]))
    layers = [m for m in other.policy.modules() if isinstance(m, HadamardLinear)]
    assert len(layers) == len(conversion.changed)
    assert {layer.branch_count for layer in layers} == {3}
    expected, state = model.policy.state_dict(), other.policy.state_dict()
    assert expected.keys() == state.keys()
    assert all(torch.equal(expected[key], state[key]) for key in expected)
    obs, _ = gymnasium.make(env).reset(seed=1)
    assert np.array_equal(
        model.predict(obs, deterministic=True)[0], other.predict(obs, deterministic=True)[0]
    )
    state = {name: tensor.clone() for name, tensor in state.items()}
    other.learn(64)  # its optimizer holds the converted layers
    moved = other.policy.state_dict()
    assert any(not torch.equal(state[key], moved[key]) for key in state if "branches.2" in key)
    other.save(tmp_path / "again")
    algorithm.load(tmp_path / "again")


class Camera(gymnasium.Env[Any, Any]):
    """Observations are a dict of an image and a vector."""

    observation_space = gymnasium.spaces.Dict(
        image=gymnasium.spaces.Box(0, 255, (3, 36, 36), np.uint8),
        speed=gymnasium.spaces.Box(-1, 1, (2,), np.float32),
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.mark.parametrize("off_policy", [False, True])
def test_observations_that_are_dicts(off_policy: bool) -> None:
    if off_policy:
        model = DQN("MultiInputPolicy", Camera(), **OFF)
    else:
        model = ppo(Camera(), "MultiInputPolicy")
    callback = HealthCallback(None, every=64, samples=32)
    model.learn(64, callback=callback)
    assert callback.latest.observations == 32


def test_a_discrete_observation(tmp_path: Path) -> None:
    callback = HealthCallback(None, every=64)
    ppo(gymnasium.make("FrozenLake-v1")).learn(64, callback=callback)
    assert callback.latest.observations == 64


def test_normalized_observations_of_a_replay_buffer() -> None:
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2))
    model = DQN("MlpPolicy", env, **OFF)
    callback = HealthCallback(None, every=100)
    seen: list[torch.Tensor] = []
    model.learn(150, callback=callback)
    (batch,) = callback._observations()
    seen.append(batch)
    stored = model.replay_buffer.observations[: model.replay_buffer.pos]
    torch.testing.assert_close(
        batch, torch.as_tensor(env.normalize_obs(stored)).reshape(-1, 4), check_dtype=False
    )


def test_the_newest_observations_of_a_full_buffer() -> None:
    model = DQN("MlpPolicy", "CartPole-v1", **{**OFF, "buffer_size": 50, "learning_starts": 200})
    callback = HealthCallback(None, every=500, samples=10)
    model.learn(120, callback=callback)
    (batch,) = callback._observations()
    newest = model.replay_buffer.observations[10:20, 0]  # steps 110 to 119 of a ring of 50
    assert torch.equal(batch, torch.as_tensor(newest))


def test_rows_of_a_file_and_further_arguments(tmp_path: Path) -> None:
    path = tmp_path / "health.jsonl"
    callback = HealthCallback(path, every=64, layers="*value_net.3", prefix="x/")
    ppo().learn(128, callback=callback)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [64, 128]
    assert [layer["name"] for layer in rows[0]["layers"]] == ["mlp_extractor.value_net.3"]


def test_what_is_wrong_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="every must be an integer from 1 up, got 0"):
        HealthCallback(every=0)
    with pytest.raises(ValueError, match="samples must be an integer from 2 up, got 1"):
        HealthCallback(samples=1)
    with pytest.raises(TypeError, match="wandb must be the name of a project"):
        HealthCallback(wandb=3)
    with pytest.raises(TypeError, match="forward must be callable"):
        HealthCallback(forward=3)
    model = ppo()
    with pytest.raises(ValueError, match="no layer is called 'policy'"):
        model.learn(64, callback=HealthCallback(None, layers="policy"))
    assert model.num_timesteps == 0
    model.learn(64, callback=HealthCallback(tmp_path / "run"))
    with pytest.raises(ValueError, match="has learned for 64 steps: convert it before"):
        convert(model)
    with pytest.raises(RunError):
        model.learn(64, callback=HealthCallback(tmp_path / "run"))
    with pytest.raises(TypeError, match="must be a model of Stable-Baselines3, got .*Policy"):
        convert(model.policy)


def test_a_policy_that_is_not_known_needs_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hadamard.integrations.sb3._POLICIES", ())
    model = ppo()
    with pytest.raises(TypeError, match="PPO with a ActorCriticPolicy is not known here"):
        model.learn(64, callback=HealthCallback(None))
    callback = HealthCallback(None, every=64, forward=model.policy.predict_values)
    model.learn(64, callback=callback)
    assert {layer.name for layer in callback.latest} == {
        "mlp_extractor.value_net.1",
        "mlp_extractor.value_net.3",
    }
