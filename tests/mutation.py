"""Put small faults into the code, one at a time, and see that tests notice them.

    python tests/mutation.py --output mutants

The faults are drawn with a seed from the files of ``tests.support.mutants.GROUPS``. Each is put
into a copy of the repository, where the tests that run the changed lines are run, fastest first.
Results are appended to a file: a run that was stopped goes on, and faults that no test noticed are
tried again. Which test runs which line is kept in covering.json: delete it when tests changed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # a process with more threads cannot be forked
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest

from tests.support.mutants import GROUPS, Mutant, in_order, relevant_tests, sample
from tests.support.paths import ROOT, SHARED

TESTS = ["tests/learning", "tests/core", "tests/health", "tests/report"]
TESTS += [f"src/hadamard/{name}" for name in ("learning", "core", "health", "report")]
TESTS += ["tests/cli/test_analyze.py", "tests/training/test_health_stream.py"]
TESTS += ["tests/training/test_hostile_folders.py", "tests/training/test_start.py"]
SLOW = ["tests/report/pages/test_full_report_browser.py"]
IMPORTED_ONCE = ("torch", "scipy.stats", "hypothesis", "safetensors.torch", "tyro", "rich.console")
IMPORTED_ONCE += ("matplotlib.figure", "gymnasium", "pytest_cov.plugin")
"""What every test process has from the start: everything slow but the package itself."""
BROKEN = 70
"""The exit code of a process that could not run any test."""
SLOW_SETUP = 0.5
"""Seconds of a setup that tests of a file share."""
LARGEST_MEMORY = 8 * 2**30
"""Bytes that a process may use: a fault may ask for too many."""
IN_TIME = (60.0, 10.0)
"""A fault is noticed if its tests take these seconds and this many times what they usually take."""


class Selected:
    """Runs some tests only, fastest first, and keeps what came of them."""

    def __init__(self, order: Sequence[str] | None = None) -> None:
        self.order = order
        self.seconds: dict[str, float] = {}
        self.slow_setups: set[str] = set()
        self.failed = ""

    def pytest_sessionstart(self) -> None:
        import hypothesis

        # A failing example need not be made small, and a busy machine is no failure.
        known = hypothesis.settings.get_profile("tests")
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        checks = list(hypothesis.HealthCheck)
        hypothesis.settings.register_profile(
            "mutants", known, phases=phases, suppress_health_check=checks
        )
        hypothesis.settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.order is None:
            return
        by_name = {item.nodeid: item for item in items}
        missing = [name for name in self.order if name not in by_name]
        if missing:
            self.failed = f"{missing[0]} (cannot be collected)"
            pytest.exit(self.failed, 1)
        items[:] = [by_name[name] for name in self.order]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = f"{report.nodeid} (cannot be collected)"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.when == "setup" and report.duration > SLOW_SETUP:
            self.slow_setups.add(report.nodeid.partition("::")[0])
        if report.failed and not self.failed:
            self.failed = report.nodeid


def copied(folder: Path) -> Path:
    """Copy the repository as it is now, compiled, and return the copy."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(lambda name: (ROOT / name).is_file(), names.splitlines()):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    beside = folder.parent / SHARED.name
    if SHARED.is_dir() and not beside.exists():
        beside.symlink_to(SHARED)
    compiling = [sys.executable, "-m", "compileall", "-q", str(folder / "src")]
    subprocess.run(compiling, check=True)
    return folder


def run_tests(tree: Path, arguments: list[str], plugin: Selected) -> int:
    """Run pytest on a copy, in this process, which imported nothing of the package before."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "hadamard")]:
        del sys.modules[name]
    sys.path[:0] = [str(tree / "src"), str(tree)]
    os.environ["PYTHONPATH"] = str(tree / "src")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True  # a compiled file may be older than the fault
    tempfile.tempdir = os.environ["TMPDIR"] = str(tree.parent)
    os.chdir(tree)
    general = ["-q", "-p", "no:cacheprovider", f"--basetemp={tree}-temporary", f"--rootdir={tree}"]
    general += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # imported before the fork
    return int(pytest.main([*general, *arguments], plugins=[plugin]))


def forked(work: Callable[[], Any], log: Path) -> int:
    """Do something in a process of its own and return its number; its result goes to a file."""
    process = os.fork()
    if process:
        return process
    os.setsid()
    output = os.open(log.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (LARGEST_MEMORY, LARGEST_MEMORY))
    try:
        log.write_text(json.dumps(work()))
        os._exit(0)
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(BROKEN)


def covering_tests(tree: Path) -> dict[str, Any]:
    """Find out which tests run which lines, and how long they take."""
    from coverage import CoverageData

    settings, data = tree / "mutation.coveragerc", tree / "mutation.coverage"
    settings.write_text(f"[run]\nsource = {tree / 'src'}\ndata_file = {data}\n")
    plugin = Selected()
    options = ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report="]
    ignored = [f"--ignore={name}" for name in SLOW]
    if run_tests(tree, [*options, *ignored, *TESTS], plugin):
        raise RuntimeError(f"without any fault this fails: {plugin.failed}")
    measured = CoverageData(str(data))
    measured.read()
    covering = {}
    for path in measured.measured_files():
        lines = measured.contexts_by_lineno(path)
        covering[str(Path(path).relative_to(tree))] = {
            line: sorted({name.partition("|")[0] for name in names})
            for line, names in lines.items()
        }
    slow_setups = sorted(plugin.slow_setups)
    return {"covering": covering, "seconds": plugin.seconds, "slow_setups": slow_setups}


@dataclass
class Trial:
    """A fault whose tests are running."""

    mutant: Mutant
    process: int
    log: Path
    ends: float
    began: float

    def result(self, *, timed_out: bool) -> dict[str, Any]:
        """Say what came of it. A process that ended without a word was ended by the fault."""
        record = {"name": self.mutant.name, "group": self.mutant.group}
        record["seconds"] = round(time.monotonic() - self.began, 1)
        if timed_out:
            return {**record, "status": "killed", "by": "the time limit"}
        if not self.log.is_file():
            return {**record, "status": "killed", "by": "the end of the process"}
        code, failed = json.loads(self.log.read_text())
        if not code:
            return {**record, "status": "survived", "by": ""}
        return {**record, "status": "killed", "by": failed or f"exit code {code}"}


class Trials:
    """Tries faults in copies of the repository, a few at a time."""

    def __init__(self, folder: Path, workers: int, known: dict[str, Any], longest: float) -> None:
        self.longest = longest
        self.free = [copied(folder / f"copy{i}") for i in range(workers)]
        self.known = known
        self.running: dict[Path, Trial] = {}

    def start(self, mutant: Mutant) -> None:
        """Put a fault into a free copy and start its tests."""
        tree, seconds = self.free.pop(), self.known["seconds"]
        tests = in_order(relevant_tests(mutant, self.known), self.known, self.longest)
        path, log = tree / mutant.path, tree / "mutation.json"
        path.write_bytes(mutant.applied((ROOT / mutant.path).read_bytes()))
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()
        log.unlink(missing_ok=True)
        files = sorted({name.partition("::")[0] for name in tests})

        def work() -> tuple[int, str]:
            plugin = Selected(tests)
            code = run_tests(tree, ["-x", *files], plugin) if tests else 0
            return code, plugin.failed

        began = time.monotonic()
        least, times = IN_TIME
        ends = began + least + times * sum(seconds[name] for name in tests)
        self.running[tree] = Trial(mutant, forked(work, log), log, ends, began)

    def wait(self) -> dict[str, Any]:
        """Wait until a fault has been tried, repair the copy and return the result."""
        while True:
            for tree, trial in self.running.items():
                late = time.monotonic() > trial.ends
                if late:
                    os.killpg(trial.process, signal.SIGKILL)
                process, status = os.waitpid(trial.process, 0 if late else os.WNOHANG)
                if process == 0:
                    continue
                if os.WIFEXITED(status) and os.WEXITSTATUS(status) == BROKEN:
                    raise RuntimeError(trial.log.with_suffix(".txt").read_text())
                del self.running[tree]
                shutil.copyfile(ROOT / trial.mutant.path, tree / trial.mutant.path)
                self.free.append(tree)
                return trial.result(timed_out=late)
            time.sleep(0.02)


def table(results: Sequence[dict[str, Any]]) -> str:
    """Count the faults and those that were noticed, by group, and list the others."""
    lines = []
    for group in [*GROUPS, "all"]:
        mine = [result for result in results if group in (result["group"], "all")]
        if mine:
            killed = sum(result["status"] == "killed" for result in mine)
            share = 100 * killed / len(mine)
            lines.append(f"{group:12}{len(mine):5}{killed:5} killed  {share:5.1f} %")
    lines += sorted(result["name"] for result in results if result["status"] != "killed")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Try the faults and print how many were noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=500, help="faults to draw")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--workers", type=int, default=2, help="faults to try at a time")
    parser.add_argument("--longest", type=float, default=60, help="seconds of tests for one fault")
    parser.add_argument("--output", type=Path, required=True, help="folder of the results")
    options = parser.parse_args(words)
    options.output.mkdir(parents=True, exist_ok=True)
    for name in IMPORTED_ONCE:
        importlib.import_module(name)
    in_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a sync to a disk takes long
    with tempfile.TemporaryDirectory(prefix="mutation-", dir=in_memory) as name:
        folder, known_file = Path(name).resolve(), options.output.resolve() / "covering.json"
        if not known_file.is_file():
            tree = copied(folder / "whole")
            os.waitpid(forked(lambda: covering_tests(tree), known_file), 0)
            if not known_file.is_file():
                print((options.output / "covering.txt").read_text(), file=sys.stderr)
                return 1
        trials = Trials(
            folder, options.workers, json.loads(known_file.read_text()), options.longest
        )
        results_file = options.output / "results.jsonl"
        results_file.touch()
        rows = [json.loads(line) for line in results_file.read_text().splitlines()]
        results = {row["name"]: row for row in rows}
        mutants = sample(ROOT, options.count, options.seed)
        left = [m for m in mutants if results.get(m.name, {}).get("status") != "killed"]
        while left or trials.running:
            while left and trials.free:
                trials.start(left.pop())
            result = trials.wait()
            results[result["name"]] = result
            with results_file.open("a") as file:
                file.write(json.dumps(result) + "\n")
        print(table([results[mutant.name] for mutant in mutants]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
