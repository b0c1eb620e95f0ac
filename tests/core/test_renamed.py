"""Old names of settings, options, commands, checkpoint parts and imports are still understood."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from hadamard.cli.train import spec_from
from hadamard.core import config, discover, renamed
from hadamard.training.start import default_spec
from tests.support.commands import Command


def test_every_new_name_exists() -> None:
    fields = {"env", "seed"}
    for name in discover.names(discover.ALGORITHMS):
        fields |= set(config.flattened(config.to_dict(default_spec(name))))
    assert set(renamed.SETTINGS.values()) <= fields
    assert not set(renamed.SETTINGS) & fields
    assert not set(renamed.RETIRED) & fields
    assert set(renamed.SWITCHES.values()) <= set(discover.names(discover.REMEDIES))
    for names in renamed.IMPORTS.values():
        for place in names.values():
            module, _, name = place.rpartition(".")
            assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--algo.lambda_ 0.9", "--algo.q-lambda 0.9"),
        ("--algo.lambda_=0.9", "--algo.q-lambda=0.9"),
        ("--redo.enabled --redo.tau 0.3", "--remedy redo --redo.tau 0.3"),
        ("--redo.no-enabled", "--remedy none"),
        ("--train.no-exact-resume --seed 3", "--seed 3"),
    ],
)
def test_old_options_are_understood_with_a_warning(old: str, new: str) -> None:
    with pytest.warns(UserWarning, match="is written .* now|no longer an option"):
        words = renamed.words("train", old.split())
    assert words == new.split()
    assert renamed.words("train", words) == words  # without a warning


def test_words_are_only_replaced_where_they_mean_it() -> None:
    with pytest.warns(UserWarning, match="--normalise=human_normalised is written --normalize="):
        words = renamed.words("report", ["x", "--normalise=human_normalised"])
    assert words == ["x", "--normalize=human_normalized"]
    assert renamed.words("train", ["--run-dir", "human_normalised"])[1] == "human_normalised"


def test_the_command_line_speaks_old_names(command: Command) -> None:
    said = command("analyse", "nowhere")
    assert "`hadamard analyse` is called `hadamard analyze` now" in said.err
    assert "nowhere is not a run" in said.err
    said = command("train", "pqn", "--algo.lambda_", "3")
    assert "warning: --algo.lambda_ is written --algo.q-lambda now" in said.err
    assert "--algo.q-lambda must lie in [0, 1], got 3" in said.err


def test_old_settings_are_overridden_with_a_warning() -> None:
    spec = default_spec("pqn", "probe/both")
    changes: dict[str, Any] = {"redo.tau": 0.3, "redo.enabled": True, "algo.lambda_": 0.9}
    with pytest.warns(DeprecationWarning, match="the setting .* is called .* now"):
        changed = config.overridden(spec, changes)
    words = [
        "--env",
        "probe/both",
        "--remedy",
        "redo",
        "--redo.tau",
        "0.3",
        "--algo.q-lambda",
        "0.9",
    ]
    assert changed == spec_from("pqn", words)


def test_moved_names_are_imported_with_a_warning() -> None:
    from hadamard.plasticity.redo import Config

    with pytest.warns(DeprecationWarning, match="hadamard.plasticity.redo.Config"):
        from hadamard.core.config import RedoSpec
    assert RedoSpec is Config
    with pytest.raises(ImportError):
        from hadamard.core.config import nothing  # noqa: F401


def test_parts_of_a_checkpoint_have_their_present_names() -> None:
    old = {
        "agent.optimiser": {"state": {}},
        "agent.network": {"normaliser.mean": 1, "actor.weight": 2},
        "loop": {"normaliser.mean": 3},
    }
    assert renamed.checkpoint(old) == {
        "agent.optimizer": {"state": {}},
        "agent.network": {"normalizer.mean": 1, "actor.weight": 2},
        "loop": {"normaliser.mean": 3},
    }
    new = renamed.checkpoint(old)
    assert renamed.checkpoint(new) == new


@pytest.mark.parametrize("value", [None, [], "x", {"spec": 3}, {"spec": {"redo": 3}}, {}])
def test_what_is_no_config_is_left_as_it_is(value: Any) -> None:
    assert renamed.config(value) == value
