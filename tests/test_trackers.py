"""Mirrors of a run show its numbers, and their failures stay their own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hadamard.trackers import Mirrors


class Service:
    """What Weights & Biases hands out, as far as it is used."""

    def __init__(self, broken_after: int | None = None) -> None:
        self.logged: list[dict[str, Any]] = []
        self.broken_after = broken_after
        self.finished = False

    def log(self, values: dict[str, Any]) -> None:
        if len(self.logged) == self.broken_after:
            raise ConnectionError("the service is away")
        self.logged.append(values)

    def finish(self) -> None:
        self.finished = True


def mirrors(service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Mirrors:
    asked: dict[str, Any] = {}

    def init(**options: Any) -> Service:
        asked.update(options)
        return service

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    made = Mirrors(folder / "run", tensorboard=False, wandb="project", config={"seed": 3})
    assert asked == {"project": "project", "name": "run", "config": {"seed": 3}}
    return made


def test_numbers_are_shown_and_the_rest_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service()
    shown = mirrors(service, tmp_path, monkeypatch)
    shown.add({"loss": 0.5, "score": None, "name": "x"}, step=7)
    shown.close()
    assert service.logged == [{"loss": 0.5, "step": 7}]
    assert service.finished


def test_a_mirror_that_fails_is_dropped_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(broken_after=1)
    shown = mirrors(service, tmp_path, monkeypatch)
    shown.add({"loss": 0.5}, step=1)
    with pytest.warns(UserWarning, match="WandB is off from step 2: the service is away"):
        shown.add({"loss": 0.4}, step=2)
    shown.add({"loss": 0.3}, step=3)
    assert [row["step"] for row in service.logged] == [1]


def test_a_mirror_that_cannot_open_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.warns(UserWarning, match="training goes on without a mirror: .*wandb"):
        shown = Mirrors(tmp_path, tensorboard=False, wandb="project", config={})
    shown.add({"loss": 0.5}, step=1)
    shown.close()
