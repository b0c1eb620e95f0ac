"""The callback in Lightning's own trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("lightning", reason="lightning is not installed")

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger

from hadamard.integrations.lightning import HealthCallback
from hadamard.report.data.runs import load
from tests.support.health import sick_network

pytestmark = pytest.mark.filterwarnings("ignore")  # of the library's own


class Regression(LightningModule):
    def __init__(self, breaks_at: int | None = None) -> None:
        super().__init__()
        self.net, self.breaks_at = sick_network(), breaks_at

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Any, index: int) -> Tensor:
        if index == self.breaks_at:
            raise RuntimeError("broken")
        x, y = batch if isinstance(batch, list) else (batch["x"], batch["y"])
        return nn.functional.mse_loss(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 1e-3)


def trainer(folder: Path, callback: HealthCallback, **options: Any) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    logger = CSVLogger(folder)
    options = {"enable_checkpointing": False, "max_epochs": 1, "logger": logger, **options}
    return Trainer(callbacks=[callback], devices=1, **quiet, **options)


def outputs(net: nn.Module) -> int:
    return net(torch.zeros(2, 6)).shape[1]


def test_diagnoses_are_a_run_and_reach_the_loggers(tmp_path: Path) -> None:
    callback = HealthCallback(tmp_path / "run", every=4, about={"algorithm": "mine"})
    module = Regression()
    y = outputs(module.net)
    loader = DataLoader(TensorDataset(torch.randn(160, 6), torch.randn(160, y)), batch_size=16)
    trainer(tmp_path, callback, log_every_n_steps=1).fit(module, loader)
    (run,) = load([tmp_path / "run"])
    assert (run.algorithm, run.finished) == ("mine", True)
    assert run.health_steps.tolist() == [4, 8]
    assert callback.latest["net.1"].samples == 16
    (metrics,) = tmp_path.rglob("metrics.csv")
    assert "health/net.1/effective_rank" in metrics.read_text().splitlines()[0]
    assert module.training


def test_inputs_are_taken_out_of_a_batch(tmp_path: Path) -> None:
    callback = HealthCallback(
        None, every=2, inputs=lambda batch: batch["x"], forward=None, layers="net.3"
    )
    module = Regression()
    y = outputs(module.net)
    batches = [{"x": torch.randn(8, 6), "y": torch.randn(8, y)} for _ in range(4)]
    trainer(tmp_path, callback, accumulate_grad_batches=2).fit(
        module, DataLoader(batches, batch_size=None)
    )
    assert [layer.name for layer in callback.latest] == ["net.3"]


def test_a_training_that_breaks_off_leaves_an_unfinished_run(tmp_path: Path) -> None:
    callback = HealthCallback(tmp_path / "run", every=1)
    module = Regression(breaks_at=3)
    y = outputs(module.net)
    loader = DataLoader(TensorDataset(torch.randn(160, 6), torch.randn(160, y)), batch_size=16)
    with pytest.raises(RuntimeError, match="broken"):
        trainer(tmp_path, callback).fit(module, loader)
    (run,) = load([tmp_path / "run"])
    assert (run.finished, run.health_steps.tolist()) == (False, [1, 2, 3])


def test_bad_arguments_are_refused_at_construction() -> None:
    with pytest.raises(ValueError, match="every must be an integer from 1 up, got 0"):
        HealthCallback(every=0)
    with pytest.raises(TypeError, match="inputs must be a function of a batch, got str"):
        HealthCallback(inputs="x")
    with pytest.raises(TypeError, match="trackio must be the name of a project"):
        HealthCallback(trackio=3)
    with pytest.raises(TypeError, match="prefix must be a text"):
        HealthCallback(prefix=3)
