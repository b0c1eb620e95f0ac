"""The package as a stranger meets it: what it imports, from where, and how fast."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hadamard
from tests.support.pages import DOCS, table

SOURCE = Path(hadamard.__file__).parent
CORE = {"torch", "numpy", "hadamard"}
# What an integration is an integration of.
INTEGRATED = {
    "flax": {"flax", "jax"},
    "lightning": {"lightning"},
    "sb3": {"stable_baselines3"},
}
# Packages whose __init__ holds no code: importing from them is importing one of their modules.
PACKAGES = {f"hadamard.{room}" for room in ("compute", "core", "experiments", "learning", "nets")}


def imports(path: Path, everywhere: bool) -> set[str]:
    """Modules a file imports; at module level only, or inside functions too."""
    tree = ast.parse(path.read_text())
    nodes = ast.walk(tree) if everywhere else ast.iter_child_nodes(tree)
    modules: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return modules


def is_module(name: str) -> bool:
    """Whether a name is a module of the house, not a package with modules or a name in one."""
    path = SOURCE.joinpath(*name.split(".")[1:])
    own_code = (path / "__init__.py").is_file() and name not in PACKAGES
    return name.startswith("hadamard.") and (path.with_suffix(".py").is_file() or own_code)


def inside(package: str, modules: set[str]) -> set[str]:
    return {m for m in modules if m == package or m.startswith(f"{package}.")}


def files(room: str) -> list[Path]:
    module = SOURCE / f"{room}.py"
    paths = [module] if module.is_file() else sorted((SOURCE / room).rglob("*.py"))
    assert paths
    return paths


@pytest.mark.parametrize("path", files("."), ids=lambda p: str(p.relative_to(SOURCE)))
def test_at_import_only_the_core_is_needed(path: Path) -> None:
    top = {module.partition(".")[0] for module in imports(path, everywhere=False)}
    foreign = top - CORE - set(sys.stdlib_module_names)
    # Both are imported where they are used.
    allowed = {"triton"} if path.stem.endswith("_triton") else set()
    allowed |= {"matplotlib"} if path.stem == "plain_figure" else set()
    allowed |= INTEGRATED.get(path.stem, set()) if path.parent.name == "integrations" else set()
    assert foreign <= (allowed | {"tyro"} if path.parent.name == "cli" else allowed)


# Whatever a room may import of the house; text needs nothing and everyone may use it.
MAY_IMPORT = {
    "layers": ("compute.kernels", "core.discover", "modules"),
    "health": ("core.run", "theory", "trackers", "report", "modules"),
    "theory": (),
    "trackers": (),
    "modules": (),
    "text": (),
    "core": (),
    "compute": ("core",),
    "learning": ("core", "compute"),
    "nets": ("core", "compute", "learning", "layers"),
    "plasticity": ("core", "compute", "layers", "nets", "modules"),
    "algos": ("core", "compute", "learning", "nets"),
    "envs": ("core.cores", "core.counter", "core.discover", "core.plugins", "core.types"),
    "training": (
        *("core", "compute", "envs", "health", "learning", "nets", "plasticity", "trackers"),
    ),
    "report": ("core", "theory", "experiments.paper", "experiments.grid"),
    "experiments": ("core", "envs", "report", "training"),
    "integrations": ("core.run", "health", "layers", "report.data", "trackers"),
    "api": ("core", "envs", "report", "training"),
}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_go_one_way(room: str) -> None:
    allowed = (room, "text", *MAY_IMPORT[room])
    for path in files(room):
        modules = {m for m in imports(path, everywhere=True) if is_module(m)}
        permitted = {m for name in allowed for m in inside(f"hadamard.{name}", modules)}
        assert modules - permitted == set(), path


def test_the_directions_are_those_of_the_architecture() -> None:
    stated = {
        room: tuple(re.findall(r"[\w.]+", rooms.replace("nothing", "")))
        for room, rooms in table((DOCS / "architecture.md").read_text(), "room")
    }
    assert stated == MAY_IMPORT


def test_health_meets_the_report_in_one_file() -> None:
    for path in files("health"):
        if path.stem != "drawing":
            assert not inside("hadamard.report", imports(path, everywhere=True)), path


def test_every_room_has_its_directions() -> None:
    rooms = {path.stem for path in SOURCE.iterdir() if not path.name.startswith("_")}
    assert rooms - {"py"} == {*MAY_IMPORT, "cli"}


def test_the_report_never_imports_torch() -> None:
    for path in files("report"):
        assert not inside("torch", imports(path, everywhere=True)), path


def test_an_algorithm_fits_a_reader() -> None:
    for path in files("algos"):
        assert len(path.read_text().splitlines()) < 300, path


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
