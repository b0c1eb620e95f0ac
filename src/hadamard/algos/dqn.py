"""DQN: one-step Q-learning on replayed transitions against a target network."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hadamard.core import optimisers
from hadamard.core.adam import Adam
from hadamard.core.config import NetSpec, RunSpec, require_positive
from hadamard.core.explore import epsilon_greedy
from hadamard.core.flat import FlatParameters
from hadamard.core.jit import compiler, jit
from hadamard.core.random import Counters, Random, child_seed, seeded
from hadamard.core.replay import Batch, Draw, Replay, Storage
from hadamard.core.schedule import linear
from hadamard.core.types import AfterUpdate, EnvSpec, Extra, Incremental, Metrics, Stateful, Step
from hadamard.nets.heads import QNetwork

ACTIONS, ENV = "discrete", "minatar/breakout"
NET = NetSpec(where="last")


@dataclass(frozen=True)
class Config:
    """DQN's settings; the defaults are the paper's for Atari."""

    num_envs: int = 1
    """Environments stepped together."""
    learning_rate: float = 1e-4
    """Adam's learning rate."""
    adam_epsilon: float = 1e-5
    """Adam's epsilon."""
    gamma: float = 0.99
    """Discount."""
    batch_size: int = 32
    """Transitions in an update."""
    update_period: int = 4
    """Steps between updates."""
    target_period: int = 1_000
    """Steps between copies of the network to the target network."""
    learning_starts: int = 80_000
    """Steps before the first update."""
    epsilon_initial: float = 1.0
    """Share of random actions at the start."""
    epsilon_final: float = 0.1
    """Share of random actions in the end."""
    epsilon_steps: int = 1_000_000
    """Steps over which it falls: agent steps, as learning_starts, where the paper's table says
    frames."""
    replay_capacity: int = 1_000_000
    """Transitions kept; each frame is stored once."""
    replay_storage: Storage = "auto"
    """Where the frames are kept; auto is on the GPU, if they fill at most half of what is free."""


class DQN:
    """The agent."""

    settled = True  # every step is stored whole

    def __init__(self, env: EnvSpec, run: RunSpec[Config], device: torch.device) -> None:
        self.config = config = run.algo
        require_positive(config, "batch_size", "update_period", "target_period")
        self.num_envs, self.num_actions, self.device = config.num_envs, env.num_actions, device
        with seeded(child_seed(run.seed, 0)):
            self.network = QNetwork(env, run.net).to(device)
            self.target = QNetwork(env, run.net).to(device)
        self.target.load_state_dict(self.network.state_dict())
        self.weights = FlatParameters(self.network)
        compiled = compiler(run.train.compile, device)
        self.optimiser = optimisers.in_one_pass(
            Adam,
            self.weights.whole,
            config.learning_rate,
            device,
            compiled,
            eps=config.adam_epsilon,
        )
        # Without this, a short run would reserve room for far more than it will see.
        capacity = min(config.replay_capacity, 2 * run.train.steps + 64 * config.num_envs)
        storage = config.replay_storage
        where = device, storage, run.run_dir
        self.replay = Replay(env, config.num_envs, capacity, *where, on_host=True)
        self.random = Random(child_seed(run.seed, 1))
        self.luck = Random(child_seed(run.seed, 2))
        self.counters = Counters(steps=0, updates=0)
        self.ahead = 0  # steps that were chosen and not yet observed
        self.made = 0  # updates that were made ahead of the step that they follow
        self.metrics: Metrics | None = None  # of the newest of them
        self.after_update: AfterUpdate | None = None
        self.parts: dict[str, Stateful | Incremental] = {
            "network": self.network,
            "target": self.target,
            "optimiser": optimisers.OptimiserState(self.optimiser),
            "replay": self.replay,
            "random": self.random,
            "luck": self.luck,
            "counters": self.counters,
        }
        self.loss = compiled(self._loss)
        self.learn = jit(self._learn, device, [self.network, self.optimiser], run.train.capture)
        self.look = jit(self._look, device, [], run.train.capture, lent=True)
        place = self.replay.frames.device
        self.fetch = jit(self._fetch, place, [], run.train.capture, lent=True)

    @property
    def due(self) -> int:
        """Updates that follow the next step to be observed."""
        c, before = self.config, self.counters["steps"]
        after = before + self.num_envs
        if after <= c.learning_starts:
            return 0
        return after // c.update_period - before // c.update_period

    @property
    def learns_next(self) -> bool:
        """When an update comes due."""
        return self.due > 0

    def begin(self, obs: Tensor) -> None:
        """Start episodes in the replay."""
        self.replay.begin(obs)

    @property
    def epsilon(self) -> float:
        """The share of random actions now."""
        c = self.config
        steps = self.counters["steps"] + self.ahead
        return linear(c.epsilon_initial, c.epsilon_final, c.epsilon_steps, steps)

    def act(self, obs: Tensor, *, explore: bool = True) -> tuple[Tensor, Extra]:
        """Act epsilon-greedily."""
        epsilon = self.epsilon if explore else 0.0
        self.ahead += len(obs) if explore else 0
        action, _ = epsilon_greedy(self.look, obs, self.num_actions, epsilon, self.random.generator)
        return action, {}

    @torch.no_grad()
    def _look(self, obs: Tensor) -> Metrics:
        return {"action": self.network(obs).argmax(1)}

    def learn_ahead(self) -> None:
        """Make updates that are due after the step under way, until one may draw that step."""
        for _ in range(self.due - self.made):
            drawn = self.replay.draw_ahead(self.config.batch_size, self.luck.generator)
            if drawn is None:
                return
            self._update(drawn)
            self.made += 1

    def observe(self, obs: Tensor, action: Tensor, extra: Extra, step: Step) -> Metrics | None:
        """Store the transition; update every few steps, and the target network now and then."""
        del obs, extra  # the replay has the frames already
        c, counters = self.config, self.counters
        due, self.made = self.due - self.made, 0
        self.replay.add(action, step)
        before = counters["steps"]
        counters["steps"] += self.num_envs
        self.ahead = max(0, self.ahead - self.num_envs)
        for _ in range(due):
            self._update(self.replay.draw(c.batch_size, self.luck.generator))
        starts = counters["steps"] > c.learning_starts
        if starts and counters["steps"] // c.target_period > before // c.target_period:
            self.target.load_state_dict(self.network.state_dict())
        metrics, self.metrics = self.metrics, None
        return metrics

    def _update(self, drawn: Draw) -> None:
        batch = Batch(**self.fetch(self.replay.packed(drawn)))
        self.metrics = self.learn(*batch)
        self.counters["updates"] += 1
        if self.after_update is not None:
            self.after_update(self.counters["updates"], batch.obs)

    def _fetch(self, packed: Tensor) -> Metrics:
        return self.replay.unpacked(packed)._asdict()

    def _learn(self, *batch: Tensor) -> Metrics:
        loss, value = self.loss(*batch)
        self.weights.backward(loss)
        self.optimiser.step()
        return {"loss": loss.detach(), "value": value}

    def _loss(
        self, obs: Tensor, action: Tensor, reward: Tensor, terminated: Tensor, next_obs: Tensor
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            best = self.target(next_obs).amax(1)
            target = reward + self.config.gamma * (~terminated).float() * best
        value = self.network(obs).gather(1, action.unsqueeze(1)).squeeze(1)
        return F.mse_loss(value, target), value.detach().mean()

    def schedules(self) -> dict[str, float]:
        """Return what changes over training by plan."""
        return {"epsilon": self.epsilon}


build = DQN
