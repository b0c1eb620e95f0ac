"""Start a run from the weights of another one: the setting ``init_from``."""

from __future__ import annotations

from typing import Any

from hadamard.core import checkpoint, record
from hadamard.core.run import Run, RunError
from hadamard.training.setup import Setup

NETWORKS = ("network", "target")
"""Parts of an agent that are taken over; optimizers, replays and counters start anew."""


def take_weights(setup: Setup) -> dict[str, Any] | None:
    """Load the weights that a new run's settings ask for into its agent.

    Returns what config.json records of them; None if the run starts from random weights.
    """
    source = setup.spec.init_from
    if source is None:
        return None
    try:
        run = Run.open(source)
        algorithm = run.config.get("algorithm")
        if algorithm != setup.algorithm:
            raise RunError(f"it is a run of {algorithm}, and this one is of {setup.algorithm}")
        newest = checkpoint.newest(run.checkpoints)
        step, state = checkpoint.read(newest)
        for name in NETWORKS:
            if name in setup.agent.parts:
                part = setup.agent.parts[name]
                checkpoint.restore(newest, name, part, state.get(f"agent.{name}"))
        digest = checkpoint.manifest(newest).digests["tensors.safetensors"]
    except (RunError, checkpoint.CheckpointError) as error:
        raise ValueError(f"--init-from {source}: {error}") from error
    return {"run": str(run.path.resolve()), "step": step, "sha256": digest}


def take_again(setup: Setup, run: Run) -> None:
    """Load the same weights into a run that was interrupted before its first checkpoint."""
    if setup.spec.init_from is None or record.checkpoints(run.checkpoints):
        return
    weights, recorded = take_weights(setup), run.config.get("initial")
    if weights is None or not isinstance(recorded, dict):
        raise RunError(f"{run.path / 'config.json'} does not say which weights the run began with")
    if weights["sha256"] != recorded.get("sha256"):
        raise RunError(
            f"{run.path} began with the weights of {recorded.get('run')} at step "
            f"{recorded.get('step')}, which has others now: train it anew with --overwrite"
        )
