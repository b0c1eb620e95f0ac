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
    """cpu, cuda, ...; auto uses a GPU if there is one."""


def main(words: list[str]) -> int:
    """Run the command."""
    options = parse(_Analyze, words, "hadamard analyze")
    if options.samples < 2:
        raise UserError(f"--samples must be at least 2, got {options.samples}")
    agent, spec, step, device, _ = load_agent(options.run, options.device)
    environments = envs.make(
        spec.env,
        child_seed(spec.seed, 21),
        agent.num_envs,
        device,
        atari_reset=spec.train.atari_reset,
        workers=None,
    )
    try:
        obs, batches = environments.reset(), []
        # The first half is not diagnosed: the first frames of all games are alike.
        rounds = -(-options.samples // agent.num_envs)
        for i in range(2 * rounds):
            batches += [obs] if i >= rounds else []
            action, _ = agent.act(obs, step)
            obs = environments.step(action).obs
    finally:
        environments.close()
    diagnosis = diagnose(
        agent.network, torch.cat(batches)[: options.samples], hidden_layers(agent.network, "all")
    )
    print(f"{options.run} at step {step:,}")
    print(diagnosis)
    if options.output is not None:
        diagnosis.save_html(options.output, title=f"{options.run} at step {step:,}")
        print(f"wrote {options.output}")
    return 0
