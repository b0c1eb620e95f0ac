"""Pictures of MuJoCo scenes, on machines with or without a GPU or a display.

Where ``MUJOCO_GL`` is not set, the OpenGL that works here is found: EGL, which draws on a GPU, or
in software with Mesa where there is none; otherwise OSMesa. Both software forms draw the same
pixels at the same speed, and new releases of Mesa have only the first.

MuJoCo and dm_control choose their OpenGL once, when they are imported, from ``MUJOCO_GL``. Here it
is chosen at the first picture, whatever was imported before.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import os
import platform
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

VARIABLE = "MUJOCO_GL"
INSTALL = "apt-get install libegl1 libgl1 (or libosmesa6)"

_KINDS = ("egl", "osmesa")
_OFF = ("disable", "disabled", "off", "false", "0")
_ANY = ("", "enable", "enabled", "on", "true", "1")
_TIMEOUT = 60.0
"""Seconds that a driver may take to draw nothing."""

# Enough to know that a scene can be drawn; prints what draws it.
_PROBE = """
import importlib, sys
import mujoco
context = importlib.import_module("mujoco." + sys.argv[1]).GLContext(16, 16)
context.make_current()
model = mujoco.MjModel.from_xml_string("<mujoco/>")
mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
from OpenGL import GL
print(GL.glGetString(GL.GL_RENDERER).decode(), flush=True)
import os
os._exit(0)
"""


class CannotDraw(ImportError):
    """No OpenGL that MuJoCo can draw with; the message says what to install or to set."""


def choose() -> str:
    """Return the OpenGL to draw with, and tell the processes started from here.

    A value of ``MUJOCO_GL`` is taken as it is. Where there is none, what works is found once and
    put there: workers inherit it. Empty on systems where MuJoCo has only one.
    """
    _load_triton()
    wanted = os.environ.get(VARIABLE, "").strip().lower()
    if wanted in _OFF:
        raise CannotDraw(f"{VARIABLE}={wanted} turns drawing off: unset it to draw MuJoCo scenes")
    if wanted not in _ANY:
        return wanted
    if platform.system() != "Linux":
        return ""
    troubles = []
    for kind in _KINDS:
        drawn_by, trouble = _probe(kind)
        if not trouble:
            os.environ[VARIABLE] = kind
            _warn_if_slow(drawn_by)
            return kind
        troubles.append(f"{kind}: {trouble}")
    raise CannotDraw(
        f"nothing here can draw MuJoCo scenes ({'; '.join(troubles)}). Mesa, which needs no GPU, "
        f"is installed with: {INSTALL}"
    )


@functools.cache
def _load_triton() -> None:
    """Load Triton, where it is installed, before Mesa: after it, the process would crash.

    Both bring an LLVM. Mesa's is seen by all that is loaded later, and torch loads Triton whenever
    it first compiles.
    """
    if "OpenGL" not in sys.modules:  # else it is too late
        with contextlib.suppress(ImportError):
            importlib.import_module("triton")


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import MuJoCo or dm_control inside: both obey ``MUJOCO_GL``, and can fail at it."""
    _load_triton()
    try:
        with warnings.catch_warnings():
            # GLFW, which they load where nothing is set, complains of a missing display.
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # a driver may fail in any way
        kind = os.environ.get(VARIABLE)
        if kind is None or isinstance(error, ModuleNotFoundError):
            raise
        raise CannotDraw(_failure(kind, error)) from error


def _failure(kind: str, error: Exception) -> str:
    said = f"{VARIABLE}={kind} does" if kind else "OpenGL does"
    return (
        f"{said} not work here ({error}). Unset {VARIABLE}, and what works is found; Mesa, which "
        f"needs no GPU, is installed with: {INSTALL}"
    )


@functools.cache
def _probe(kind: str) -> tuple[str, str]:
    """Return what draws with this kind of OpenGL, or what is wrong with it.

    In a process of its own: a driver may crash, and who has loaded one cannot load another.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, kind],
            env={**os.environ, VARIABLE: kind},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return "", f"does not answer within {_TIMEOUT:g} s"
    if done.returncode == 0:
        return done.stdout.strip(), ""
    last = done.stderr.strip().rpartition("\n")[2]
    return "", last or f"the driver ended with exit code {done.returncode}"


def _warn_if_slow(drawn_by: str) -> None:
    """Say so when a GPU stands idle: in a container its graphics may not have been passed on."""
    software = any(name in drawn_by.lower() for name in ("llvmpipe", "softpipe", "swrast"))
    if software and torch.cuda.is_available():
        warnings.warn(
            f"this machine has a GPU and scenes are drawn in software ({drawn_by}), which takes "
            "many times longer. In a container, start it with NVIDIA_DRIVER_CAPABILITIES=all",
            stacklevel=3,
        )


_open: weakref.WeakSet[Renderer] = weakref.WeakSet()


class Renderer:
    """Draws pictures of one size; nothing is loaded before the first.

    One serves any number of simulations whose models differ in numbers only, not in meshes or
    textures: what OpenGL keeps of a model takes megabytes.
    """

    def __init__(self, height: int, width: int) -> None:
        self.height, self.width = height, width
        self._gl: Any = None
        self._context: Any = None

    def render(self, model: Any, data: Any, camera: Any = 0) -> NDArray[np.uint8]:
        """Draw a simulation.

        Args:
            model: The simulation's ``MjModel``.
            data: Its ``MjData``.
            camera: Number of one of the model's cameras, or an ``MjvCamera``.

        Returns:
            A picture of shape (height, width, 3).
        """
        import mujoco

        if self._context is None:
            self._prepare(model)
        if isinstance(camera, int):
            self._fixed.fixedcamid = camera
            camera = self._fixed
        mujoco.mjv_updateScene(
            model,
            data,
            self._option,
            self._perturbation,
            camera,
            mujoco.mjtCatBit.mjCAT_ALL.value,
            self._scene,
        )
        self._gl.make_current()
        mujoco.mjr_render(self._size, self._scene, self._context)
        picture = np.empty((self.height, self.width, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(picture, None, self._size, self._context)
        # OpenGL counts rows from below.
        return np.ascontiguousarray(picture[::-1])

    def close(self) -> None:
        """Free what OpenGL holds; the next picture would load it again."""
        if self._context is not None:
            # The names of what is freed are those of the current context.
            self._gl.make_current()
            self._context.free()
            self._gl.free()
        self._gl = self._context = None
        _open.discard(self)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the driver may have gone before
            self.close()

    def _prepare(self, model: Any) -> None:
        kind = choose()
        screen = model.vis.global_
        before = screen.offwidth, screen.offheight
        # A larger one would have to be cleared before each picture.
        screen.offwidth, screen.offheight = self.width, self.height
        try:
            self._load(kind, model)
        except Exception as error:  # as above
            # The context, if there is one, is of no use and must not be freed as if it were.
            self._gl = self._context = None
            raise CannotDraw(_failure(kind, error)) from error
        finally:
            screen.offwidth, screen.offheight = before
        # Registered last, it runs before what the driver has registered to be run at exit.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
        _open.add(self)

    def _load(self, kind: str, model: Any) -> None:
        import mujoco

        module = {"egl": "egl", "osmesa": "osmesa", "": "gl_context"}.get(kind, "glfw")
        context = importlib.import_module(f"mujoco.{module}").GLContext
        self._gl = context(self.width, self.height)
        self._gl.make_current()
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._size = mujoco.MjrRect(0, 0, self.width, self.height)
        self._scene = mujoco.MjvScene(model, maxgeom=10_000)
        self._perturbation = mujoco.MjvPerturb()
        self._option = mujoco.MjvOption()
        # As dm_control draws: no rays of range finders.
        self._option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False
        self._fixed = mujoco.MjvCamera()
        self._fixed.type = mujoco.mjtCamera.mjCAMERA_FIXED


def _close_all() -> None:
    for renderer in list(_open):
        with contextlib.suppress(Exception):  # the process ends anyway: close the others
            renderer.close()
