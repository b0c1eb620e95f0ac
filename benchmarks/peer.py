"""Run another project's training script here, and print its speed.

    python benchmarks/peer.py --period 128 leanrl/ppo_atari_envpool_torchcompile.py --compile
    python benchmarks/peer.py --period 128 cleanrl/ppo_atari_envpool.py
    python benchmarks/peer.py --period 4 --warm 260 cleanrl/dqn_atari.py --learning-starts 1000

Meant for ``bench_atari.py --peer NAME COMMAND``. The script runs unchanged but for what it imports:
``envpool`` and Gymnasium's ``SyncVectorEnv`` of Atari games are ale-py's vector environment (ours
plays emulators of its own, see ``bench_emulators.py``), with the rules of training; ``envpool`` of
a task such as ``minatar/breakout`` is our environment of that name; ``gym``, ``wandb`` and
TensorBoard's writer do nothing. ``--period`` steps of all environments
are one iteration of the script; ``--warm`` iterations are left out, whole ones are timed for
``--seconds``, ``SPS: number`` is printed, and the script ends there. ``--replace`` changes a piece
of its text, for a script that is older than the packages it runs with, or of another network.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces, vector
from numpy.typing import NDArray

INFO = ("reward", "terminated", "lives", "TimeLimit.truncated", "elapsed_step")


class Meter:
    """Counts steps, and ends the program when enough of them are timed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.steps = options, 0
        self.first, self.start = 0, 0.0

    def tick(self, count: int) -> None:
        """Count a step of so many environments, which is about to begin."""
        iteration, within = divmod(self.steps, self.options.period)
        now = time.perf_counter()
        if within == 0 and iteration == self.options.warm:
            self.first, self.start = self.steps, now
        elif within == 0 and self.start and now - self.start >= self.options.seconds:
            rate = (self.steps - self.first) * (self.options.counted or count) / (now - self.start)
            print(f"\nSPS: {rate:.1f}", flush=True)
            os._exit(0)
        self.steps += 1


class Pool:
    """What ``envpool.make`` returns to users of gym."""

    meter: Meter

    def __init__(
        self, task: str, *_: Any, num_envs: int = 1, seed: int = 0, **settings: Any
    ) -> None:
        from ale_py.vector_env import AtariVectorEnv

        game = re.sub(r"(?<!^)(?=[A-Z])", "_", re.sub(r"(NoFrameskip)?-v\d", "", task)).lower()
        # A lost life would restart the whole game there; it only ends an episode here, as in ours.
        self.env = AtariVectorEnv(
            game,
            num_envs,
            noop_max=30,
            max_num_frames_per_episode=1_000_000_000,
            repeat_action_probability=0.0,
            reward_clipping=False,
            episodic_life=False,
            autoreset_mode=vector.AutoresetMode.SAME_STEP,
        )
        self.num_envs, self.seed = num_envs, seed
        self.clips = bool(settings.get("reward_clip"))
        self.episodic = bool(settings.get("episodic_life"))
        self.action_space = spaces.Discrete(len(self.env.ale.get_action_set()))
        self.observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
        self.elapsed = np.zeros(num_envs, np.int32)
        self.lives = np.zeros(num_envs, np.int32)

    def reset(self, **_: Any) -> NDArray[np.uint8]:
        """Start new games."""
        obs: NDArray[np.uint8]
        obs, info = self.env.reset(seed=self.seed)
        self.lives = info["lives"]
        return obs

    def step(
        self, action: Any
    ) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Play a step, as old gym has it."""
        self.meter.tick(self.num_envs)
        obs, reward, over, _, info = self.env.step(np.asarray(action))
        lives = info["lives"]
        done = over | ((lives < self.lives) & (lives > 0)) if self.episodic else over
        self.lives = lives
        self.elapsed = np.where(over, 0, self.elapsed + 1).astype(np.int32)
        reward = reward.astype(np.float32)
        values = (reward, over.astype(np.int32), lives, np.zeros_like(lives), self.elapsed)
        learned = np.clip(reward, -1, 1) if self.clips else reward
        return obs, learned, done, dict(zip(INFO, values, strict=True))

    def xla(self) -> tuple[Any, None, None, Any]:
        """Step inside of a compiled JAX program, by calling back; the handle keeps the order."""
        import jax
        from jax.experimental import io_callback

        count, shape = self.num_envs, jax.ShapeDtypeStruct
        info = {
            name: shape((count,), np.float32 if name == "reward" else np.int32) for name in INFO
        }
        stepped = (shape((count, 4, 84, 84), np.uint8), shape((count,), np.float32))
        result = (shape((), np.int32), (*stepped, shape((count,), np.bool_), info))

        def step(handle: Any, action: Any) -> Any:
            return io_callback(lambda h, a: (np.int32(h + 1), self.step(a)), result, handle, action)

        return np.int32(0), None, None, step

    def close(self) -> None:
        """Stop the emulators."""
        self.env.close()


class OwnPool:
    """The same for our environments of any suite, whose tasks are named ``suite/task``."""

    meter: Meter

    def __init__(self, task: str, *_: Any, num_envs: int = 1, seed: int = 0, **__: Any) -> None:
        from hadamard import envs

        self.envs = envs.make(task, seed, num_envs)
        self.num_envs = num_envs
        spec = self.envs.spec
        self.action_space = spaces.Discrete(spec.num_actions)
        self.observation_space = spaces.Box(0, 255, spec.obs_shape, np.uint8)

    def reset(self, **_: Any) -> NDArray[Any]:
        """Start new episodes."""
        return self.envs.reset().numpy()

    def step(self, action: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Play a step, as old gym has it."""
        self.meter.tick(self.num_envs)
        step = self.envs.step(torch.as_tensor(np.asarray(action)))
        reward, done = step.reward.numpy(), (step.terminated | step.truncated).numpy()
        nothing = np.zeros(self.num_envs, np.int32)
        values = (reward, done.astype(np.int32), nothing, nothing, nothing)
        return step.obs.numpy(), reward, done, dict(zip(INFO, values, strict=True))

    def close(self) -> None:
        """Free the environments."""
        self.envs.close()


def make_pool(task: str, *words: Any, **settings: Any) -> Pool | OwnPool:
    """Do as ``envpool.make`` does."""
    return (OwnPool if "/" in task else Pool)(task, *words, **settings)


class SingleGame:
    """Gymnasium's ``SyncVectorEnv`` of one game, as CleanRL's DQN uses it."""

    num_envs = 1

    def __init__(self, _makers: Any) -> None:
        self.pool = Pool("Breakout-v5", reward_clip=True, episodic_life=True)
        self.single_action_space = self.pool.action_space
        self.single_observation_space = self.pool.observation_space

    def reset(self, **_: Any) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start a new game."""
        return self.pool.reset(), {}

    def step(self, action: Any) -> tuple[Any, ...]:
        """Play a step, as Gymnasium has it."""
        obs, reward, done, _ = self.pool.step(action)
        return obs, reward, done, np.zeros(1, np.bool_), {}


class Wrapper:
    """Gym's class of this name."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, **settings: Any) -> Any:
        """Forward the call, for subclasses."""
        return self.env.reset(**settings)

    def step(self, action: Any) -> Any:
        """Forward the call, for subclasses."""
        return self.env.step(action)


class Silent:
    """Anything may be called, and nothing happens."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, _: str) -> Any:
        return Silent


def stand_in(name: str, **contents: Any) -> None:
    """Make ``import name`` return a module with these contents."""
    module = types.ModuleType(name)
    module.__dict__.update(contents)
    sys.modules[name] = module


def main() -> None:
    """Prepare what the script imports, and run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--period", type=int, required=True, help="steps in an iteration")
    parser.add_argument("--warm", type=int, default=4, help="iterations that are not timed")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--counted", type=int, default=0, help="environments that count; 0: all")
    parser.add_argument("--replace", nargs=2, action="append", default=[], metavar=("OLD", "NEW"))
    parser.add_argument("script", type=Path)
    options, words = parser.parse_known_args()
    text = options.script.read_text()
    for old, new in options.replace:
        if old not in text:
            parser.error(f"--replace: {options.script} has no {old!r}")
        text = text.replace(old, new)
    Pool.meter = OwnPool.meter = Meter(options)
    stand_in("envpool", make=make_pool)
    stand_in("gym", Wrapper=Wrapper, spaces=spaces, __version__="0.23.1")
    stand_in("wandb", init=Silent, log=Silent)
    stand_in("torch.utils.tensorboard", SummaryWriter=Silent)
    vector.SyncVectorEnv = SingleGame  # type: ignore[misc, assignment]
    # Beside its script are the modules that it imports; the project's are a folder above.
    sys.path[:0] = [str(options.script.parent), str(options.script.parent.parent)]
    sys.argv = [str(options.script), *words]
    place = str(options.script.resolve())
    sys.modules["__main__"].__file__ = place  # some look for their settings beside it
    exec(compile(text, place, "exec"), {"__name__": "__main__", "__file__": place})


if __name__ == "__main__":
    main()
