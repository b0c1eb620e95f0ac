"""Encoders accept every kind of observation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hadamard.core.config import NetSpec
from hadamard.core.types import EnvSpec
from hadamard.layers import variants
from hadamard.layers.activations import ACTIVATIONS
from hadamard.nets.encoders import make_encoder
from hadamard.nets.heads import ActorCritic, QNetwork
from tests.support.nets import FRAMES, GRID, VECTOR, observations


@pytest.mark.parametrize("env", [VECTOR, GRID, FRAMES], ids=["vector", "grid", "frames"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("variant", variants())
def test_every_network_accepts_every_observation(
    variant: str, activation: str, env: EnvSpec
) -> None:
    for where, norm in (("last", "none"), ("all", "layer")):
        net = NetSpec(layer=variant, activation=activation, width=8, where=where, norm=norm)
        network = QNetwork(env, net)
        values = network(observations(env))
        assert values.shape == (2, 3)
        values.square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
        width = {"crelu": 16, "widened": 16}.get(variant, 8)
        assert network.encoder.outputs == width
    logits, value = ActorCritic(env, NetSpec(layer=variant, width=8))(observations(env))
    assert logits.shape == (2, 3)
    assert value.shape == (2,)


def test_bytes_are_scaled_to_one_and_grids_are_not() -> None:
    net = NetSpec(width=4)
    for env, factor in ((FRAMES, 255.0), (GRID, 1.0), (VECTOR, 1.0)):
        encoder = make_encoder(env, net, "default")
        inputs: list[Tensor] = []
        encoder.layers[0].register_forward_pre_hook(
            lambda _, args, inputs=inputs: inputs.append(args[0])
        )
        obs = observations(env)
        encoder(obs)
        torch.testing.assert_close(inputs[0], obs.float() / factor, rtol=1e-6, atol=0)


@pytest.mark.parametrize("env", [FRAMES, GRID], ids=["frames", "grid"])
def test_the_memory_layout_of_images_does_not_matter(env: EnvSpec) -> None:
    encoder = make_encoder(env, NetSpec(width=4), "default")
    inputs: list[Tensor] = []
    encoder.layers[0].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    obs = torch.randint(256, (2, *env.obs_shape), dtype=torch.uint8)
    every_other = torch.stack([obs, obs], 1).unbind(1)[0]  # strided, as from a replay
    last = obs.contiguous(memory_format=torch.channels_last)
    for images in (obs, every_other, last, obs.float()):
        before = images.clone()
        encoder(images)
        assert torch.equal(images, before)
        assert torch.equal(inputs[-1], obs.float() * encoder.scale)
        assert inputs[-1].is_contiguous(memory_format=torch.channels_last)
