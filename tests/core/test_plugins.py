"""Plugins are found by their names, and a wrong one is refused with its place and its fault."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import hadamard
from hadamard import layers
from hadamard.core import builtin, discover, identity, plugins
from hadamard.core.plugins import PluginError, load_plugin
from hadamard.training.start import default_spec
from tests.support.plugins import NAMES, write_package, write_plugin


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Plugins of a test are unknown after it."""
    with plugins.named([]):
        yield


LAYER = '''"""Half: half of the output."""
def build(recipe):
    """Half: a branch, halved."""
    return recipe.build()
'''
REMEDY = '''"""Rest: nothing is done."""
from dataclasses import dataclass
@dataclass(frozen=True)
class Config:
    def check(self): ...
def build(network, optimizer, config, seed):
    return lambda updates, obs: None
'''


def file(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


def test_each_kind_is_known_by_its_files_name(tmp_path: Path) -> None:
    modules = {name: load_plugin(write_plugin(tmp_path, name)) for name in NAMES}
    assert "double_dqn" in discover.names(discover.ALGORITHMS)
    assert discover.find(discover.ALGORITHMS, "double_dqn", "") is modules["double_dqn"]
    assert discover.title(discover.ALGORITHMS, "double_dqn") == "Double DQN"
    assert {"redo", "weight_noise"} <= {*discover.names(discover.REMEDIES)}
    assert layers.variants()["maxout"].startswith("Maxout: two branches without an activation")
    assert isinstance(layers.build("maxout", layers.LinearBranch(3, 4)), modules["maxout"].Maxout)
    assert hadamard.load_plugin is load_plugin
    # They are known to defaults, variants and suites.
    spec = default_spec("double_dqn", "probe/both")
    assert (spec.algo.learning_starts, spec.net.width) == (1_000, 64)
    assert identity.variant("tanh+maxout+weight_noise") == {
        "net.activation": "tanh",
        "net.layer": "maxout",
        "remedy": "weight_noise",
    }
    assert identity.variant("maxout") == {"net.layer": "maxout"}
    assert identity.variant("redo+weight_noise") == {"remedy": "redo,weight_noise"}
    with pytest.raises(ValueError, match=r"unknown variant 'maxout\+crelu'"):
        identity.variant("maxout+crelu")
    with pytest.raises(ValueError, match="unknown variant 'maxxout'; did you mean 'maxout'"):
        identity.variant("maxxout")


def test_a_plugin_of_a_command_is_unknown_after_it(tmp_path: Path) -> None:
    path = str(write_plugin(tmp_path, "maxout"))
    with plugins.named([path]):
        assert "maxout" in layers.variants()
    with pytest.raises(ValueError, match="unknown layer variant 'maxout'"):
        layers.build("maxout", layers.LinearBranch(3, 4))
    with (
        pytest.raises(PluginError, match=r"--plugin names .*maxout\.py twice"),
        plugins.named([path, os.path.relpath(path)]),
    ):
        pass


def test_a_module_is_loaded_as_it_is_and_a_changed_file_anew(tmp_path: Path) -> None:
    path = file(tmp_path, "half.py", LAYER)
    first = load_plugin(path)
    assert load_plugin(str(path)) is first
    path.write_text(LAYER.replace("halved", "in half"))
    second = load_plugin(path)
    assert second is not first
    assert layers.variants()["half"] == "Half: a branch, in half."
    module = ModuleType("my_half")
    module.__file__ = str(path)
    exec(LAYER, module.__dict__)
    assert load_plugin(module) is module
    assert discover.find(discover.LAYERS, "half", "") is module
    with pytest.raises(PluginError, match="the module __main__ has no file"):
        load_plugin(ModuleType("__main__"))


def test_another_process_gets_the_text_that_was_loaded(tmp_path: Path) -> None:
    path = file(tmp_path, "half.py", "# -*- coding: latin-1 -*-\nNOTE = 'caf\\xe9'\n" + LAYER)
    load_plugin(path)
    text = plugins.to_text()
    path.unlink()
    with plugins.named([]):
        plugins._loaded.clear()
        assert "half" not in layers.variants()
        plugins.load_text(text)
        plugins.load_text(text)
        module = discover.find(discover.LAYERS, "half", "")
        assert module.NOTE == "café"
        assert pickle.loads(pickle.dumps(module.build)) is module.build
    assert plugins.to_text("hadamard.algos", "half") == ""
    assert plugins.to_text("hadamard.layers", "half") == text


WRONG = {
    "syntax.py": ("def build(:\n", r"syntax\.py is not Python, line 1: "),
    "later.py": (
        "import math\nvalue = math.no\n",
        r"later\.py fails on import, \S+later\.py, line 2: Attr",
    ),
    "gone.py": (
        "\nimport not_there\n",
        r"gone\.py, line 2: ModuleNotFoundError: No module named 'not_there'",
    ),
    "ends.py": ("raise SystemExit(3)\n", r"ends\.py, line 1: SystemExit: 3"),
    "null.py": ("a = 1\0\n", r"null\.py is not Python"),
    "empty.py": ("", "defines nothing that hadamard uses: an algorithm defines Config, NET"),
    "alg.py": (
        "NET = ENV = 1\ndef build(): ...\n",
        r"alg\.py lacks Config and ACTIONS: an algorithm defines",
    ),
    "suit.py": ("def make(): ...\n", r"suit\.py lacks tasks: a suite defines tasks and make"),
    "rem.py": ("class Config: ...\n", r"rem\.py lacks build: a remedy defines Config and build"),
    "plain_config.py": (
        "class Config: ...\ndef build(): ...\n",
        "Config must be a frozen dataclass",
    ),
    "unchecked.py": (
        REMEDY.replace("def check(self): ...", "a: int = 1"),
        "Config lacks the method check",
    ),
    "value.py": ("build = 3\n", "build must be a function"),
    "not-a-name.py": (LAYER, "needs another name"),
    "_private.py": (LAYER, "needs another name"),
    "half.txt": (LAYER, "needs another name"),
    "seed.py": (REMEDY, "needs another name: seed is a setting of every run"),
    "large.py": ("#" * 2_000_000, "has more than 1,048,576 bytes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_by_its_fault(name: str, tmp_path: Path) -> None:
    text, message = WRONG[name]
    before = sys.modules.get(module := f"hadamard_plugin_{Path(name).stem}")
    with pytest.raises(PluginError, match=message) as refused:
        load_plugin(file(tmp_path, name, text))
    assert str(tmp_path / name) in str(refused.value)
    assert sys.modules.get(module) is before


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "missing.py", "missing.py is missing: there is no such file"),
        (tmp_path, "cannot be read: Is a directory"),
        ("", "--plugin is empty"),
        ("/dev/full", "is not a file"),
        ("a\0b.py", "cannot be read"),
    ):
        with pytest.raises(PluginError, match=message):
            load_plugin(path)
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(PluginError, match="is not a file"):
        load_plugin(tmp_path / "pipe.py")


def test_a_name_that_is_taken_is_refused_with_both_places(tmp_path: Path) -> None:
    own = builtin.file_of(discover.LAYERS, "crelu")
    taken = file(tmp_path, "crelu.py", LAYER)
    with pytest.raises(PluginError, match=f"crelu is there already: {own} and {taken}"):
        load_plugin(taken)
    suite = "def tasks(): return ()\ndef make(): ...\n"
    with pytest.raises(PluginError, match="the suite probe is there already"):
        load_plugin(file(tmp_path, "Probe.py", suite))
    first, second = (file(tmp_path / name, "half.py", LAYER) for name in "ab")
    load_plugin(first)
    with pytest.raises(PluginError, match=f"two plugins are called half: {first} and {second}"):
        load_plugin(second)
    # What variants share is no variant, and its name is free.
    load_plugin(file(tmp_path, "branch.py", LAYER))


def test_an_installed_package_is_imported_when_its_name_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_package(tmp_path, "hadamard.layers", {"half": LAYER, "broken": "1 / 0\n"})
    monkeypatch.syspath_prepend(str(folder))
    assert layers.variants()["half"] == "Half: a branch, halved."
    assert "half" in identity.parts()
    assert "half" not in discover.names(discover.LAYERS, installed=False)
    assert not (tmp_path / "imported").exists()
    (plugin,) = plugins.called(discover.LAYERS, "half")
    assert (plugin.place, plugin.release) == (
        "extras.half of the installed package extras 1.0",
        "extras 1.0",
    )
    assert layers.build("half", layers.LinearBranch(3, 4)) is not None
    assert (tmp_path / "imported").exists()
    place = tmp_path / "extras" / "broken.py"
    with pytest.raises(PluginError, match=f"extras 1.0 fails on import, {place}, line 1: Z"):
        layers.build("broken", layers.LinearBranch(3, 4))
    with pytest.raises(PluginError, match=r"half is there already: extras\.half of .* and /"):
        load_plugin(file(tmp_path / "files", "half.py", LAYER))


def test_names_that_several_packages_have_are_refused_when_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        modules = {"half": LAYER, "crelu": LAYER}
        monkeypatch.syspath_prepend(
            str(write_package(tmp_path / name, "hadamard.layers", modules, name))
        )
    recipe = layers.LinearBranch(3, 4)
    with pytest.raises(ValueError, match=r"'half', and none.*\b(one|two)\.half of.* and \w+\.half"):
        layers.build("half", recipe)
    with pytest.raises(ValueError, match=r"layers/crelu\.py and \w+\.crelu of the installed"):
        layers.build("crelu", recipe)
    assert layers.variants()["crelu"].startswith("CReLU: ")
    assert layers.build("plain", recipe) is not None
