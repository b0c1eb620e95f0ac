"""The training loop: act, step, observe, learn, log; evaluations, diagnoses and checkpoints."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from hadamard.core import checkpoint, machine, record
from hadamard.core.random import Counters
from hadamard.core.run import Run
from hadamard.core.typed import checked
from hadamard.core.types import LearnsAhead, Metrics, State
from hadamard.envs.common import EnvironmentFailure
from hadamard.health import Diagnosis
from hadamard.training import health_stream
from hadamard.training.callbacks import Callback, Callbacks, Kind
from hadamard.training.clock import Clock
from hadamard.training.episodes import Episodes
from hadamard.training.evaluate import evaluate
from hadamard.training.filming import Films
from hadamard.training.finite import Finite
from hadamard.training.outcomes import Interrupted, StoppedByCallback
from hadamard.training.pipeline import Pipeline
from hadamard.training.progress import Progress
from hadamard.training.saved_rows import SavedRows
from hadamard.training.scores import Scores
from hadamard.training.setup import Setup
from hadamard.training.timetable import Due, Timetable
from hadamard.training.trackers import Trackers

DISPLAY_SECONDS = 0.2
"""Time between two updates of the progress display."""


class Trainer:
    """The loop over one run's parts, and what it writes to the run folder."""

    def __init__(
        self,
        setup: Setup,
        run: Run,
        progress: Callable[..., Progress],
        *,
        resume: bool,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.algorithm, self.spec, self.device = setup.algorithm, setup.spec, setup.device
        self.agent, self.envs, self.evaluation = setup.agent, setup.envs, setup.evaluation
        self.run, self.greedy = run, setup.greedy
        train = self.spec.train
        self.step = 0
        self.episodes = 0
        self.clock = Clock()
        self.pipeline = Pipeline(setup, self.clock)
        self.learner_ahead = (
            self.agent if train.learn_ahead and isinstance(self.agent, LearnsAhead) else None
        )
        rollout = self.envs.num_envs * getattr(self.spec.algo, "rollout_steps", 0)
        self.recent = health_stream.RecentObservations(train, self.device, rollout)
        self.timetable = Timetable.of_settings(train, diagnosis=self.recent.every)
        self.callbacks = Callbacks(callbacks, run.path, train.horizon)
        self.films = Films(self.spec, self.device, run.path)
        self.scores = Scores(train.horizon, evaluations=self.evaluation is not None)
        self.facts: dict[str, Any] = {}  # newest scores and health, for the display
        # Measurements of the newest update; numbers in a fleet.
        self.latest: Mapping[str, Tensor | float] | None = None
        self.summary: dict[str, Any] = {}
        self.finite = Finite(self.agent.network)
        self._checkpoint_due = False  # waits until the agent is settled
        self._densities_due = False  # wait for the next diagnosis
        self._logged_step = -1
        self._displayed = 0.0
        with ExitStack() as stack:
            stack.enter_context(machine.torch_settings(train, self.device))
            if resume and record.checkpoints(run.checkpoints):
                self._load()
            else:
                run.reopen(train.until, train.steps, 0)
                run.cut({}, -1)
                self.pipeline.reset()
            self.progress = progress(setup.title(run.path), train.horizon, self.step)
            stack.callback(self.progress.close)
            self.trackers = Trackers.of_settings(self.spec, run.path, self.step)
            if self.step == 0:
                self.evaluate()
            self._computing = stack.pop_all()

    def loop(self, stop_requested: Callable[[], bool]) -> Iterator[None]:
        """Train to the end or until a stop is requested; yields while the environments play."""
        stopping = False
        try:
            while self.step < self.spec.train.horizon or not self.settled:
                try:
                    yield from self.one_step(stopping)
                except EnvironmentFailure as failure:
                    saved = record.last_saved(self.run.checkpoints)
                    message = f"at step {self.step:,}, {str(failure).rstrip()}; {saved}"
                    raise type(failure)(message) from failure
                except (RuntimeError, ValueError):
                    self._check_finite()  # explains errors that NaN weights cause
                    raise
                self._display_if_due()
                by_callback = self.callbacks.stopping and self.step < self.spec.train.horizon
                if stop_requested() or by_callback:
                    stopping = True
                    self.observe()
                    if self.settled:
                        self.save()
                        if by_callback:
                            raise StoppedByCallback(self.callbacks.error)
                        raise Interrupted(str(self.run.path))
            self.finish()
            if self.callbacks.error is not None:
                raise StoppedByCallback(self.callbacks.error)
        finally:
            self.progress.close()
            self.trackers.close()

    def one_step(self, stopping: bool = False) -> Iterator[None]:
        """Take one step in every environment; yields while they play, see ``pipeline``."""
        pipeline, agent = self.pipeline, self.agent
        self.recent.add(self.step, pipeline.obs)
        self.keep_weights(len(pipeline.obs))
        pipeline.act(self.step)
        self.observe()  # the step before, if it can wait until now
        pipeline.send_greedy()
        if self.learner_ahead is not None:
            with self.clock("learning"):
                metrics = self.learner_ahead.learn_ahead()
            self._watch(metrics)
        yield
        before, self.step = self.step, self.step + self.envs.num_envs
        due = self.timetable.due(before, self.step)
        ends = stopping or self.step >= self.spec.train.horizon
        observe_now = agent.learns_next or any(due) or ends
        pipeline.receive(self.step, act=not observe_now)
        if observe_now:
            self.observe()
            self._do(due)
            self.save_if_due()

    def observe(self) -> None:
        """Let the agent observe the newest step and learn from it, and record finished games."""
        transition = self.pipeline.take_unobserved()
        if transition is not None:
            self.record_episodes(Episodes.ended_at(self.step, transition.step.episodes))
            with self.clock("learning"):
                metrics = self.agent.observe(*transition)
            self._watch(metrics)
        self.record_greedy(Episodes.ended_at(self.step, self.pipeline.take_greedy_episodes()))

    def advance_to(
        self,
        step: int,
        metrics: Metrics | None,
        diagnosis: Diagnosis | ValueError | None,
        *,
        finite_weights: bool,
    ) -> None:
        """Do what came due on the way to a step that was reached elsewhere, but for saving.

        Args:
            step: The step that was reached (in a fleet).
            metrics: Measurements of the newest update, if one was made.
            diagnosis: The diagnosis there, or why there is none; None if none is due.
            finite_weights: Whether all weights are finite there.
        """
        before, self.step = self.step, step
        self.finite.weights = finite_weights
        self._watch(metrics)
        self._do(self.timetable.due(before, step), diagnosis)
        self._display_if_due()

    def _do(self, due: Due, diagnosis: Diagnosis | ValueError | None = None) -> None:
        if due.evaluation:
            self.evaluate()
        if due.checkpoint:
            self._checkpoint_due = self._densities_due = True
        if due.diagnosis:
            if diagnosis is None:
                self.diagnose(self.recent.take())
            else:
                self._record_diagnosis(diagnosis)
        if due.film:
            with self.clock("films"):
                self.films.take(self.agent, self.step)
        if due.log:
            self._log()

    def save_if_due(self) -> None:
        """Write a checkpoint if one is due and nothing is half done."""
        if self._checkpoint_due and self.settled:
            self.save()

    def advance(self) -> None:
        """Take one whole step without pausing."""
        for _ in self.one_step():
            pass

    @property
    def settled(self) -> bool:
        """Whether nothing is half done, so that a checkpoint can be taken now."""
        return self.pipeline.settled and self.agent.settled

    @property
    def parts(self) -> dict[str, Any]:
        """Everything a checkpoint holds, by name."""
        parts: dict[str, Any] = {f"agent.{name}": part for name, part in self.agent.parts.items()}
        parts |= {"envs": self.envs, "recent": self.recent, "loop": self}
        parts |= {"greedy": self.greedy} if self.greedy is not None else {}
        return parts | ({"evaluation": self.evaluation} if self.evaluation is not None else {})

    def state_dict(self) -> State:
        """Return the loop's own state."""
        return {
            "obs": self.pipeline.obs if self.envs.exact else None,
            "episodes": self.episodes,
            "scores": list(self.scores.training),
            "facts": self.facts,
            "latest": self.latest and {k: torch.as_tensor(v) for k, v in self.latest.items()},
            "logged": self._logged_step,
            "densities_due": self._densities_due,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the loop's own state."""
        self.episodes = state["episodes"]
        self.scores.training.extend(checked(state["scores"], list[float], "scores"))
        self.facts = checked(state["facts"], dict[str, float | None], "facts")
        self.latest = checked(state["latest"], dict[str, Tensor | float] | None, "latest")
        self._logged_step = state["logged"]
        self._densities_due = state["densities_due"]
        if state["obs"] is not None:
            self.pipeline.obs = state["obs"].to(self.device)

    def _load(self) -> None:
        folder, rows = self.run.checkpoints, SavedRows(self.run)
        self.step, skipped = checkpoint.load(folder, self.parts, rows.require)
        for message in skipped:
            warnings.warn(f"an older checkpoint is used: {message}", stacklevel=2)
        saved = checkpoint.manifest(folder / record.name_of(self.step))
        self.run.reopen(self.spec.train.until, self.spec.train.steps, self.step)
        rows.cut(saved, self.step, self._logged_step)
        self.clock.seconds_before = rows.seconds()
        for step, score in rows.evaluations():
            self.scores.add_greedy(step, score)
        if not self.envs.exact:
            self.pipeline.reset()

    def save(self) -> None:
        """Write a checkpoint, after the streams have reached the disk."""
        self._check_finite()
        self._checkpoint_due = False
        with self.clock("saving"):
            self.run.flush(to_disk=True)
            about = checkpoint.About(self.run.settings, self.run.extents())
            keep_every = self.spec.train.keep_every
            path = checkpoint.save(self.run.checkpoints, self.step, self.parts, about, keep_every)
        self._tell("checkpoint", {"path": path})

    def evaluate(self) -> None:
        """Play whole greedy episodes, if the run has evaluations."""
        if self.evaluation is None:
            return
        with self.clock("evaluation"):
            episodes = evaluate(self.agent, self.evaluation, self.spec.train.eval_episodes)
        self.record_greedy(Episodes.ended_at(self.step, episodes))
        self.facts["greedy"] = self.scores.greedy_score(self.step)
        self.trackers.add({"eval/score": self.facts["greedy"]}, self.step)
        self.run.flush()
        self._tell("evaluation", {"scores": [episode.score for episode in episodes]})

    @property
    def updates(self) -> int:
        """How many updates the agent counts."""
        counters = self.agent.parts.get("counters")
        return counters.values.get("updates", 0) if isinstance(counters, Counters) else 0

    def keep_weights(self, count: int) -> None:
        """Copy the weights before so many steps, if the next diagnosis compares with them."""
        self.recent.add_weights(self.step, count, self.agent.network, self.updates)

    def diagnose(self, obs: Tensor) -> None:
        """Diagnose the network on these observations."""
        self._check_finite()
        network, spec = self.agent.network, self.spec
        with self.clock("health"):
            diagnosis = health_stream.examine(
                network,
                obs,
                spec.train,
                spec.seed,
                self.step,
                earlier=self.recent.take_weights(self.updates),
                discrete=not self.envs.spec.continuous,
            )
        self._record_diagnosis(diagnosis)

    def _record_diagnosis(self, diagnosis: Diagnosis | ValueError) -> None:
        """Record a diagnosis, or raise why there is none.

        The first one after each checkpoint is recorded as densities of neurons, too.
        """
        self._check_finite()
        if isinstance(diagnosis, ValueError):
            raise diagnosis
        with self.clock("health"):
            health_stream.write(self.run, self.step, diagnosis, densities=self._densities_due)
            self._densities_due = False
        layer = diagnosis[-1]
        self.facts.update(
            dormant=layer.dormant_fraction, rank=layer.effective_rank, full_rank=layer.full_rank
        )
        for scalars in health_stream.scalars(diagnosis):
            self.trackers.add(scalars, self.step)

    def _watch(self, metrics: Metrics | None) -> None:
        """Keep an update's measurements, and add up losses without waiting for the GPU."""
        if metrics is None:
            return
        self.latest = metrics
        self.finite.add(metrics["loss"])

    def record_episodes(self, episodes: Episodes) -> None:
        """Record training episodes."""
        self.episodes += len(episodes.step)
        self.scores.training.extend(episodes.score)
        if lines := episodes.lines():
            self.run.write_lines("episodes", lines)

    def record_greedy(self, episodes: Episodes) -> None:
        """Record greedy episodes."""
        for step, _, score, length in zip(*episodes, strict=True):
            self.scores.add_greedy(step, score)
            self.run.write("eval", {"step": step, "score": score, "length": length})

    def _log(self) -> None:
        self._check_finite()
        self._logged_step = self.step
        self.facts |= self.scores.at(self.step)
        row: dict[str, Any] = {"step": self.step, "score": self.facts["score"]}
        row |= {"episodes": self.episodes, **self.agent.schedules()}
        row |= {name: float(value) for name, value in (self.latest or {}).items()}
        self.run.write("train", row)
        timing = self.clock.row(self.step)
        self.run.write("timing", timing)
        self.run.flush()
        scalars = {f"train/{key}": value for key, value in row.items() if key != "step"}
        scalars["train/greedy_score"] = self.facts["greedy"]
        scalars["train/seconds"] = timing["seconds"]
        self.trackers.add(scalars, self.step)
        self._tell("log", row)

    def _tell(self, kind: Kind, values: Mapping[str, Any]) -> None:
        """Tell the callbacks of something that was just written."""
        if self.callbacks.callbacks:
            self.callbacks.tell(kind, self.step, self.scores.at(self.step), values)

    def _display_if_due(self) -> None:
        if time.monotonic() - self._displayed > DISPLAY_SECONDS:
            self._display()

    def _display(self) -> None:
        self._displayed = time.monotonic()
        # Not kept in ``facts``, which is checkpointed: this depends on wall-clock time.
        self.progress.update(self.step, {**self.facts, **self.scores.at(self.step)})

    def _check_finite(self) -> None:
        """Stop if a loss or a weight is not finite, before it is learned from or saved."""
        self.finite.check(self.algorithm, self.run, self.step)

    def finish(self) -> None:
        """Save, write the last row and the summary, and mark the run as finished."""
        # The checkpoint comes before the last row: a run trained further has no such row.
        self.save()
        if self._logged_step != self.step:
            self._log()
            self.run.flush(to_disk=True)
        self._display()
        self.summary = {
            "steps": self.step,
            "score": self.scores.training_score(),
            "greedy_score": self.scores.greedy_score(self.step),
            "episodes": self.episodes,
            "seconds": round(self.clock.seconds, 1),
        }
        self.run.finish(self.summary)

    def close(self) -> None:
        """Close the run folder, and restore torch's settings."""
        self._computing.close()
        self.run.close()
