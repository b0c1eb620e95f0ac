"""Run purejaxql's PQN on MinAtar, many seeds at once, and print its speed.

    python benchmarks/purejaxql.py PUREJAXQL --seeds 32 [--game Breakout] [--steps 2000000]

PUREJAXQL is a checkout of github.com/mttga/purejaxql; JAX, Flax, Optax, Chex and Gymnax 0.0.9 must
be installed. Its training function runs unchanged with its published settings, without greedy
tests. After compiling, ``READY seconds`` is printed; with ``--wait`` it then waits for a line, so
that ``bench_fleet.py --purejaxql`` measures it in its turn. ``SPS: number`` is the speed
of all seeds together, in steps per second.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import types
from pathlib import Path
from typing import Any

SETTINGS: dict[str, Any] = {
    "NUM_ENVS": 128,
    "NUM_STEPS": 32,
    "EPS_START": 1.0,
    "EPS_FINISH": 0.05,
    "EPS_DECAY": 0.1,
    "NUM_MINIBATCHES": 32,
    "NUM_EPOCHS": 2,
    "NORM_TYPE": "layer_norm",
    "LR": 0.0005,
    "MAX_GRAD_NORM": 10,
    "LR_LINEAR_DECAY": True,
    "GAMMA": 0.99,
    "LAMBDA": 0.65,
    "TOTAL_TIMESTEPS_DECAY": 1e7,
    "TEST_DURING_TRAINING": False,
    "WANDB_MODE": "disabled",
}
"""Those of its configuration for MinAtar."""
UNUSED = ("wandb", "hydra", "omegaconf", "seaborn", "matplotlib", "matplotlib.pyplot")
"""Packages that it imports and that training does not use."""


class Nothing(types.ModuleType):
    """A module any attribute of which can be called and does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: lambda function=None: function


def main() -> None:
    """Compile, wait, and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("purejaxql", type=Path)
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--game", default="Breakout")
    parser.add_argument("--steps", type=int, default=2_000_000, help="of each seed")
    parser.add_argument("--wait", action="store_true", help="for a line before measuring")
    options = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others measure on this GPU
    sys.modules.update({name: Nothing(name) for name in UNUSED})
    sys.path.insert(0, str(options.purejaxql))
    import jax

    train = importlib.import_module("purejaxql.pqn_minatar").make_train(
        {**SETTINGS, "ENV_NAME": f"{options.game}-MinAtar", "TOTAL_TIMESTEPS": options.steps}
    )
    seeds = jax.random.split(jax.random.PRNGKey(0), options.seeds)
    start = time.perf_counter()
    compiled = jax.jit(jax.vmap(train)).lower(seeds).compile()
    jax.block_until_ready(seeds)
    print(f"READY {time.perf_counter() - start:.1f}", flush=True)
    if options.wait:
        sys.stdin.readline()
    start = time.perf_counter()
    jax.block_until_ready(compiled(seeds))
    seconds = time.perf_counter() - start
    period = SETTINGS["NUM_ENVS"] * SETTINGS["NUM_STEPS"]
    print(f"SPS: {options.steps // period * period * options.seeds / seconds:.1f}", flush=True)


if __name__ == "__main__":
    main()
