"""The one loop: act, step, observe, log, diagnose, save."""

from __future__ import annotations

import math
import time
import warnings
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch import Tensor

from hadamard import analyse, envs
from hadamard.core import checkpoint, discover, machine
from hadamard.core.config import RunSpec, to_dict
from hadamard.core.random import child_seed
from hadamard.core.run import Run
from hadamard.core.scores import greedy_window_mean
from hadamard.core.types import (
    ActsOnBoth,
    Agent,
    Envs,
    Episode,
    Extra,
    LearnsAhead,
    Metrics,
    State,
    Step,
)
from hadamard.envs.groups import GroupedEnvs, joined
from hadamard.evaluate import GreedyPlay, evaluate
from hadamard.plasticity.redo import ReDo
from hadamard.progress import Progress
from hadamard.trackers import Mirrors

ALGORITHMS = "hadamard.algos"
# The score of a run at any moment is the mean over this many of its last training episodes.
SCORE_EPISODES = 100
SHOWN_EVERY = 0.2
"""Seconds between two looks at a run on a display."""


class Interrupted(Exception):
    """Training was asked to stop; the checkpoints of these runs are written."""


class Diverged(RuntimeError):
    """A loss or a weight is not finite any more."""


def make_agent(algorithm: str, spec: RunSpec[Any], made: Envs, device: torch.device) -> Agent:
    """Build an algorithm's agent for an environment."""
    module = discover.find(ALGORITHMS, algorithm, "algorithm")
    made.spec.require(module.ACTIONS, algorithm)
    agent: Agent = module.build(made.spec, spec, device)
    return agent


class Trainer:
    """A run's parts and the loop over them."""

    def __init__(self, algorithm: str, spec: RunSpec[Any]) -> None:
        spec.check()
        self.algorithm, self.spec = algorithm, spec
        self.device = machine.choose_device(spec.device)
        self._computing = ExitStack()
        self.step = 0
        self.scores: deque[float] = deque(maxlen=SCORE_EPISODES)
        # Of all greedy games so far, as in eval.jsonl: when each ended, and its score.
        self.greedy_steps: list[int] = []
        self.greedy_scores: list[float] = []
        self.facts: dict[str, Any] = {}
        self.clock = Clock()
        self.episodes = 0
        self.latest: Metrics | None = None
        self.greedy: GreedyPlay | None = None
        self.acts_on_both: ActsOnBoth | None = None  # where greedy actions are chosen along
        self.evaluation: Envs | None = None
        train = spec.train
        count, workers = spec.algo.num_envs, train.env_workers
        groups = max(1, min(train.env_groups, count, workers or count))
        self.envs = self._make_envs(count, 10, workers, groups)
        self.groups = self.envs.groups if isinstance(self.envs, GroupedEnvs) else [self.envs]
        try:
            self.agent = make_agent(algorithm, spec, self.envs, self.device)
            if spec.redo.enabled:
                self.agent.after_update = self._redo()
            if train.greedy_envs:
                theirs = 0 if workers == 0 else None
                greedy = self._make_envs(train.greedy_envs, 11, theirs, training=False)
                self.greedy = GreedyPlay(self.agent, greedy)
                self.acts_on_both = self._joined_call()
            if train.eval_every:
                workers = train.eval_workers
                if workers is not None:
                    workers = min(workers, train.eval_episodes)
                self.evaluation = self._make_envs(train.eval_episodes, 12, workers, training=False)
        except BaseException:
            self.close()
            raise
        self._learner_ahead: LearnsAhead | None = None
        if train.learn_ahead and isinstance(self.agent, LearnsAhead):
            self._learner_ahead = self.agent
        self.recent = analyse.RecentObservations(spec.train, self.device)
        self.obs = torch.empty(0)
        self._chosen: list[tuple[Tensor, Extra]] = []  # in groups whose step is under way
        self.summary: dict[str, Any]

    def _make_envs(
        self,
        count: int,
        purpose: int,
        workers: int | None,
        groups: int = 1,
        *,
        training: bool = True,
    ) -> Envs:
        return envs.make(
            self.spec.env,
            child_seed(self.spec.seed, purpose),
            count,
            self.device,
            training=training,
            atari_reset=self.spec.train.atari_reset,
            workers=workers,
            groups=groups,
        )

    def _redo(self) -> ReDo:
        redo, agent = self.spec.redo, self.agent
        if agent.optimiser is None:
            raise ValueError(
                f"--redo.enabled: ReDo does not work with {self.algorithm}; it does with dqn, ppo "
                "and pqn"
            )
        return ReDo(agent.network, agent.optimiser, redo.tau, redo.period, self.spec.seed)

    def _joined_call(self) -> ActsOnBoth | None:
        """Return the agent, if it is to choose the greedy actions along with those of training."""
        how, agent, workers = self.spec.train.greedy_call, self.agent, self.spec.train.env_workers
        if workers is None:
            workers = envs.automatic_workers(self.spec.env, self.envs.num_envs)
        pays = self.device.type == "cuda" and not workers
        if how == "own" or (how == "auto" and not pays):
            return None
        if isinstance(agent, ActsOnBoth):
            return agent
        if how == "joined":
            raise ValueError(
                f"--train.greedy-call joined: {self.algorithm} cannot act greedily and explore in "
                "one call; pqn can. Leave it out"
            )
        return None

    @property
    def parts(self) -> dict[str, Any]:
        """All that a checkpoint holds."""
        parts: dict[str, Any] = {f"agent.{name}": part for name, part in self.agent.parts.items()}
        parts |= {"envs": self.envs, "recent": self.recent, "loop": self}
        parts |= {"greedy": self.greedy} if self.greedy is not None else {}
        return parts | ({"evaluation": self.evaluation} if self.evaluation is not None else {})

    @property
    def settled(self) -> bool:
        """Whether nothing is half done, so that a checkpoint can be taken here."""
        return self._unobserved is None and not self._chosen and self.agent.settled

    def state_dict(self) -> State:
        """Return the loop's own state."""
        return {
            "obs": self.obs if self.envs.exact else None,
            "episodes": self.episodes,
            "scores": list(self.scores),
            "facts": self.facts,
            "latest": self.latest,
            "logged": self._logged,
            "densities_due": self._densities_due,
        }

    def load_state_dict(self, state: State) -> None:
        """Return to a saved state of the loop."""
        self.episodes = state["episodes"]
        self.scores.extend(state["scores"])
        self.facts = dict(state["facts"])
        self.latest = state["latest"]
        self._logged = state["logged"]
        self._densities_due = state["densities_due"]
        if state["obs"] is not None:
            self.obs = state["obs"].to(self.device)

    def loop(self, stopping: Callable[[], bool]) -> Iterator[None]:
        """Train to the end, or until asked to stop; pauses while the environments step."""
        try:
            while self.step < self.spec.train.horizon or not self.settled:
                try:
                    self.start_step()
                    yield
                    self.finish_step()
                except (RuntimeError, ValueError):
                    self._check_finite()  # no action can be drawn from NaN
                    raise
                if stopping():
                    self._stopping = True
                    self.observe()
                    if self.settled:
                        self.save()
                        raise Interrupted(str(self.run.path))
            self.summary = self._finish()
        finally:
            self.progress.close()
            self.mirrors.close()

    def open(self, run: Run, progress: Callable[..., Progress], *, resume: bool) -> None:
        """Bind the parts to a run folder, from its last checkpoint or from the start."""
        self.run, train = run, self.spec.train
        self._computing.enter_context(machine.computing(train, self.device))
        if resume and any((run.path / "checkpoints").glob("step-*")):
            self._load()
        else:
            run.cut(-1)
            self.obs = self.envs.reset()
            self.agent.begin(self.obs)
        net = self.spec.net
        title = (
            f"{self.algorithm} on {self.spec.env}: {net.layer}, {net.activation}, "
            f"seed {self.spec.seed}, {self.device} -> {run.path}"
        )
        self.progress = progress(title, train.horizon, self.step)
        self.mirrors = Mirrors(
            run.path,
            self.step,
            tensorboard=train.tensorboard,
            wandb=train.wandb,
            config=to_dict(self.spec),
        )
        if self.step == 0:
            self.evaluate()

    def _load(self) -> None:
        self.step, troubles = checkpoint.load(self.run.path / "checkpoints", self.parts)
        for trouble in troubles:
            warnings.warn(f"an older checkpoint is used: {trouble}", stacklevel=2)
        for row in self.run.rows("timing"):
            if row["step"] <= self.step:
                self.clock.before = row["seconds"]
        # A run that ended here has a closing row, which one that goes on would not have.
        self.run.cut(self.step, train=self._logged, timing=self._logged)
        for row in self.run.rows("eval"):
            self._remember_greedy(row["step"], row["score"])
        if not self.envs.exact:
            self.obs = self.envs.reset()
            self.agent.begin(self.obs)

    def start_step(self) -> None:
        """Let the environments begin where they have not, and observe meanwhile."""
        self.recent.add(self.step, self.obs)
        if not self._chosen:
            sizes = [group.num_envs for group in self.groups]
            for group, obs in zip(self.groups, self.obs.split(sizes), strict=True):
                self._begin(group, obs)
        self.observe()
        if self.greedy is not None and self.acts_on_both is None:
            with self.clock("greedy play"):
                self.greedy.send()
        if self._learner_ahead is not None:
            with self.clock("learning"):
                self._learner_ahead.learn_ahead()

    def _begin(self, group: Envs, obs: Tensor) -> None:
        """Choose what to do in a group, and let it begin; the last may bring the greedy games."""
        greedy_action = None
        with self.clock("acting"):
            if self.acts_on_both is None or self.greedy is None or group is not self.groups[-1]:
                action, extra = self.agent.act(obs)
            else:
                sizes = [len(obs), self.greedy.envs.num_envs]
                obs = torch.cat([obs, self.greedy.obs])
                both, extra = self.acts_on_both.act_on_both(obs, sizes[1])
                action, greedy_action = both.split(sizes)
            self._chosen.append((action, extra))
        with self.clock("stepping"):
            group.send(action)
        if greedy_action is not None and self.greedy is not None:
            with self.clock("greedy play"):
                self.greedy.send(greedy_action)

    def finish_step(self) -> None:
        """Wait for the environments, and do whatever has come due."""
        before, every = self.step, self.spec.train
        self.step += self.envs.num_envs
        things = (every.eval_every, every.checkpoint_every, self.recent.every, every.log_every)
        due = [self._due(interval, before) for interval in things]
        # What neither learns nor is looked at now is observed while the environments play on.
        ends = self._stopping or self.step >= every.horizon
        quiet = not (self.agent.learns_next or any(due) or ends)
        self._receive(act_on=quiet and len(self.groups) > 1)
        if quiet:
            return
        self.observe()
        if due[0]:
            self.evaluate()
        if due[1]:
            self._save_due = self._densities_due = True
        if due[2]:
            self.examine(self.recent.take())
        if due[3]:
            self._log()
        if self._save_due and self.settled:
            self.save()

    def _receive(self, *, act_on: bool) -> None:
        """Wait for one group after another, and act on each at once if asked to."""
        chosen, self._chosen = self._chosen, []
        steps = []
        for group in self.groups:
            with self.clock("stepping"):
                steps.append(group.receive())
            if self.acts_on_both is not None and group is self.groups[-1]:
                self._play_along()
            if act_on:  # while the other groups play
                self._begin(group, steps[-1].obs)
        actions, extras = zip(*chosen, strict=True)
        extra = {name: _joined([e[name] for e in extras]) for name in extras[0]}
        step = joined(steps)
        self._unobserved = (self.obs, _joined(actions), extra, step)
        self.obs = step.obs

    def observe(self) -> None:
        """Let the agent take in the newest step, if it has not yet, and see the greedy games."""
        if self._unobserved is not None:
            self._observe(*self._unobserved)
        if self.acts_on_both is None:
            self._play_along()

    def _observe(self, obs: Tensor, action: Tensor, extra: Extra, step: Step) -> None:
        self._unobserved = None
        for episode in step.episodes:
            self.episodes += 1
            self.scores.append(episode.score)
            self.run.write("episodes", {"step": self.step, **episode._asdict()})
        with self.clock("learning"):
            metrics = self.agent.observe(obs, action, extra, step)
        if metrics is not None:
            self._watch(metrics)
        if time.monotonic() - self._shown > SHOWN_EVERY:
            self._show()

    def own_stream(self) -> AbstractContextManager[Any]:
        """On a GPU, put this trainer's work beside that of others rather than behind it."""
        if self.device.type != "cuda":
            return nullcontext()
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self._stream)

    _stream: torch.cuda.Stream | None = None
    _unobserved: tuple[Tensor, Tensor, Extra, Step] | None = None
    _stopping = False
    _save_due = False
    _densities_due = False
    _logged = -1
    _shown = 0.0
    _losses: Tensor | None = None

    def _due(self, every: int, before: int) -> bool:
        return every > 0 and self.step // every > before // every

    def _watch(self, metrics: Metrics) -> None:
        """Remember the newest measurements, and without waiting whether all were finite."""
        self.latest = metrics
        # The sum is finite if every one of them is, and one kernel to keep.
        loss = metrics["loss"]
        self._losses = loss if self._losses is None else self._losses + loss

    def _play_along(self) -> None:
        """Wait for the greedy games' step, where one is under way, and note those that ended."""
        if self.greedy is None:
            return
        with self.clock("greedy play"):
            self._note(self.greedy.receive())

    def _note(self, played: Iterable[Episode]) -> None:
        for episode in played:
            self._remember_greedy(self.step, episode.score)
            row = {"step": self.step, "score": episode.score, "length": episode.length}
            self.run.write("eval", row)

    def _remember_greedy(self, step: int, score: float) -> None:
        self.greedy_steps.append(step)
        self.greedy_scores.append(score)

    def greedy_score(self) -> float | None:
        """Return the mean of the newest evaluation, or of the games played along of late."""
        if not self.greedy_steps:
            return None
        if self.evaluation is not None:
            return mean(self.greedy_scores[bisect_left(self.greedy_steps, self.greedy_steps[-1]) :])
        games = self.greedy_steps, self.greedy_scores
        return greedy_window_mean(*games, now=self.step, budget=self.spec.train.horizon)

    def evaluate(self) -> None:
        """Play whole greedy episodes, if the run is evaluated."""
        if self.evaluation is None:
            return
        with self.clock("evaluation"):
            played = evaluate(self.agent, self.evaluation, self.spec.train.eval_episodes)
        self._note(played)
        self.facts["greedy"] = self.greedy_score()
        self.mirrors.add({"eval/score": self.facts["greedy"]}, self.step)

    def examine(self, obs: Tensor) -> None:
        """Diagnose on these observations.

        The first diagnosis after each checkpoint came due also keeps the densities of 16 neurons.
        """
        self._check_finite()
        with self.clock("health"):
            diagnosis = analyse.examine(
                self.agent.network, obs, self.spec.train, self.spec.seed, self.step
            )
            self.run.write("health", {"step": self.step, **analyse.health_row(diagnosis)})
            if self._densities_due:
                self._densities_due = False
                self.run.write("kde", {"step": self.step, **analyse.kde_row(diagnosis)})
        layer = diagnosis[-1]
        self.facts.update(
            dormant=layer.dormant_fraction, rank=layer.effective_rank, full_rank=layer.full_rank
        )
        for measured in diagnosis:
            values = measured.to_dict()
            shown = {f"health/{measured.name}/{key}": values[key] for key in values}
            self.mirrors.add(shown, self.step)

    def _log(self) -> None:
        self._check_finite()
        self._logged = self.step
        self.facts |= self._scores()
        row: dict[str, Any] = {"step": self.step, "score": self.facts["score"]}
        row |= {"episodes": self.episodes, **self.agent.schedules()}
        row |= {name: float(value) for name, value in (self.latest or {}).items()}
        self.run.write("train", row)
        timing = self.clock.row(self.step)
        self.run.write("timing", timing)
        self.run.flush()
        shown = {f"train/{key}": value for key, value in row.items() if key != "step"}
        shown["train/greedy_score"] = self.facts["greedy"]
        shown["train/seconds"] = timing["seconds"]
        self.mirrors.add(shown, self.step)

    def _show(self) -> None:
        """Tell the display, which decides itself how often it changes."""
        self._shown = time.monotonic()
        # Not kept: a checkpoint must not hang on what the clock said.
        self.progress.update(self.step, {**self.facts, **self._scores()})

    def _scores(self) -> dict[str, float | None]:
        return {"score": mean(self.scores), "greedy": self.greedy_score()}

    def _check_finite(self) -> None:
        """Stop before anything that is not a number is learned from any longer, or saved."""
        trouble = None
        losses, self._losses = self._losses, None
        if losses is not None and not bool(torch.isfinite(losses)):
            trouble = "the loss is not finite"
        elif not all(bool(torch.isfinite(p).all()) for p in self.agent.network.parameters()):
            trouble = "a weight is not finite"
        if trouble is None:
            return
        self.run.flush()
        kept = sorted((self.run.path / "checkpoints").glob("step-*"))
        last = f"the last good checkpoint is {kept[-1]}" if kept else "no checkpoint was written"
        raise Diverged(
            f"{self.algorithm} diverged: {trouble} at step {self.step:,}; {last}. Try a smaller "
            "--algo.learning-rate or another --net.activation"
        )

    def save(self) -> None:
        """Write a checkpoint, with the streams on the disk before it."""
        self._check_finite()
        self._save_due = False
        with self.clock("saving"):
            self.run.flush(to_disk=True)
            checkpoint.save(self.run.path / "checkpoints", self.step, self.parts)

    def _finish(self) -> dict[str, Any]:
        # Before the closing row: a run that is carried on from here has none.
        self.save()
        if self._logged != self.step:
            self._log()
            self.run.flush(to_disk=True)
        self._show()
        summary = {
            "steps": self.step,
            "score": mean(self.scores),
            "greedy_score": self.greedy_score(),
            "episodes": self.episodes,
            "seconds": round(self.clock.seconds, 1),
        }
        self.run.finish(summary)
        return summary

    def close(self) -> None:
        """Give the environments and the folder free."""
        self._computing.close()
        self.envs.close()
        if self.greedy is not None:
            self.greedy.envs.close()
        if self.evaluation is not None:
            self.evaluation.close()
        if hasattr(self, "run"):
            self.run.close()


class Clock:
    """Where the time goes; parts of one run may have been timed by earlier processes."""

    def __init__(self) -> None:
        self.before = 0.0
        self.began = time.perf_counter()
        self.spent: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Time of the whole run so far."""
        return self.before + time.perf_counter() - self.began

    def __call__(self, what: str) -> Span:
        """Count the time spent inside to a part."""
        return Span(self.spent, what)

    def row(self, step: int) -> dict[str, Any]:
        """Return a row of timing.jsonl: this process's seconds by part."""
        parts = {name: round(seconds, 3) for name, seconds in self.spent.items()}
        return {"step": step, "seconds": round(self.seconds, 3), "parts": parts}


class Span:
    """A stretch of time that is added to a part's; a generator would take three times as long."""

    def __init__(self, spent: dict[str, float], what: str) -> None:
        self.spent, self.what = spent, what

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        took = time.perf_counter() - self.start
        self.spent[self.what] = self.spent.get(self.what, 0.0) + took


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def mean(values: Collection[float]) -> float | None:
    """Return the mean, or None of nothing."""
    return math.fsum(values) / len(values) if values else None
