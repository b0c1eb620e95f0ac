"""`hadamard analyze`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from hadamard import diagnose, envs
from hadamard.cli.common import UserError, parse
from hadamard.core.random import child_seed
from hadamard.training.health_stream import hidden_layers
from hadamard.training.load_agent import load_agent


@dataclass(frozen=True)
class _Analyze:
    """Diagnose all hidden layers of a run's agent on observations of its own play."""

    run: tyro.conf.Positional[str]
    """The run folder."""
    samples: int = 2_048
    """Observations to diagnose on."""
    output: Path | None = None
    """Also write the diagnosis as a page."""
    device: str = "auto"
    """cpu, cuda, ...; auto takes a GPU if there is one."""


def main(words: list[str]) -> int:
    """Run the command."""
    asked = parse(_Analyze, words, "hadamard analyze")
    if asked.samples < 2:
        raise UserError(f"--samples must be at least 2, got {asked.samples}")
    agent, spec, step, device = load_agent(asked.run, asked.device)
    played = envs.make(
        spec.env,
        child_seed(spec.seed, 21),
        agent.num_envs,
        device,
        atari_reset=spec.train.atari_reset,
        workers=None,
    )
    try:
        obs, seen = played.reset(), []
        # Half of the steps only lead away from the first frames of the games.
        rounds = -(-asked.samples // agent.num_envs)
        for i in range(2 * rounds):
            seen += [obs] if i >= rounds else []
            action, _ = agent.act(obs, step)
            obs = played.step(action).obs
    finally:
        played.close()
    found = diagnose(
        agent.network, torch.cat(seen)[: asked.samples], hidden_layers(agent.network, "all")
    )
    print(f"{asked.run} at step {step:,}")
    print(found)
    if asked.output is not None:
        found.save_html(asked.output, title=f"{asked.run} at step {step:,}")
        print(f"wrote {asked.output}")
    return 0
