"""The package as a stranger meets it: what it imports, from where, and how fast."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hadamard

SOURCE = Path(hadamard.__file__).parent
CORE = {"torch", "numpy", "hadamard"}


def imports(path: Path, everywhere: bool) -> set[str]:
    """Modules a file imports; at module level only, or inside functions too."""
    tree = ast.parse(path.read_text())
    nodes = ast.walk(tree) if everywhere else ast.iter_child_nodes(tree)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def inside(package: str, modules: set[str]) -> set[str]:
    return {m for m in modules if m == package or m.startswith(f"{package}.")}


def files(package: str) -> list[Path]:
    found = sorted((SOURCE / package).rglob("*.py"))
    assert found
    return found


@pytest.mark.parametrize("path", files("."), ids=lambda p: str(p.relative_to(SOURCE)))
def test_at_import_only_the_core_is_needed(path: Path) -> None:
    top = {module.partition(".")[0] for module in imports(path, everywhere=False)}
    foreign = top - CORE - set(sys.stdlib_module_names)
    allowed = {"triton"} if path.stem.endswith("_triton") else set()
    assert foreign <= (allowed | {"tyro"} if path.parent.name == "cli" else allowed)


def test_layers_and_health_do_not_know_each_other() -> None:
    for path in files("layers"):
        found = imports(path, everywhere=True)
        assert not inside("hadamard.health", found) | inside("hadamard.report", found), path
    for path in files("health"):
        assert not inside("hadamard.layers", imports(path, everywhere=True)), path


def test_the_report_never_imports_torch() -> None:
    for path in files("report"):
        found = imports(path, everywhere=True)
        assert not inside("torch", found), path
        assert not inside("hadamard.health", found) | inside("hadamard.layers", found), path


ABOVE = ("algos", "envs", "nets", "train", "trainer", "analyse", "evaluate", "experiments", "cli")


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("core", (*ABOVE, "layers", "health", "report", "plasticity", "trackers", "progress")),
        ("envs", ("algos", "nets", "layers", "health", "report", "train", "trainer", "plasticity")),
        (
            "algos",
            ("envs", "layers", "health", "report", "train", "trainer", "plasticity", "experiments"),
        ),
        (
            "nets",
            ("algos", "envs", "health", "report", "train", "trainer", "plasticity", "experiments"),
        ),
        ("layers", (*ABOVE, "core")),
        ("health", (*ABOVE, "core")),
        ("report", (*ABOVE, "core.types", "core.checkpoint", "core.replay")),
        ("plasticity", ("algos", "envs", "health", "report", "train", "trainer", "experiments")),
    ],
)
def test_imports_go_one_way(package: str, forbidden: tuple[str, ...]) -> None:
    for path in files(package):
        found = imports(path, everywhere=True)
        if package == "report":  # the paper's experiments are data, and import no torch
            for data in ("paper", "grid"):
                found -= inside(f"hadamard.experiments.{data}", found)
        for other in forbidden:
            assert not inside(f"hadamard.{other}", found), f"{path} imports {other}"


def test_the_environments_know_only_the_types() -> None:
    for path in files("envs"):
        core = inside("hadamard.core", imports(path, everywhere=True))
        assert all(module.startswith("hadamard.core.types") for module in core), path


def test_an_algorithm_fits_a_reader() -> None:
    for path in files("algos"):
        assert len(path.read_text().splitlines()) < 250, path


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_light() -> None:
    assert (
        run("import sys, hadamard, hadamard.report.pages.document; print('torch' in sys.modules)")
        == "False\n"
    )
    # With everything loaded, nothing heavy comes in beside torch.
    extra = run(
        "import sys, torch; before = set(sys.modules); import hadamard; hadamard.diagnose; "
        "hadamard.HadamardLinear; import json; "
        "new = {m.partition('.')[0] for m in set(sys.modules) - before}; "
        "print(' '.join(sorted(new & {'matplotlib', 'scipy', 'tensorboard', 'triton', 'pandas', "
        "'onnx', 'gymnasium', 'stable_baselines3', 'sympy'})))"
    )
    assert extra == "\n"


def test_the_core_works_with_nothing_else_installed() -> None:
    """Every optional package is made impossible to import."""
    script = """
import sys
for name in ('matplotlib', 'scipy', 'tensorboard', 'triton', 'PIL'):
    sys.modules[name] = None
import torch, hadamard
from torch import nn
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
print(hadamard.hadamardize(net))
report = hadamard.diagnose(net, torch.randn(64, 4))
print(report)
for action in (report.plot, report.plot_kde, lambda: report.save_html('page.html'),
               lambda: hadamard.Monitor(net, path=None, tensorboard='runs')):
    try:
        action()
    except ImportError as error:
        assert "pip install 'hadamard-rl[report]'" in str(error), error
    else:
        raise AssertionError('no error')
"""
    assert "Sequential: 1 hidden layer\n" in run(script)


def test_the_public_api_is_what_it_says() -> None:
    for name in hadamard.__all__:
        assert getattr(hadamard, name) is not None
    assert set(hadamard.__all__) <= set(dir(hadamard))
    with pytest.raises(AttributeError, match="has no attribute 'hadamardise'"):
        hadamard.hadamardise  # noqa: B018
