"""The script that times another library's training on our emulators."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hadamard import envs as suites
from tests.support.paths import ROOT

needs_atari = pytest.mark.skipif(bool(suites.missing("atari")), reason="needs the atari extra")


@needs_atari
@pytest.mark.parametrize(
    ("task", "shape"), [("Breakout-v5", (4, 84, 84)), ("probe/image", (1, 10, 10))]
)
def test_a_peers_script_is_timed_on_the_same_emulators(
    task: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    script = tmp_path / "peer_script.py"
    script.write_text(f"""
import sys
import envpool, gym, wandb
import numpy as np
from torch.utils.tensorboard import SummaryWriter

wandb.init(project="x")
SummaryWriter("y").add_scalar("z", 1, 2)
envs = gym.Wrapper(envpool.make("{task}", env_type="gym", num_envs=2, reward_clip=True))
assert envs.reset().shape == {(2, *shape)}
for _ in range(1_000_000):
    obs, reward, done, info = envs.step(np.zeros(2, dtype=np.int64))
    assert obs.shape == {(2, *shape)} and set(info) > {{"lives", "reward"}}
    assert sys.argv[1] == "--ours"
""")
    peer = ROOT / "benchmarks" / "peer.py"
    words = [sys.executable, peer, "--period", "3", "--warm", "2", "--seconds", "0.1"]
    words += ["--replace", "1_000_000", "9_999_999", script, "--ours"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert float(done.stdout.split("SPS: ")[1]) > 0
    words[words.index("1_000_000")] = "never said"
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "has no 'never said'" in refused.stderr
