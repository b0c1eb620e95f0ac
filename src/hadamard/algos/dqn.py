"""DQN: one-step Q-learning on replayed transitions against a target network."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hadamard.compute import optimizers
from hadamard.compute.adam import Adam
from hadamard.compute.flat import FlatParameters
from hadamard.compute.jit import compiler, jit
from hadamard.core import require
from hadamard.core.config import NetSpec, RunSpec, TrainSpec
from hadamard.core.random import Counters, Random, child_seed, seeded
from hadamard.core.types import AfterUpdate, EnvSpec, Extra, Metrics, Part, Step
from hadamard.learning.explore import epsilon_greedy, epsilon_greedy_from
from hadamard.learning.replay import Batch, Indices, Replay, Storage, capacity_for
from hadamard.learning.replay.bits import BitReplay
from hadamard.learning.schedule import linear
from hadamard.nets.heads import QNetwork

ACTIONS, ENV = "discrete", "minatar/breakout"
NET = NetSpec(where="last")
SUITES = {
    # Exploration, replay and start of learning of the MinAtar paper's DQN; the rest as for Atari.
    "minatar": {
        "net.width": 128,
        "algo.learning_starts": 5_000,
        "algo.epsilon_steps": 100_000,
        "algo.replay_capacity": 100_000,
        "train.steps": 5_000_000,
    },
    # What rl-baselines3-zoo tuned for LunarLander and Acrobot. There learning starts at once; here
    # it starts as late as in the zoo's CartPole.
    "gym": {
        "net.width": 256,
        "algo.learning_rate": 6.3e-4,
        "algo.batch_size": 128,
        "algo.update_period": 1,
        "algo.target_period": 250,
        "algo.learning_starts": 1_000,
        "algo.epsilon_steps": 12_000,
        "algo.replay_capacity": 50_000,
        "train.steps": 100_000,
        "train.threads": 1,
    },
    "probe": {"algo.learning_starts": 1_000, "algo.epsilon_steps": 5_000},
}
SHORT_WARM_UP = {"learning_starts": 1_000}
"""Settings with which a speed measurement is soon past the warm-up."""


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
    """Share of random actions at the end."""
    epsilon_steps: int = 1_000_000
    """Agent steps over which the share decreases linearly; the paper's table has the same number
    of frames."""
    replay_capacity: int = 1_000_000
    """Transitions kept; each frame is stored once."""
    replay_storage: Storage = "auto"
    """Where the frames are kept; auto: on the GPU, if they fill at most half of its free memory."""

    def check(self, train: TrainSpec) -> None:
        """Refuse settings out of range."""
        require.fraction(self, "gamma", "epsilon_initial", "epsilon_final")
        require.learning(self, "learning_starts", train)
        require.positive(self, "batch_size", "update_period", "target_period")


class DQN:
    """The agent: an online network that acts and learns, and a target network."""

    settled = True  # every step is stored at once: nothing is half collected

    def __init__(self, env: EnvSpec, run: RunSpec[Config], device: torch.device) -> None:
        self.config = config = run.algo
        self.num_envs, self.num_actions, self.device = config.num_envs, env.num_actions, device
        with seeded(child_seed(run.seed, 0)):
            self.network = QNetwork(env, run.net).to(device)
            self.target = QNetwork(env, run.net).to(device)
        self.target.load_state_dict(self.network.state_dict())
        self.weights = FlatParameters(self.network)
        compiled = compiler(run.train.compile, device)
        self.optimizer = optimizers.make_for_vector(
            Adam,
            self.weights.vector,
            config.learning_rate,
            device,
            compiled,
            eps=config.adam_epsilon,
        )
        self.random = Random(child_seed(run.seed, 1))
        self.sampling_random = Random(child_seed(run.seed, 2))
        self.counters = Counters(steps=0, updates=0)
        self.after_update: AfterUpdate | None = None
        self.parts: dict[str, Part] = {
            "network": self.network,
            "target": self.target,
            "optimizer": optimizers.OptimizerState(self.optimizer),
            "random": self.random,
            "sampling_random": self.sampling_random,
            "counters": self.counters,
        }
        self.loss = compiled(self._loss)
        self.learn = jit(self._learn, device, [self.network, self.optimizer], run.train.capture)
        self.choose_greedily = jit(
            self._choose_greedily, device, [], run.train.capture, reuse_output=True
        )
        capacity = capacity_for(config.replay_capacity, run.train.steps, config.num_envs)
        if run.train.fleet == "on" and env.on_device:  # the fleet stores and draws
            bit_replay = BitReplay(env, capacity, device)
            self.parts["replay"], self.begin = bit_replay, bit_replay.begin
        else:
            storage = config.replay_storage
            self.replay = Replay(
                env, config.num_envs, capacity, device, storage, run.run_dir, on_host=True
            )
            self.parts["replay"], self.begin = self.replay, self.replay.begin
            frames = self.replay.frames.device
            self.fetch = jit(self._fetch, frames, [], run.train.capture, reuse_output=True)

    def epsilon(self, step: int) -> float:
        """Return the share of random actions at a step."""
        c = self.config
        return linear(c.epsilon_initial, c.epsilon_final, c.epsilon_steps, step)

    def act(self, obs: Tensor, step: int) -> tuple[Tensor, Extra]:
        """Act epsilon-greedily."""
        epsilon, generator = self.epsilon(step), self.random.generator
        action, _ = epsilon_greedy(self.choose_greedily, obs, self.num_actions, epsilon, generator)
        return action, {}

    def act_greedily(self, obs: Tensor) -> Tensor:
        """Take the actions of the largest values."""
        return self.choose_greedily(obs)["action"].cpu()

    @torch.no_grad()
    def _choose_greedily(self, obs: Tensor) -> Metrics:
        return {"action": self.network(obs).argmax(1)}

    # What a fleet computes for many runs at once: functions of the weights and the arguments.

    fleet_kind = "replay"
    per_run = ("learning_rate", "epsilon_initial", "epsilon_final", "epsilon_steps")
    choice_draws = 2
    exploration = epsilon

    @torch.no_grad()
    def choose(self, obs: Tensor, draws: Tensor, epsilon: Tensor) -> Metrics:
        """Choose epsilon-greedily with two uniform numbers for each observation."""
        greedy = self._choose_greedily(obs)["action"]
        action = epsilon_greedy_from(greedy, draws, epsilon, self.num_actions)
        return {"action": action, "greedy": greedy}

    def updates_due(self, steps: int) -> int:
        """Return how many updates a run has made after so many steps."""
        c = self.config
        if steps <= c.learning_starts:
            return 0
        last_without_update = c.learning_starts // self.num_envs * self.num_envs
        return steps // c.update_period - last_without_update // c.update_period

    @property
    def learns_next(self) -> bool:
        """Whether updates follow the next step."""
        steps = self.counters["steps"]
        return self.updates_due(steps + self.num_envs) > self.updates_due(steps)

    def learn_ahead(self) -> Metrics | None:
        """Make updates that are due after the step in flight, until one would sample that step."""
        metrics: Metrics | None = None
        next_step = self.counters["steps"] + self.num_envs
        while self.counters["updates"] < self.updates_due(next_step):
            indices = self.replay.draw_ahead(self.config.batch_size, self.sampling_random.generator)
            if indices is None:
                break
            metrics = self._update(indices)
        return metrics

    def observe(self, obs: Tensor, action: Tensor, extra: Extra, step: Step) -> Metrics | None:
        """Store the step; update every few steps, and copy to the target network now and then."""
        del obs, extra  # the replay has the frames already
        c, counters = self.config, self.counters
        self.replay.add(action, step)
        previous_steps = counters["steps"]
        counters["steps"] += self.num_envs
        metrics: Metrics | None = None
        while counters["updates"] < self.updates_due(counters["steps"]):
            indices = self.replay.draw(c.batch_size, self.sampling_random.generator)
            metrics = self._update(indices)
        if self.target_due(previous_steps, counters["steps"]):
            self.target.load_state_dict(self.network.state_dict())
        return metrics

    def target_due(self, before: int, after: int) -> bool:
        """Tell whether the target network is replaced between two step counts."""
        c = self.config
        return after > c.learning_starts and after // c.target_period > before // c.target_period

    def _update(self, indices: Indices) -> Metrics:
        batch = Batch(**self.fetch(self.replay.pack(indices)))
        metrics = self.learn(*batch)
        self.counters["updates"] += 1
        if self.after_update is not None:
            self.after_update(self.counters["updates"], batch.obs)
        return metrics

    def _fetch(self, packed: Tensor) -> Metrics:
        return self.replay.unpack(packed)._asdict()

    def _learn(self, *batch: Tensor) -> Metrics:
        loss, value = self.loss(*batch)
        self.weights.backward(loss)
        self.optimizer.step()
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
        """Return the present value of everything that changes on a schedule."""
        return {"epsilon": self.epsilon(self.counters["steps"])}


build = DQN
