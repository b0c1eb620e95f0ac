"""hadamardize on the networks of Stable-Baselines3."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from hadamard.layers import HadamardLinear, hadamardize
from tests.support.models import names, two_branches


def policy_weights(policy, name):
    return policy.get_submodule(name).split()[1].affine.weight


def test_stable_baselines3_ppo():
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, seed=0)
    with pytest.raises(TypeError, match=r"got PPO; pass its \.policy"):
        hadamardize(model)
    conversion = hadamardize(model.policy)
    assert names(conversion) == [
        f"mlp_extractor.{net}_net.{i}" for net in ("policy", "value") for i in (0, 2)
    ]
    assert set(conversion.skipped) == {"action_net", "value_net"}
    assert conversion.optimizers_updated == 1
    before = [policy_weights(model.policy, name) for name in names(conversion)]
    side = before[1]
    torch.testing.assert_close(side @ side.T, 2 * torch.eye(64), atol=1e-4, rtol=0)
    model.learn(128)
    after = [policy_weights(model.policy, name) for name in names(conversion)]
    assert not any(map(torch.equal, before, after))


def test_stable_baselines3_dqn(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    settings = {"buffer_size": 500, "learning_starts": 50, "target_update_interval": 10_000}
    model = sb3.DQN("MlpPolicy", "CartPole-v1", seed=0, **settings)
    conversion = hadamardize(model.policy)
    assert names(conversion) == [
        f"{net}.q_net.{i}" for net in ("q_net", "q_net_target") for i in (0, 2)
    ]
    assert conversion.optimizers_updated == 1
    online, target = model.policy.q_net, model.policy.q_net_target
    start = copy.deepcopy(online.state_dict())
    assert all(torch.equal(start[key], value) for key, value in target.state_dict().items())
    model.learn(200)
    for i in (0, 2):
        key = f"q_net.{i}.branches.1.affine.weight"
        assert not torch.equal(start[key], online.state_dict()[key])
        assert torch.equal(start[key], target.state_dict()[key])
    # Saved weights load into a model converted in the same way.
    model.save(tmp_path / "dqn")
    other = sb3.DQN("MlpPolicy", "CartPole-v1", seed=1, **settings)
    hadamardize(other.policy)
    other.set_parameters(str(tmp_path / "dqn"))
    x = torch.randn(5, 4)
    assert torch.equal(online(x), other.policy.q_net(x))


def test_stable_baselines3_sac():
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.SAC(
        "MlpPolicy",
        "Pendulum-v1",
        buffer_size=500,
        learning_starts=50,
        batch_size=32,
        policy_kwargs={"net_arch": [32, 32]},
        seed=0,
    )
    conversion = hadamardize(model.policy)
    assert names(conversion) == [
        *("actor.latent_pi.0", "actor.latent_pi.2"),
        *(f"{c}.qf{k}.{i}" for c in ("critic", "critic_target") for k in (0, 1) for i in (0, 2)),
    ]
    assert conversion.optimizers_updated == 2
    start = copy.deepcopy(model.policy.state_dict())
    for key, value in model.policy.critic.state_dict().items():
        assert torch.equal(value, start[f"critic_target.{key}"])
    assert not torch.equal(
        start["critic.qf0.0.branches.1.affine.weight"],
        start["critic.qf1.0.branches.1.affine.weight"],
    )
    model.learn(100)
    end = model.policy.state_dict()
    moved = [key for key in start if "branches.1" in key and not torch.equal(start[key], end[key])]
    assert len(moved) == sum("branches.1" in key for key in start)


def test_stable_baselines3_nature_cnn():
    pytest.importorskip("stable_baselines3")
    import gymnasium
    import numpy as np
    from stable_baselines3.common.torch_layers import NatureCNN

    space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    extractor = NatureCNN(space, features_dim=32)
    old = copy.deepcopy(extractor)
    conversion = hadamardize(extractor, where="linear.0")
    assert names(conversion) == ["linear.0"]
    x = torch.rand(2, 4, 84, 84)
    expected = two_branches(extractor.linear[0], F.relu, old.cnn(x))
    torch.testing.assert_close(extractor(x), expected)
    assert names(hadamardize(extractor)) == ["cnn.0", "cnn.2", "cnn.4"]


def test_stable_baselines3_shared_extractor_has_all_its_names():
    pytest.importorskip("stable_baselines3")
    import gymnasium
    import numpy as np
    from stable_baselines3.common.policies import ActorCriticCnnPolicy

    images = gymnasium.spaces.Box(0, 255, (4, 36, 36), np.uint8)
    policy = ActorCriticCnnPolicy(images, gymnasium.spaces.Discrete(2), lambda _: 1e-3)
    hadamardize(policy, where="pi_features_extractor.linear.0")
    assert isinstance(policy.vf_features_extractor.linear[0], HadamardLinear)
    held = [id(p) for p in policy.optimizer.param_groups[0]["params"]]
    assert sorted(held) == sorted(map(id, policy.parameters()))
