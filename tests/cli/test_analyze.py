"""The command that diagnoses a trained run."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import Command


def test_analyze_diagnoses_all_hidden_layers(
    finished: Path, command: Command, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    files = {file: file.read_bytes() for file in finished.rglob("*") if file.is_file()}
    result = command("analyze", finished, "--output", page, "--samples", "200")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"{finished} at step 1,500\n")
    assert result.out.endswith(f"wrote {page}\n")
    for layer in ("encoder.hidden.0", "encoder.hidden.1"):
        assert layer in result.out
        assert layer in page.read_text()
    assert "<html" in page.read_text()
    assert {file: file.read_bytes() for file in finished.rglob("*") if file.is_file()} == files
    for samples in ("0", "1", "-3"):
        result = command("analyze", finished, "--samples", samples)
        assert (result.code, result.out) == (2, "")
        assert result.err == f"hadamard: --samples must be at least 2, got {samples}\n"
