"""A conversion and a diagnosis where two processes train together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from hadamard import hadamardize

WORKER = Path(__file__).parent / "distributed_worker.py"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes saw."""
    store = tmp_path_factory.mktemp("distributed") / "store"
    processes = [
        subprocess.Popen(
            [sys.executable, WORKER, str(rank), str(store)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_wrapped_model_is_not_converted(seen: list[dict[str, Any]], kind: str) -> None:
    for process in seen:
        message = process[f"{kind} refused"]
        assert "the model is wrapped for distributed training" in message
        assert "convert the network first, on every process from the same seed" in message


def test_data_parallel_is_refused_too() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    with pytest.raises(TypeError, match=r"'0' is wrapped .*DataParallel"):
        hadamardize(nn.Sequential(nn.DataParallel(net)))


def test_a_diagnosis_under_ddp(seen: list[dict[str, Any]]) -> None:
    first, second = seen
    assert first["ddp"] == second["ddp"]  # the same weights on the same observations
    inner = [{**layer, "name": f"module.{layer['name']}"} for layer in first["ddp inner"]]
    for layer in inner:
        layer["readers"] = [f"module.{name}" for name in layer["readers"]]
    assert first["ddp"] == inner
    assert first["ddp weights"] == second["ddp weights"]


def test_a_diagnosis_under_fsdp(seen: list[dict[str, Any]]) -> None:
    for process in seen:
        assert set(process["fsdp shards"]) == {"DTensor"}
        for layer, expected in zip(process["fsdp"], process["fsdp expected"], strict=True):
            assert layer.keys() == expected.keys()
            for name, value in expected.items():
                tolerance = 1e-4 if isinstance(value, float) else None
                assert layer[name] == (pytest.approx(value, rel=tolerance) if tolerance else value)
