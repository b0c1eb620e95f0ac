"""The section of docs/evidence.md on results that nobody expected: its text, with computed numbers.

A sentence that the runs no longer bear out is an error: it must then be written anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hadamard.experiments.evidence.backing import backed
from hadamard.experiments.paper import find
from hadamard.report.data.run_data import RunData
from hadamard.report.statistics.difference import difference
from hadamard.report.statistics.estimates import report_generator
from hadamard.report.statistics.panel import PanelRuns
from hadamard.text import steps_words
from hadamard.theory import predicted_dormant

SCALE = "minatar-full"
HR, TANH, RELU, REDO = "tanh + HR", "tanh", "ReLU", "ReDo"
DORMANT = "dormant_fraction"


def section(runs: Mapping[str, Sequence[RunData]]) -> str:
    """Return the section as Markdown, given the runs of every scale."""
    data = backed(find("fig-crelu-redo"), SCALE, runs.get(SCALE, ())).panels["pqn"]
    if any(label not in data.complete for label in (HR, TANH, RELU, REDO)):
        return ""
    return "\n\n".join(
        ["## What surprised us, and what was tried", _introduction(data), _hr(data), _redo(data)]
    )


def _introduction(data: PanelRuns) -> str:
    return (
        f"Both surprises are of PQN on {len(data.tasks)} MinAtar games ({data.budget_words}, "
        f"{data.seeds()[0]} seeds; `results/{SCALE}`). What was tried is a closer look at the "
        "diagnoses in the packed runs; nothing was run for it. They are of the last hidden layer "
        f"alone, every {steps_words(_every(data))} steps, on 2,048 observations: of the first "
        "layer, of single branches and of weights they say nothing. Shares are means of games."
    )


def _hr(data: PanelRuns) -> str:
    steps = _steps(data)
    hr, tanh = (_over_time(data, label) for label in (HR, TANH))
    spec = _runs(data, HR)[0].spec
    _require(spec["algo.epsilon_fraction"] * spec["train.steps"] == steps[1], "exploration ends")
    _require(hr[-1] > tanh[-1] and hr[1] < tanh[1], "HR is healthier first and not at the end")
    first = int(np.flatnonzero(hr <= tanh).max()) + 1
    _require(first < len(hr) // 2, "HR stays above tanh for most of training")
    _require(hr[-1] > hr[first] and tanh[-1] > tanh[first], "both have risen by the end")
    dormant, saturated = (
        sum(_last(run, key) for run in _runs(data, HR)) for key in ("dormant", "saturated")
    )
    neurons = sum(_last(run, "neurons") for run in _runs(data, HR))
    elsewhere = dormant - saturated
    tanh_neurons = sum(_last(run, "neurons") for run in _runs(data, TANH))
    tanh_saturated = sum(_last(run, "saturated") for run in _runs(data, TANH)) / tanh_neurons
    stuck = saturated / neurons
    _require(stuck > tanh_saturated, "HR's stuck neurons alone are more than tanh's")
    shown, at_end, near_zero = _density_peaks(_runs(data, HR))
    _require(at_end + near_zero == shown > 0, "densities of dormant products peak at 0 or ±1")
    scores = {label: data.estimate("score", label, data.panel.aggregations[0]).value
              for label in data.shown_labels}  # fmt: skip
    _require(len(scores) == 5 and max(scores, key=lambda name: scores[name]) == HR, "HR is best")
    _require(_mean(data, "effective_rank", HR) > _mean(data, "effective_rank", TANH), "HR's rank")
    by_game = _by_game(data, HR, TANH)
    shares = _finals(data, TANH).values()
    predicted = float(np.mean([predicted_dormant(share, "tanh") for share in shares]))
    return (
        f"**HR has more dormant neurons than tanh: {_percent(hr[-1])} against "
        f"{_percent(tanh[-1])} at the end.**\n\n"
        f"- *When?* Early on it is as the paper says: at {steps_words(steps[1])} steps, as "
        f"exploration ends, {_percent(hr[1])} of HR's and {_percent(tanh[1])} of tanh's neurons "
        f"are dormant. From {steps_words(steps[first])} steps on HR has more at every one of the "
        f"{len(hr) - first} diagnoses, and both have risen by the end.\n"
        f"- *Where?* {by_game}.\n"
        f"- *Is it the rule, which takes products of small numbers for dormant?* In part. Of HR's "
        f"{dormant:.0f} dormant neurons {saturated:.0f} ({100 * saturated / dormant:.0f} %) have a "
        f"mean output of about ±1, where both factors are saturated; {elsewhere:.0f} have not. "
        f"Of the neurons whose densities are kept (16 of each run), {shown} are dormant: {at_end} "
        f"peak beyond ±0.9, {near_zero} within 0.1 of zero. Without those near zero HR has "
        f"{_percent(stuck)}, still more than the {_percent(tanh_saturated)} of tanh's that are at "
        f"±1.\n- *What of the theory?* With independent branches that saturate as often as tanh's "
        f"neurons, {_percent(predicted)} would be dormant. The {_percent(stuck)} at ±1 mean that "
        f"the two branches saturate together, or that each saturates far more often "
        f"({100 * np.sqrt(stuck):.0f} % each, if they were independent). The runs do not hold the "
        "branches, so which of the two is open.\n"
        "- *Does it matter?* HR's score is the highest of the five and its rank is above tanh's: "
        "here dormancy parts from both. The paper measured dormancy with DQN."
    )


def _redo(data: PanelRuns) -> str:
    steps = _steps(data)
    redo, relu = (_over_time(data, label) for label in (REDO, RELU))
    _require(redo[1] < relu[1] and redo[-1] > relu[-1], "ReDo is healthier first, not at the end")
    crossing = int(np.flatnonzero(redo <= relu).max()) + 1
    _require(crossing < len(redo) // 2, "ReDo stays above ReLU for most of training")
    runs = _runs(data, REDO)
    dead = sum(_last(run, "dead") for run in runs)
    _require(dead == sum(_last(run, "dormant") for run in runs), "all of them are exactly zero")
    rank_redo, rank_relu = (_mean(data, "effective_rank", label) for label in (REDO, RELU))
    _require(redo[-1] > redo[crossing], "ReDo's dead neurons have become more by the end")
    spec = runs[0].spec
    per_update = (
        spec["algo.num_envs"] * spec["algo.rollout_steps"]
        / (spec["algo.epochs"] * spec["algo.minibatches"])
    )  # fmt: skip
    period = spec["redo.period"]
    finals = data.finals("score")
    score = difference(
        finals[REDO], finals[RELU], data.panel.aggregations[0], unit="percent",
        rng=report_generator(),
    )  # fmt: skip
    _require(score.outcome == "no difference shown", "ReDo's score is not shown to differ")
    return (
        f"**ReDo has more dormant neurons than plain ReLU: {_percent(redo[-1])} against "
        f"{_percent(relu[-1])}.**\n\n"
        f"- *Is it the density, which small outputs of recycled neurons make high?* No. With ReLU "
        f"a neuron counts if it is zero on every observation, and all {dead:,.0f} dormant neurons "
        f"are. Nor can outgoing weights of zero do it by themselves: they do not enter the "
        "neuron's own output.\n"
        f"- *When?* Recycling works first: at {steps_words(steps[1])} steps "
        f"{_percent(redo[1])} are dead against {_percent(relu[1])}. From "
        f"{steps_words(steps[crossing])} steps on ReDo has more, and they have become "
        "more by the end.\n"
        f"- *Where?* {_by_game(data, REDO, RELU)}.\n"
        f"- *Does it matter?* The effective rank falls with it, {rank_redo:.0f} against "
        f"{rank_relu:.0f} of 128; of the score no difference is shown "
        f"({score.estimate.value:+.0f} %, {score.estimate.low:+.0f} to "
        f"{score.estimate.high:+.0f}).\n"
        f"- *Why?* The packed runs cannot tell. ReDo recycles every {period:,} updates "
        f"({steps_words(period * per_update)} steps) what is below tau = {spec['redo.tau']:g}, "
        "dead or nearly so. What is dead at a diagnosis has therefore died since the last "
        "recycling, or was dead from its new weights on. Whether the new weights behind a "
        "LayerNorm are the cause, tau, or the learning rate that decays to 0, takes runs with "
        "another `--redo.tau` and `--redo.period` and the number of neurons recycled each time; "
        "none were made."
    )


def _mean(data: PanelRuns, measure: str, label: str) -> float:
    """Return a measure's mean over games at the end."""
    return float(np.mean([np.mean(values) for values in data.finals(measure)[label].values()]))


def _by_game(data: PanelRuns, label: str, other: str) -> str:
    ours, theirs = _finals(data, label), _finals(data, other)
    words = [
        f"{task.partition('/')[2].replace('_', ' ').title()} {_percent(ours[task])} against "
        f"{_percent(theirs[task])}"
        for task in sorted(ours, key=lambda task: theirs[task] - ours[task])
    ]
    return ", ".join(words)


def _finals(data: PanelRuns, label: str) -> dict[str, float]:
    return {task: float(np.mean(v)) for task, v in data.finals(DORMANT)[label].items()}


def _over_time(data: PanelRuns, label: str) -> np.ndarray:
    """Return the dormant fraction at every diagnosis: the mean of games and seeds."""
    of_games = [
        np.mean([run.health[DORMANT] for run in runs], axis=0)
        for runs in data.complete[label].values()
    ]
    return np.asarray(np.mean(of_games, axis=0))


def _runs(data: PanelRuns, label: str) -> list[RunData]:
    return [run for runs in data.complete[label].values() for run in runs]


def _last(run: RunData, key: str) -> float:
    """Return a number of neurons at the last diagnosis."""
    if key == "dormant":
        return round(float(run.health[DORMANT][-1] * run.health["neurons"][-1]))
    return float(run.health[key][-1])


def _steps(data: PanelRuns) -> list[float]:
    """Return the steps of the diagnoses, rounded to what they were due at."""
    every = _every(data)
    return [every * round(step / every) for step in _runs(data, HR)[0].health_steps]


def _every(data: PanelRuns) -> int:
    return int(_runs(data, HR)[0].spec["train.health_every"])


def _density_peaks(runs: Sequence[RunData]) -> tuple[int, int, int]:
    """Return how many dormant neurons' last densities are kept, and peak beyond 0.9 and at 0."""
    peaks = [
        abs(grid.places[index][grid.density[index].argmax()])
        for grid in (run.snapshots[-1].grid for run in runs)
        for index in np.flatnonzero(grid.dormant)
    ]
    return len(peaks), sum(peak > 0.9 for peak in peaks), sum(peak < 0.1 for peak in peaks)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(f"docs/surprises.py: no longer so, write the section anew: {sentence}")
