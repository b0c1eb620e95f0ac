"""SimbaV2: updates per second, and what limits training.

    python benchmarks/bench_simbav2.py [--env humanoid/h1-walk] [--public FOLDER] [--seeds 4]
                                       [--runs 1 16]

HumanoidBench's shapes (51 observations, 19 actions, batch 256), a replay full of random numbers.
The forms take turns in one process and medians are compared. ``--env`` also times whole
interactions there, beside stepping the environment alone; ``--seeds`` runs several learners at
once, one process each; ``--runs`` trains them as fleets, without environments and, with ``--env``,
whole, for ``--seconds`` each; ``--public`` times a checkout of the published JAX code on the same
machine (its agent with both normalizers and its buffer, as its own loop uses them).
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hadamard import envs
from hadamard.algos.simbav2 import SimbaV2
from hadamard.core.config import overridden
from hadamard.core.machine import choose_device
from hadamard.core.types import EnvSpec, Step
from hadamard.experiments.fleet_bench import TimedFleet
from hadamard.training import start
from hadamard.training.fleet.soft_actor_critic import SoftActorCritic
from timing import in_turns, machine, print_kernels, seconds_of

SHAPES = EnvSpec((51,), torch.float32, action_size=19, max_steps=500)
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "HR": {"net.layer": "hadamard"},
    "widened": {"net.layer": "widened"},
}


def full_agent(device: torch.device, filled: int = 10_000, **changes: Any) -> SimbaV2:
    """Return an agent whose replay is filled with random transitions."""
    spec = overridden(start.default_spec("simbav2", "humanoid/h1-walk"), changes)
    agent = SimbaV2(SHAPES, spec, device)
    replay, draw = agent.replay, torch.Generator().manual_seed(0)
    rows = replay.frames[0, :filled]
    rows.copy_(torch.randn(rows.shape, generator=draw))
    replay.action[0, :filled] = 2 * torch.rand(filled, 19, generator=draw).to(device) - 1
    replay.reward[0, :filled] = torch.rand(filled, generator=draw).to(device)
    replay.usable[0, : filled - 1] = True
    replay.pushed[0] = filled
    agent.network.normalizer.update(rows)
    agent.update_reward_scale(
        torch.ones(1, device=device), torch.zeros(1, dtype=torch.bool, device=device)
    )
    return agent


def updates(device: torch.device, chosen_ways: list[str]) -> dict[str, float]:
    """Print updates per second of every form, eager, captured and compiled."""
    per_step, count = 2, 200 if device.type == "cuda" else 2
    rates: dict[str, float] = {}
    print("\nupdates (both of an interaction are one call)")
    print(f"{'':<28}{'updates/s':>12}{'ms':>9}{'/ plain':>9}")
    ways: list[tuple[str, bool, bool, bool]] = [("eager", False, False, False)]
    if device.type == "cuda":
        ways += [
            ("graph", True, False, False),
            ("graph, compiled", True, True, False),
            ("graph, compiled, TF32", True, True, True),
        ]
    for way, graph, compiles, tf32 in ways:
        if chosen_ways and way not in chosen_ways:
            continue
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        compiling = {"train.compile": "on" if compiles else "off"}
        agents = {n: full_agent(device, **(form | compiling)) for n, form in FORMS.items()}
        calls: dict[str, Callable[[], object]] = {
            n: agent.learn if graph else agent._learn for n, agent in agents.items()
        }
        times = in_turns(calls, count, 5 if device.type == "cuda" else 3, device)
        for name, seconds in times.items():
            each = seconds / per_step
            rates[f"{name}, {way}"] = 1 / each
            ratio = seconds / times["plain"]
            row = f"{name + ', ' + way:<28}{1 / each:>12,.0f}{1e3 * each:>9.3f}{ratio:>9.2f}"
            print(row, flush=True)
    return rates


def interactions(env: str, device: torch.device, seconds: float) -> None:
    """Print interactions per second in an environment, and the environment's alone."""
    print(f"\ninteractions in {env} (one environment, two updates each)")
    torch.set_float32_matmul_precision("high")
    for name, form in FORMS.items():
        spec = overridden(
            start.default_spec("simbav2", env),
            {**form, "algo.learning_starts": 300, "train.eval_every": 0},
        )
        played = envs.make(env, 0, 1, device)
        agent = SimbaV2(played.spec, spec, device)
        obs = played.reset()
        agent.begin(obs)
        warm_up, count, start = 400, 0, time.perf_counter()  # random play, capture, compilation
        marks = torch.zeros(4, dtype=torch.float64)
        spent = torch.zeros(3, dtype=torch.float64)
        while count < warm_up or time.perf_counter() - start < seconds:
            if count == warm_up:
                start = time.perf_counter()
                spent.zero_()
            marks[0] = time.perf_counter()
            action, extra = agent.act(obs, count)
            action = action.cpu()  # waits for the updates before it
            marks[1] = time.perf_counter()
            step: Step = played.step(action)
            marks[2] = time.perf_counter()
            agent.observe(obs, action, extra, step)
            marks[3] = time.perf_counter()
            spent += marks.diff()
            obs = step.obs
            count += 1
        count -= warm_up
        elapsed = time.perf_counter() - start
        acting, stepping, learning = (1e3 * spent / count).tolist()
        parts = f"acting {acting:.2f} ms, stepping {stepping:.2f}, learning {learning:.2f}"
        alone = 1e3 / stepping
        row = f"{name:<10}{count / elapsed:>8,.0f}/s  ({parts}; stepping alone {alone:,.0f}/s)"
        print(row, flush=True)
        played.close()


def _learner(device: str, count: int, start: Any, rates: Any) -> None:
    torch.set_float32_matmul_precision("high")
    agent = full_agent(torch.device(device))
    seconds_of(agent.learn, 20, torch.device(device))
    start.wait()
    rates.put(2 / seconds_of(agent.learn, count, torch.device(device)))


def together(seeds: int, device: torch.device, alone: float) -> None:
    """Print the updates per second of several learners at once."""
    context = multiprocessing.get_context("spawn")
    start, rates = context.Barrier(seeds), context.Queue()
    arguments = (device.type, 1000, start, rates)
    processes = [context.Process(target=_learner, args=arguments) for _ in range(seeds)]
    for process in processes:
        process.start()
    total = sum(rates.get() for _ in processes)
    for process in processes:
        process.join()
    print(f"\n{seeds} learners at once: {total:,.0f} updates/s in all, {total / alone:.2f} x one")


def fleets(device: torch.device, counts: list[int], form: str, *, profiled: bool) -> None:
    """Print the speed of several runs' stacked updates, and of rounds without environments."""
    torch.set_float32_matmul_precision("high")
    repeats = 50 if device.type == "cuda" else 1
    print(f"\n{'fleet of ' + form:<18}{'ms an update':>14}{'updates/s':>12}{'ms a round':>12}")
    agents = [full_agent(device, **FORMS[form], seed=seed) for seed in range(max(counts))]
    for count in counts:
        train = start.default_spec("simbav2", "humanoid/h1-walk").train
        fleet = SoftActorCritic(agents[:count], range(count), train)
        learn = partial(fleet._learn, torch.tensor([10]))
        learn()  # compiles and captures
        each = seconds_of(learn, repeats, device) / 2
        fleet.steps = fleet.config.learning_starts
        obs, flags = torch.randn(count, 1, 51, device=device), torch.zeros(count, dtype=torch.bool)
        step = Step(obs.flatten(0, 1), torch.rand(count), flags, flags)

        def play_round(
            fleet: SoftActorCritic = fleet, obs: Tensor = obs, step: Step = step
        ) -> None:
            fleet.observe(obs, fleet.act(obs, fleet.config.learning_starts), step)

        play_round()
        whole = seconds_of(play_round, repeats, device)
        row = f"{count:<18}{1e3 * each:>14.3f}{count / each:>12,.0f}{1e3 * whole:>12.2f}"
        print(row, flush=True)
        if profiled:
            print_kernels(f"both updates of {count}", learn)


def whole_fleets(
    env: str, device: torch.device, counts: list[int], form: str, seconds: float
) -> None:
    """Print interactions per second of whole fleets, environments included."""
    print(f"\n{'fleet in ' + env:<30}{'in all':>8}{'set-up':>9}   parts")
    quiet = {"train.eval_every": 0, "train.health_every": 0}
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            changes = {"net.activation": "relu", **FORMS[form], **quiet}
            setting = "simbav2", env, "ReLU", count, str(device)
            with closing(TimedFleet(*setting, Path(folder), changes)) as timed:
                timing = timed.measure(seconds)
                shares = ", ".join(
                    f"{part} {spent / timing.seconds:.0%}" for part, spent in timing.parts.items()
                )
                label = f"{form}, {count}"
                print(
                    f"{label:<30}{timing.rate:>6,.0f}/s{timed.setup_seconds:>7.0f} s   {shares}",
                    flush=True,
                )


def public(folder: str) -> float:
    """Return the updates per second of the published code, loop and all."""
    sys.path.insert(0, folder)
    import gymnasium
    import jax
    import numpy as np
    from omegaconf import OmegaConf

    if not hasattr(jax, "tree_map"):
        vars(jax)["tree_map"] = jax.tree.map  # its old name, which the code still uses
    from scale_rl.agents import create_agent
    from scale_rl.buffers import create_buffer

    observations = gymnasium.spaces.Box(-np.inf, np.inf, (1, 51), np.float32)
    actions = gymnasium.spaces.Box(-1, 1, (1, 19), np.float32)
    buffer = create_buffer(
        observation_space=observations,
        action_space=actions,
        buffer_class_type="numpy",
        buffer_type="uniform",
        gamma=0.99,
        n_step=1,
        max_length=100_000,
        min_length=5_000,
        sample_batch_size=256,
    )
    buffer.reset()
    draw = np.random.default_rng(0)
    settings = OmegaConf.create(PUBLIC_SETTINGS)
    agent = create_agent(observation_space=observations, action_space=actions, cfg=settings)
    step: dict[str, Any] = {}
    for _ in range(6_000):
        step = {
            "observation": draw.normal(size=(1, 51)).astype(np.float32),
            "action": draw.uniform(-1, 1, size=(1, 19)).astype(np.float32),
            "reward": draw.random(1).astype(np.float32),
            "terminated": np.zeros(1, bool),
            "truncated": np.zeros(1, bool),
            "next_observation": draw.normal(size=(1, 51)).astype(np.float32),
        }
        buffer.add(step)
    agent.sample_actions(1, prev_timestep=dict(step), training=True)
    for i in range(50):
        agent.update(i, buffer.sample())
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for i in range(200):
            agent.update(i, buffer.sample())
        times.append((time.perf_counter() - start) / 200)
    return 1 / statistics.median(times)


# The published configuration for HumanoidBench, as its files resolve.
PUBLIC_SETTINGS = {
    "agent_type": "simbaV2",
    "seed": 0,
    "normalize_observation": True,
    "normalize_reward": True,
    "normalized_g_max": 5.0,
    "load_only_param": False,
    "load_param_key": False,
    "load_observation_normalizer": True,
    "load_reward_normalizer": True,
    "learning_rate_init": 1e-4,
    "learning_rate_end": 5e-5,
    "learning_rate_decay_rate": 1.0,
    "learning_rate_decay_step": 1_000_000,
    "actor_num_blocks": 1,
    "actor_hidden_dim": 128,
    "actor_c_shift": 3.0,
    "actor_scaler_init": (2 / 128) ** 0.5,
    "actor_scaler_scale": (2 / 128) ** 0.5,
    "actor_alpha_init": 1 / 2,
    "actor_alpha_scale": 1 / 128**0.5,
    "actor_bc_alpha": 0.0,
    "critic_use_cdq": True,
    "critic_num_blocks": 2,
    "critic_hidden_dim": 512,
    "critic_c_shift": 3.0,
    "critic_num_bins": 101,
    "critic_scaler_init": (2 / 512) ** 0.5,
    "critic_scaler_scale": (2 / 512) ** 0.5,
    "critic_alpha_init": 1 / 3,
    "critic_alpha_scale": 1 / 512**0.5,
    "critic_min_v": -5.0,
    "critic_max_v": 5.0,
    "target_tau": 0.005,
    "temp_initial_value": 0.01,
    "temp_target_entropy": None,
    "temp_target_entropy_coef": -0.5,
    "gamma": 0.99,
    "n_step": 1,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--env", help="also time whole interactions here")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each whole training")
    parser.add_argument("--seeds", type=int, default=0, help="also run so many learners at once")
    parser.add_argument("--runs", nargs="*", type=int, default=[], help="also time such fleets")
    parser.add_argument("--form", choices=FORMS, default="plain", help="of the fleets")
    parser.add_argument("--public", help="a checkout of the published JAX code, to time beside")
    parser.add_argument(
        "--ways", nargs="*", default=[], help="only these, such as 'graph, compiled, TF32', or none"
    )
    parser.add_argument("--profile", action="store_true", help="list the kernels of --runs")
    parser.add_argument(
        "--whole-only", action="store_true", help="only whole fleets of --runs in --env"
    )
    options = parser.parse_args()
    device = choose_device("auto")
    print(machine())
    alone = not options.whole_only and options.ways != ["none"]
    rates = updates(device, options.ways) if alone else {"none": math.nan}
    form, rate = max(rates.items(), key=lambda item: item[1] if item[0].startswith("plain") else 0)
    if options.public:
        published = public(options.public)
        print(f"\npublished JAX code: {published:,.0f} updates/s")
        print(f"ours ({form}): {rate:,.0f} updates/s, {rate / published:.1f} x")
    if options.runs:
        if not options.whole_only:
            fleets(device, options.runs, options.form, profiled=options.profile)
        if options.env:
            whole_fleets(options.env, device, options.runs, options.form, options.seconds)
    if options.seeds:
        together(options.seeds, device, rate)
    if options.env and not options.whole_only:
        interactions(options.env, device, options.seconds)


if __name__ == "__main__":
    main()
