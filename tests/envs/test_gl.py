"""The choice of OpenGL: found, set by the user, or missing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from hadamard import envs as suites
from hadamard.envs import gl, make
from tests.support.dmc import open_envs

pytestmark = pytest.mark.skipif(bool(suites.missing("dmc")), reason="needs the dmc extra")


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    # Set here, so that a value that choose() sets is removed after the test.
    monkeypatch.setenv(gl.VARIABLE, "")
    monkeypatch.setattr(gl.platform, "system", lambda: "Linux")
    return monkeypatch


def test_the_first_opengl_that_works_is_put_into_the_environment(unset: pytest.MonkeyPatch) -> None:
    probed = []

    def probe(kind: str) -> tuple[str, str]:
        probed.append(kind)
        return ("llvmpipe", "") if kind == "osmesa" else ("", "no such device")

    unset.setattr(gl, "_probe", probe)
    unset.setattr(torch.cuda, "is_available", lambda: False)
    assert gl.choose() == "osmesa"
    assert os.environ[gl.VARIABLE] == "osmesa"
    assert probed == ["egl", "osmesa"]
    assert gl.choose() == "osmesa"  # not probed again
    assert probed == ["egl", "osmesa"]


def test_the_users_setting_is_not_probed(unset: pytest.MonkeyPatch) -> None:
    unset.setattr(gl, "_probe", lambda kind: pytest.fail("it was probed"))
    unset.setenv(gl.VARIABLE, "glfw")
    assert gl.choose() == "glfw"
    unset.setenv(gl.VARIABLE, "off")
    with pytest.raises(gl.CannotDraw, match="MUJOCO_GL=off turns drawing off: unset it"):
        gl.choose()
    unset.setenv(gl.VARIABLE, "")
    unset.setattr(gl.platform, "system", lambda: "Darwin")
    assert gl.choose() == ""


def test_no_opengl_at_all(unset: pytest.MonkeyPatch) -> None:
    unset.setattr(gl, "_probe", lambda kind: ("", f"no {kind} here"))
    for suite in ("dmc/walker-walk", "gym/Hopper-v5"):
        with pytest.raises(gl.CannotDraw, match="no egl here.*no osmesa here.*apt-get install"):
            suites.prepare_to_draw(suite)
    with pytest.raises(gl.CannotDraw):  # before any worker starts
        make("dmc/walker-walk", 0, 2, workers=2)
    with open_envs("dmc-state/walker-walk") as envs:  # states need no OpenGL
        assert envs.reset().isfinite().all()
        with pytest.raises(gl.CannotDraw):
            envs.render()
    assert os.environ[gl.VARIABLE] == ""
    suites.prepare_to_draw("probe/both")


def test_drawing_in_software_beside_a_gpu_warns(unset: pytest.MonkeyPatch) -> None:
    unset.setattr(gl, "_probe", lambda kind: ("llvmpipe (LLVM 15)", ""))
    unset.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.warns(UserWarning, match="has a GPU .* in software .*NVIDIA_DRIVER_CAPABILITIES"):
        gl.choose()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import os; os.kill(os.getpid(), 9)", "exit code -9"),
        ("import time; time.sleep(60)", "within 0.2 s"),
        ("raise ImportError('no libEGL')", "ImportError: no libEGL"),
    ],
)
def test_a_broken_driver_breaks_only_its_own_process(
    program: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gl, "_PROBE", program)
    if "sleep" in program:
        monkeypatch.setattr(gl, "_TIMEOUT", 0.2)
    driver, error = gl._probe.__wrapped__("egl")
    assert not driver
    assert message in error


def test_a_wrong_setting_is_named() -> None:
    code = "from hadamard.envs import make; make('dmc-state/walker-walk', 0, 1)"
    completed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, gl.VARIABLE: "nonsense"},
        capture_output=True,
        text=True,
    )
    assert "CannotDraw: MUJOCO_GL=nonsense does not work here" in completed.stderr
