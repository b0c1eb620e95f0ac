"""What training does differently on a GPU: where frames live, and going on after a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hadamard import envs
from hadamard.core import checkpoint, optimisers
from hadamard.core.config import RunSpec, overridden, to_dict
from hadamard.core.flat import moments
from hadamard.core.replay import Draw, Replay
from hadamard.core.run import Run
from hadamard.core.types import EnvSpec, Step
from hadamard.experiments.bench import Quiet
from hadamard.train import Trainer, default_spec, train
from updates import agent_of, batch_of

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda")
FRAMES = EnvSpec((4, 12, 12), torch.uint8, 3, frames=4)


def filled(storage: Any, steps: int) -> Replay:
    """A replay after steps of two environments, with resets and a wrap-around."""
    draw = torch.Generator().manual_seed(0)

    def observations() -> torch.Tensor:
        shape = (2, *FRAMES.obs_shape)
        return torch.randint(256, shape, dtype=torch.uint8, generator=draw).to(DEVICE)

    replay = Replay(FRAMES, 2, 128, DEVICE, storage)
    replay.begin(observations())
    for t in range(steps):
        ended = torch.tensor([t % 2]) if t % 7 == 6 else None
        step = Step(
            obs=observations(),
            reward=torch.rand(2, generator=draw).to(DEVICE),
            terminated=torch.tensor([t % 5 == 0, t % 7 == 6], device=DEVICE),
            truncated=torch.zeros(2, dtype=torch.bool, device=DEVICE),
            final_index=ended,
            final_obs=None if ended is None else observations()[:1],
        )
        replay.add(torch.randint(3, (2,), generator=draw), step)
    return replay


def test_frames_on_the_gpu_are_the_frames_in_memory(tmp_path: Path) -> None:
    memory, device = filled("memory", 150), filled("device", 150)
    assert device.frames.device.type == DEVICE.type
    state = device.save_increment(tmp_path)
    restored = Replay(FRAMES, 2, 128, DEVICE, "device")
    restored.load_increment(tmp_path, state)
    for seed in range(20):
        drawn = device.draw(32, torch.Generator().manual_seed(seed))
        there = Draw(drawn.envs.cpu(), drawn.slots.cpu())
        assert bool(memory.usable[there.envs, there.slots].all())
        found = [
            (replay.observations(where, 0, 2), *replay.steps(where, 1))
            for replay, where in ((memory, there), (device, drawn), (restored, drawn))
        ]
        for ours, on_device, loaded in zip(*found, strict=True):
            assert ours.device.type == on_device.device.type == DEVICE.type
            assert torch.equal(ours, on_device)
            assert torch.equal(ours, loaded)
    assert torch.equal(memory.usable, device.usable.cpu())


def test_frames_in_memory_are_drawn_by_a_generator_on_the_gpu() -> None:
    replay = filled("memory", 150)
    drawn = [replay.draw(64, torch.Generator(DEVICE).manual_seed(seed)) for seed in (1, 1, 2)]
    assert bool(replay.usable[drawn[0].envs, drawn[0].slots].all())
    assert torch.equal(drawn[0].slots, drawn[1].slots)
    assert not torch.equal(drawn[0].slots, drawn[2].slots)


def test_captured_fetching_is_eager_fetching() -> None:
    changes = {"net.width": 32, "algo.replay_capacity": 512}
    slow = {**changes, "train.capture": False}
    fast, eager = (agent_of("dqn", torch.float32, c, DEVICE) for c in (changes, slow))
    assert eager.fetch == eager._fetch
    assert fast.fetch != fast._fetch
    for agent in (fast, eager):
        replay = agent.replay
        assert replay.frames.device.type == DEVICE.type
        assert replay.reward.device.type == replay.usable.device.type == "cpu"
        replay.frames.random_(generator=torch.Generator(DEVICE).manual_seed(0))
        for held in (replay.action, replay.reward):
            held.random_(3, generator=torch.Generator().manual_seed(1))
        replay.terminated[:, ::3] = True
        replay.usable[:, 100:200] = True
        replay.pushed, replay.ages = [220], [50]
    for update in range(20):
        packed = [a.replay.packed(a.replay.draw(32, a.luck.generator)) for a in (fast, eager)]
        assert torch.equal(*packed)
        batches = fast.fetch(packed[0]), eager.fetch(packed[1])
        for name in batches[1]:
            assert batches[0][name].device.type == DEVICE.type
            assert torch.equal(batches[0][name], batches[1][name])
        for agent in (fast, eager):  # what is stored since is found, too
            agent.replay.frames[:, 100 + update] = update


def settings(algorithm: str, folder: Path, **changes: Any) -> RunSpec[Any]:
    small = {
        "device": str(DEVICE),
        "run_dir": str(folder),
        "net.layer": "hadamard",
        "net.activation": "tanh",
        "net.width": 32,
        "train.steps": 1_536,
        "train.log_every": 256,
        "train.health_every": 512,
        "train.health_samples": 128,
        "train.checkpoint_every": 512,
        "train.tensorboard": False,
        **(
            {"algo.learning_starts": 64, "algo.replay_storage": "device"}
            if algorithm == "dqn"
            else {"algo.num_envs": 8, "algo.rollout_steps": 16, "algo.minibatches": 4}
        ),
    }
    spec: RunSpec[Any] = overridden(default_spec(algorithm, "probe/image"), {**small, **changes})
    return spec


@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
def test_a_run_is_trained_saved_and_gone_on_with(algorithm: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    spec = settings(algorithm, folder)
    trainer = Trainer(algorithm, spec)
    run = Run.create(folder, {"algorithm": algorithm, "spec": to_dict(spec)})
    trainer.open(run, Quiet, resume=False)
    while trainer.step < 768 or not trainer.settled:
        trainer.start_step()
        trainer.finish_step()
    trainer.save()
    trainer.close()
    saved = [p.detach().clone() for p in trainer.agent.network.parameters()]
    again = Trainer(algorithm, spec)
    again.open(Run.open(folder), Quiet, resume=True)
    assert again.step == trainer.step
    for ours, theirs in zip(saved, again.agent.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    for group in again.agent.optimiser.param_groups:
        assert torch.as_tensor(group["lr"]).device.type == DEVICE.type
    while again.step < spec.train.steps or not again.settled:
        again.start_step()
        again.finish_step()
    (held,) = again.agent.optimiser.state.values()
    assert held["step"].device.type == DEVICE.type
    assert int(held["step"]) == again.agent.counters["updates"]  # counted on in the graph
    changed = [
        not torch.equal(a, b) for a, b in zip(saved, again.agent.network.parameters(), strict=True)
    ]
    assert all(changed)
    again.close()
    assert [row["step"] for row in Run.open(folder).rows("health")] == [512, 1024, 1536]
    assert checkpoint.newest(folder / "checkpoints").name == "step-000000001536"


@pytest.mark.filterwarnings("ignore")  # the compiler has opinions on TF32
@pytest.mark.parametrize("compile", ["off", "on"])
@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("layer", ["plain", "hadamard"])
@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
def test_captured_learning_is_that_of_each_parameter(
    algorithm: str,
    layer: str,
    norm: str,
    compile: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Convolutions may run in TF32 by default, and differently from call to call.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    torch._dynamo.reset()  # it compiles one function for few networks only
    changes = {"net.layer": layer, "net.norm": norm, "train.compile": compile}
    spec = settings(algorithm, tmp_path / "run", **changes)
    trainers = [Trainer(algorithm, spec) for _ in range(2)]
    captured, eager = (trainer.agent for trainer in trainers)
    # Eagerly, by PyTorch's own parts, parameter by parameter.
    parameters = list(eager.network.parameters())
    kind = getattr(torch.optim, type(eager.optimiser).__name__)
    told = {name: eager.optimiser.defaults[name] for name in ("lr", "betas", "eps")}
    plain = kind(parameters, **told, capturable=True)
    batch = batch_of(algorithm, trainers[0].envs.spec, 32, DEVICE)
    start = [p.detach().clone() for p in parameters]
    place = captured.weights.whole.data_ptr()
    for i in range(20):
        for optimiser in (captured.optimiser, plain):
            optimisers.set_learning_rate(optimiser, 1e-3 / (1 + i // 5))
        ours = captured.learn(*batch)
        plain.zero_grad()
        loss = eager._loss(*batch)[0]
        loss.backward()
        if hasattr(eager.config, "max_grad_norm"):
            torch.nn.utils.clip_grad_norm_(parameters, eager.config.max_grad_norm)
        plain.step()
        torch.testing.assert_close(ours["loss"], loss.detach(), rtol=1e-3, atol=1e-4)
    for before, mine, theirs in zip(start, captured.network.parameters(), parameters, strict=True):
        moved = (theirs - before).norm().item()
        assert moved > 0
        assert (mine - theirs).norm().item() < 5e-3 * moved
    # The graph works on the one buffer still, and what is changed there from outside it sees.
    assert captured.weights.whole.data_ptr() == place
    for parameter in captured.network.parameters():
        assert parameter.untyped_storage().data_ptr() == place
        assert len(list(moments(captured.optimiser, parameter))) == 2
    with torch.no_grad():
        for part in (captured.network, eager.network):
            next(part.parameters()).zero_()
    ours, loss = captured.learn(*batch)["loss"], eager._loss(*batch)[0].detach()
    torch.testing.assert_close(ours, loss, rtol=1e-3, atol=1e-4)
    for trainer in trainers:
        trainer.close()


@pytest.mark.filterwarnings("ignore")  # the compiler has opinions on TF32
@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
@pytest.mark.parametrize(
    ("layer", "activation"),
    [
        ("plain", "relu"),
        ("plain", "tanh"),
        ("layernorm", "tanh"),
        ("hadamard", "tanh"),
        ("hadamard", "relu"),
        ("hadamard2", "tanh"),
        ("widened", "relu"),
        ("crelu", "relu"),
    ],
)
def test_a_thousand_fast_updates_are_eager_ones(
    layer: str, activation: str, algorithm: str
) -> None:
    # In double precision: what parts the two is rounding alone, not another function.
    torch._dynamo.reset()  # it compiles one function for few networks only
    asked = {"net.layer": layer, "net.activation": activation}
    slow = {**asked, "train.capture": False, "train.compile": "off"}
    fast, eager = (agent_of(algorithm, torch.float64, c, DEVICE) for c in (asked, slow))
    assert eager.learn == eager._learn
    assert fast.learn != fast._learn
    start = eager.weights.whole.detach().clone()
    for _ in range(1_000):
        drawn = batch_of(algorithm, size=16, device=DEVICE)
        batch = [part.double() if part.is_floating_point() else part for part in drawn]
        fast.learn(*batch)
        eager.learn(*batch)
    theirs = eager.weights.whole.detach()
    assert (theirs - start).abs().max() > 0.03
    assert (fast.weights.whole.detach() - theirs).abs().max() < 1e-9


@pytest.mark.parametrize("search", [True, False])
def test_convolutions_are_searched_as_asked(search: bool, tmp_path: Path) -> None:
    before = torch.backends.cudnn.benchmark
    spec = settings("pqn", tmp_path / "run", **{"train.conv_search": search})
    trainer = Trainer("pqn", spec)
    trainer.open(Run.create(tmp_path / "run", {}), Quiet, resume=False)
    assert torch.backends.cudnn.benchmark == search
    trainer.close()
    assert torch.backends.cudnn.benchmark == before


@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
def test_a_policy_is_learned(algorithm: str, tmp_path: Path) -> None:
    steps = 4_096 if algorithm == "dqn" else 16_384
    changes: dict[str, Any] = {"train.steps": steps, "algo.learning_rate": 1e-3}
    if algorithm == "dqn":
        changes |= {"algo.epsilon_steps": 1_000, "algo.target_period": 100}
    summary = train(algorithm, settings(algorithm, tmp_path / "run", **changes), Quiet)
    assert summary["score"] > 0.6  # 0 by chance, 1 at best


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("atari_reset", ["cleanrl", "envpool"])
def test_stacks_on_the_gpu_are_the_stacks_in_memory(workers: int, atari_reset: str) -> None:
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    draw = torch.Generator().manual_seed(0)
    both = [
        envs.make("atari/Breakout", 5, 4, device, workers=workers, atari_reset=atari_reset)
        for device in ("cpu", DEVICE)
    ]
    assert torch.equal(*(made.reset().cpu() for made in both))
    ended = 0
    for _ in range(400):
        action = torch.randint(4, (4,), generator=draw)
        here, there = (made.step(action) for made in both)
        assert there.obs.device.type == DEVICE.type
        for name in ("obs", "next_obs", "reward", "terminated", "truncated"):
            assert torch.equal(getattr(here, name), getattr(there, name).cpu())
        ended += len(here.episodes)
    assert ended > 0
    for made in both:
        made.close()
