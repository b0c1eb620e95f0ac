"""The folder of checkpoints: what is made in it, moved out of the way and removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hadamard.core import checkpoint, files
from hadamard.core.checkpoint import CheckpointError
from hadamard.core.files import RunError
from hadamard.learning.replay import Replay
from tests.support.checkpoints import Holder, three_saves
from tests.support.replay import Transitions


def test_folders_around_a_checkpoint_are_made(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one" / "checkpoints"
    path = checkpoint.save(folder, 1, {"part": Holder(3)})
    assert path == folder / "step-000000000001"
    assert checkpoint.newest(folder) == path


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_has_the_name_of_the_next_checkpoint_is_moved_aside(tmp_path: Path, kind: str) -> None:
    three_saves(tmp_path)
    other = tmp_path / "step-000000000004"
    if kind == "folder":
        other.mkdir()
    note = other / "note" if kind == "folder" else other
    note.write_text("mine")
    with pytest.warns(UserWarning, match=f"{other} was not made by this run: it is called") as seen:
        path = checkpoint.save(tmp_path, 4, {"part": Holder(4)})
    (moved,) = tmp_path.glob("*-moved-*")
    assert moved.name in str(seen[0].message)
    assert seen[0].filename == __file__  # of who saves
    assert (moved / "note" if kind == "folder" else moved).read_text() == "mine"
    assert path == other
    part = Holder()
    assert checkpoint.load(tmp_path, {"part": part}) == (4, [])
    assert part.state == 4


def test_a_checkpoint_is_saved_again_at_the_same_step(tmp_path: Path) -> None:
    three_saves(tmp_path)
    path = checkpoint.save(tmp_path, 3, {"part": Holder("again")})
    part = Holder()
    assert checkpoint.load(tmp_path, {"part": part}) == (3, [])
    assert part.state == "again"
    names = ["record.json", "step-000000000002", path.name]
    assert sorted(file.name for file in tmp_path.iterdir()) == names


def test_a_part_with_a_link_for_its_folder_is_refused(tmp_path: Path) -> None:
    stream = Transitions(1, 1)
    parts = {"replay": Replay(stream.spec, 1, 20, torch.device("cpu"))}
    parts["replay"].begin(stream.obs())
    folder, elsewhere = tmp_path / "checkpoints", tmp_path / "elsewhere"
    checkpoint.save(folder, 1, parts)
    (folder / "replay").rename(elsewhere)
    (folder / "replay").symlink_to(elsewhere)
    with pytest.raises(RunError, match="replay is a link: a run folder must hold a real folder"):
        checkpoint.save(folder, 2, parts)
    with pytest.raises(CheckpointError, match="replay is a link"):
        checkpoint.load(folder, parts)


def test_a_large_state_says_what_it_needs(tmp_path: Path) -> None:
    class Large:
        def save_increment(self, folder: Path) -> dict[str, Any]:
            return {"note": "x" * (files.SMALL + 1)}

        def prune(self, folder: Path, kept: list[Any]) -> None:
            pruned.append(len(kept))

    pruned: list[int] = []
    checkpoint.save(tmp_path, 1, {"replay": Large()})
    assert pruned == [1]
