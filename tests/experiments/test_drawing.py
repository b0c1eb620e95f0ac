"""The figures of an experiment as `hadamard reproduce NAME --draw` draws them."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hadamard import cli
from hadamard.core.run import PROTOCOL
from hadamard.experiments import paper
from hadamard.experiments.paper import EXPERIMENTS
from hadamard.report.data.packed import SUFFIX
from tests.support.paper_runs import PLACES, Fake, rows, write

Draw = Callable[..., tuple[int, str, str]]


@pytest.fixture
def draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Draw:
    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(["reproduce", *words, "--folder", str(tmp_path), "--draw"])
        return code, *capsys.readouterr()

    return run


def write_fake_runs(
    folder: Path,
    name: str,
    keep: Callable[[Fake], bool] = lambda _: True,
    change: Callable[[dict[str, Any]], None] = lambda _: None,
    seeds: int = 4,
) -> None:
    """Write an experiment's fake runs at the smoke scale, filtered by keep, edited by change."""
    folder.mkdir(parents=True, exist_ok=True)
    for arm, job in paper.arms_and_jobs(name, "smoke", "runs", seeds):
        fake = Fake(job, arm.label)
        if keep(fake):
            record = fake.record()
            change(record)
            write(folder, job.path.name, record)


def figure_text(folder: Path, name: str) -> str:
    """Return the text in a figure."""
    svg = (folder / "smoke" / "figures" / name / "figure.svg").read_text()
    return " ".join(html.unescape(" ".join(re.findall(r">([^<>]+)</text>", svg))).split())


def page(folder: Path, name: str) -> str:
    return html.unescape((folder / "smoke" / "figures" / name / "index.html").read_text())


def test_a_figure_is_drawn_from_packed_runs(draw: Draw, tmp_path: Path) -> None:
    write_fake_runs(tmp_path / "packed", "fig-dqn")
    code, out, err = draw("fig-dqn", "--runs", str(tmp_path / "packed"), "--seeds", "4")
    folder = tmp_path / "smoke" / "figures" / "fig-dqn"
    assert (code, out, err) == (0, f"wrote {folder / 'index.html'}\n", "")
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "index.html", "figure.svg", "figure.png", "figure.pdf", "curves.csv",
        "numbers.csv", "numbers.tex", "claims.csv", "claims.tex",
    }  # fmt: skip
    text = page(tmp_path, "fig-dqn")
    for claim in EXPERIMENTS["fig-dqn"].claims:
        assert claim.text in text
    assert EXPERIMENTS["fig-dqn"].note in text
    assert "signs and orders may be compared with the paper" in text
    assert "1 task, 4 seeds, 2 k steps" in figure_text(tmp_path, "fig-dqn")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    draw("fig-dqn", "--runs", str(tmp_path / "packed"), "--seeds", "4")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_without_runs_the_command_that_trains_them_is_named(draw: Draw, tmp_path: Path) -> None:
    code, _, err = draw("fig-ppo", "--seeds", "3")
    assert code == cli.WRONG
    assert "there are no runs of fig-ppo in" in err
    assert f"`hadamard reproduce fig-ppo --scale smoke --folder {tmp_path} --seeds 3`" in err


def test_all_draws_every_experiment_with_runs_and_an_index(draw: Draw, tmp_path: Path) -> None:
    write_fake_runs(tmp_path / "smoke", "fig-ppo")
    code, out, err = draw("all", "--seeds", "4")
    assert code == 0
    index = (tmp_path / "smoke" / "figures" / "index.html").read_text()
    assert index.count('src="fig-ppo/figure.png"') == 1
    # Figures that share these runs are drawn too, those without any run are named.
    assert "fig-ppo-games/index.html" in out
    assert "fig-simbav2: no runs yet; train them with `hadamard reproduce fig-simbav2" in err
    assert index.count("no runs yet") == index.count('class="missing"') > 10
    for name in ("fig-ppo", "fig-ppo-pqn"):
        assert (tmp_path / "smoke" / "figures" / name / "figure.png").exists()
    # PQN's half of Figure 7 has no runs.
    assert "PQN: no runs." in figure_text(tmp_path, "fig-ppo-pqn")


def test_missing_arms_and_unequal_seeds_are_stated(draw: Draw, tmp_path: Path) -> None:
    write_fake_runs(tmp_path / "smoke", "fig-dqn",
            lambda run: run.arm != "ReLU + HR" and (run.arm, run.seed) != ("tanh", 0))  # fmt: skip
    code, _, _ = draw("fig-dqn", "--seeds", "4")
    assert code == 0
    for text in (page(tmp_path, "fig-dqn"), figure_text(tmp_path, "fig-dqn")):
        assert "Drawn without ReLU + HR: no complete runs." in text
        assert "Seeds are unequal: 3 to 4 runs per arm and task." in text
    judged = rows((tmp_path / "smoke/figures/fig-dqn/claims.csv").read_text())
    missing = [row for row in judged if "not measured: ReLU + HR" in row["reason"]]
    assert {row["verdict"] for row in missing} == {"undecided"}
    assert len(missing) == 3


def test_a_run_without_health_is_stated(draw: Draw, tmp_path: Path) -> None:
    def without(record: dict[str, Any]) -> None:
        record["health"] |= {"steps": [], "layers": [], "representation": "", "threshold": [],
                             "delta": [], "observations": []}  # fmt: skip

    write_fake_runs(tmp_path / "smoke", "fig-dqn", change=without)
    code, _, _ = draw("fig-dqn", "--seeds", "4")
    assert code == 0
    for text in (page(tmp_path, "fig-dqn"), figure_text(tmp_path, "fig-dqn")):
        assert "No dormant neurons on minatar/breakout: a run has no diagnosis." in text
    numbers = rows((tmp_path / "smoke/figures/fig-dqn/numbers.csv").read_text())
    assert all((row["value"] == "") == (row["measure"] != "score") for row in numbers)


def test_runs_of_another_protocol_are_left_out_with_a_sentence(draw: Draw, tmp_path: Path) -> None:
    def older(record: dict[str, Any]) -> None:
        if record["spec"]["seed"] == 3:
            record["protocol"] = PROTOCOL - 1

    write_fake_runs(tmp_path / "smoke", "fig-ppo", change=older)
    draw("fig-ppo", "--seeds", "4")
    remark = f"3 runs are of protocol {PROTOCOL - 1} left out: this version's is {PROTOCOL}"
    assert remark in page(tmp_path, "fig-ppo")


def test_damaged_packed_runs_are_named_and_left_out(draw: Draw, tmp_path: Path) -> None:
    write_fake_runs(tmp_path / "smoke", "fig-ppo")
    broken = sorted((tmp_path / "smoke").glob(f"*{SUFFIX}"))[0]
    broken.write_bytes(broken.read_bytes()[:-20])
    code, _, err = draw("fig-ppo", "--seeds", "4")
    assert code == 0
    assert f"hadamard: left out: {broken}" in err
    assert "Seeds are unequal: 3 to 4 runs" in page(tmp_path, "fig-ppo")


def test_runs_that_stop_early_say_how_far_they_came(draw: Draw, tmp_path: Path) -> None:
    write_fake_runs(tmp_path / "smoke", "fig-dqn")
    code, _, _ = draw("fig-dqn", "--seeds", "4", "--until", "1000")
    assert code == 0
    assert "to 1 k of 2 k steps" in figure_text(tmp_path, "fig-dqn")
    curves = rows((tmp_path / "smoke/figures/fig-dqn/curves.csv").read_text())
    assert max(float(row["step"]) for row in curves) == 1000
    numbers = rows((tmp_path / "smoke/figures/fig-dqn/numbers.csv").read_text())
    # Dormancy rises evenly: half of it at half of the budget.
    for row in numbers:
        if row["measure"] == "dormant_fraction":
            fakes = [Fake(job, arm.label) for arm, job in paper.arms_and_jobs(
                "fig-dqn", "smoke", "runs", 4) if arm.label == row["arm"]]  # fmt: skip
            half = np.mean([fake.dormant for fake in fakes]) / 2
            assert float(row["value"]) == pytest.approx(half, rel=1e-6)
    # None came so far: drawn to where all of them are.
    unfinished = tmp_path / "unfinished"

    def stopped(record: dict[str, Any]) -> None:
        record["summary"], record["reached"] = None, 1500
        for kind in record["scores"].values():
            kind["values"] = kind["values"][:150]

    write_fake_runs(unfinished / "smoke", "fig-dqn", change=stopped)
    cli.main(["reproduce", "fig-dqn", "--seeds", "4", "--folder", str(unfinished), "--draw"])
    assert "No run has reached 2 k steps: all are drawn up to 1.5 k" in page(unfinished, "fig-dqn")


def test_a_run_that_came_to_two_ends_counts_once_by_the_further(draw: Draw, tmp_path: Path) -> None:
    """Packed when it had come to half of its budget, and still a run of the same settings."""

    def half(record: dict[str, Any]) -> None:
        record["spec"]["train.until"] = record["reached"] = record["summary"]["steps"] = 1000
        for kind in record["scores"].values():
            kind["values"] = kind["values"][:100]
            kind["final"] = kind["values"][-1]

    write_fake_runs(tmp_path / "half", "fig-dqn", change=half)
    code, _, err = draw("fig-dqn", "--seeds", "4", "--runs", str(tmp_path / "half"))
    assert (code, err) == (0, "")
    assert "to 1 k of 2 k steps" in figure_text(tmp_path, "fig-dqn")
    write_fake_runs(tmp_path / "smoke", "fig-dqn")
    draw("fig-dqn", "--seeds", "4", "--runs", str(tmp_path / "half"))
    assert "4 seeds, 2 k steps" in figure_text(tmp_path, "fig-dqn")
    curves = rows((tmp_path / "smoke/figures/fig-dqn/curves.csv").read_text())
    assert max(float(row["step"]) for row in curves) == 2000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fig-dnq"], "did you mean 'fig-dqn'"),
        (["fig-dqn", "--runs", "nowhere"], "--runs nowhere: there is no such file or folder"),
        (["fig-dqn", "--until", "-3"], "--until must not be negative, got -3"),
        (["fig-dqn", "--curves", "none.csv"], "'none.csv' cannot be read: No such file or"),
    ],
)
def test_mistakes_in_a_request_are_explained(draw: Draw, words: list[str], message: str) -> None:
    code, _, err = draw(*words)
    assert code == cli.WRONG
    assert message in err


def test_the_shading_can_be_chosen(draw: Draw, tmp_path: Path) -> None:
    write_fake_runs(tmp_path / "smoke", "fig-dqn-games")
    for choice, name in (("paper", "standard deviation"), ("interval", "95 % interval")):
        draw("fig-dqn-games", "--seeds", "4", "--shading", choice)
        assert f"Shaded: {name}" in page(tmp_path, "fig-dqn-games").replace("shaded", "Shaded")


def test_published_curves_are_drawn_where_the_paper_has_them(draw: Draw, tmp_path: Path) -> None:
    write_fake_runs(tmp_path / "smoke", "fig-visual-humanoid")
    curves = tmp_path / "others.csv"
    points = [(method, seed, step) for method in ("XQC", "Other") for seed in (1, 2)
              for step in (0, 100, 200)]  # fmt: skip
    lines = [f"{method},probe/track84,{seed},{step},{step / 10}" for method, seed, step in points]
    curves.write_text("\n".join(["method,env,seed,step,score", *lines]))
    draw("fig-visual-humanoid", "--seeds", "4", "--curves", str(curves))
    table = tmp_path / "smoke/figures/fig-visual-humanoid/curves.csv"
    assert {row["arm"] for row in rows(table.read_text())} == {"MR.Q", "MR.Q + HR", "XQC"}


def test_claims_are_judged_by_one_rule(draw: Draw, tmp_path: Path) -> None:
    """Claims on fake runs, for which the correct verdict is known."""

    def known(record: dict[str, Any]) -> None:
        spec, seed = record["spec"], record["spec"]["seed"]
        tanh = spec["net.activation"] == "tanh"
        level = {True: {"plain": 40, "hadamard": 60}, False: {"plain": 50}}[tanh][spec["net.layer"]]
        values = [min(i, level + 0.1 * seed) for i in range(1, PLACES + 1)]
        record["scores"]["training"] = {"values": values, "final": values[-1]}

    write_fake_runs(tmp_path / "smoke", "fig-ppo", change=known, seeds=5)
    draw("fig-ppo", "--seeds", "5")
    judged = {row["claim"]: row for row in rows(
        (tmp_path / "smoke/figures/fig-ppo/claims.csv").read_text())}  # fmt: skip
    assert judged["tanh + HR is best: above ReLU"]["verdict"] == "supported"
    assert judged["tanh + HR is best: above tanh"]["verdict"] == "supported"
    assert judged["HR improves PPO by over 10 %"]["verdict"] == "supported"
    assert judged["tanh and ReLU are comparable"]["verdict"] == "not supported"
    # (60 - 50) / (50 - 1) of the baseline's range, in percent of the baseline's 1.
    change = float(judged["HR improves PPO by over 10 %"]["ours"])
    assert change == pytest.approx(100 * 10 / 49.2, rel=0.01)
