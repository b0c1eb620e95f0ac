"""Pictures of MuJoCo scenes, on machines with or without a GPU or a display.

If ``MUJOCO_GL`` is not set, the first OpenGL that works is used: EGL, which draws on a GPU or, with
Mesa, in software; otherwise OSMesa. Both draw the same pixels in software at the same speed; new
releases of Mesa have only EGL.

MuJoCo and dm_control read ``MUJOCO_GL`` once, when they are imported. ``Renderer`` chooses its
OpenGL at its first picture, whatever was imported before.
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
import threading
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
_OFF_SETTINGS = ("disable", "disabled", "off", "false", "0")
_AUTOMATIC_SETTINGS = ("", "enable", "enabled", "on", "true", "1")
_TIMEOUT = 60.0
"""Seconds a driver may take to draw the test scene."""

# Draws an empty scene and prints the name of the renderer.
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


_ONE_AT_A_TIME = threading.RLock()
"""Held while warnings are changed, which are one for all threads."""


class CannotDraw(ImportError):
    """MuJoCo has no working OpenGL; the message says what to install or to set."""


def choose() -> str:
    """Return the kind of OpenGL to draw with; empty on systems where MuJoCo has only one.

    A kind named by ``MUJOCO_GL`` is returned unchecked. Otherwise the first one that works is
    written to ``MUJOCO_GL``, so that worker processes use it too.
    """
    _load_triton()
    setting = os.environ.get(VARIABLE, "").strip().lower()
    if setting in _OFF_SETTINGS:
        raise CannotDraw(f"{VARIABLE}={setting} turns drawing off: unset it to draw MuJoCo scenes")
    if setting not in _AUTOMATIC_SETTINGS:
        return setting
    if platform.system() != "Linux":
        return ""
    errors = []
    for kind in _KINDS:
        driver, error = _probe(kind)
        if not error:
            os.environ[VARIABLE] = kind
            _warn_if_slow(driver)
            return kind
        errors.append(f"{kind}: {error}")
    raise CannotDraw(
        f"no OpenGL here can draw MuJoCo scenes ({'; '.join(errors)}). Install Mesa, which needs "
        f"no GPU: {INSTALL}"
    )


@functools.cache
def _load_triton() -> None:
    """Load Triton, if installed, before Mesa: the other order crashes the process.

    Both contain LLVM, and libraries loaded after Mesa would use Mesa's. Otherwise torch would load
    Triton later, when it first compiles.
    """
    if "OpenGL" not in sys.modules:  # otherwise it is too late
        with contextlib.suppress(ImportError):
            importlib.import_module("triton")


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import MuJoCo or dm_control inside this; raises CannotDraw if ``MUJOCO_GL`` breaks it."""
    _load_triton()
    try:
        with _ONE_AT_A_TIME, warnings.catch_warnings():
            # Without a setting they load GLFW, which warns about a missing display.
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # a driver may fail in any way
        kind = os.environ.get(VARIABLE)
        if kind is None or isinstance(error, ModuleNotFoundError):
            raise
        raise CannotDraw(_failure(kind, error)) from error


def _failure(kind: str, error: Exception) -> str:
    subject = f"{VARIABLE}={kind}" if kind else "OpenGL"
    return (
        f"{subject} does not work here ({error}). Unset {VARIABLE} to use one that works, or "
        f"install Mesa, which needs no GPU: {INSTALL}"
    )


@functools.cache
def _probe(kind: str) -> tuple[str, str]:
    """Return the name of the driver of this kind of OpenGL and "", or "" and its error.

    It runs in a new process: a driver may crash, and a process can load only one.
    """
    try:
        completed = subprocess.run(
            [sys.executable, "-c", _PROBE, kind],
            env={**os.environ, VARIABLE: kind},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return "", f"does not answer within {_TIMEOUT:g} s"
    if completed.returncode == 0:
        return completed.stdout.strip(), ""
    last_line = completed.stderr.strip().rpartition("\n")[2]
    return "", last_line or f"the driver ended with exit code {completed.returncode}"


def _warn_if_slow(driver: str) -> None:
    """Warn if there is a GPU but scenes are drawn in software, as can happen in a container."""
    software = any(name in driver.lower() for name in ("llvmpipe", "softpipe", "swrast"))
    if software and torch.cuda.is_available():
        warnings.warn(
            f"this machine has a GPU but scenes are drawn in software ({driver}), which is many "
            "times slower. If this is a container, start it with NVIDIA_DRIVER_CAPABILITIES=all",
            stacklevel=3,
        )


_open_renderers: weakref.WeakSet[Renderer] = weakref.WeakSet()


class Renderer:
    """Draws pictures of one size. OpenGL is loaded at the first picture.

    One renderer serves any number of simulations with the same meshes and textures, and so loads
    them, several megabytes, only once.
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
        """Free OpenGL's memory; another picture loads it again."""
        if self._context is not None:
            # Objects are freed in the context that is current.
            self._gl.make_current()
            self._context.free()
            self._gl.free()
        self._gl = self._context = None
        _open_renderers.discard(self)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the driver may be gone already
            self.close()

    def _prepare(self, model: Any) -> None:
        kind = choose()
        screen = model.vis.global_
        size_before = screen.offwidth, screen.offheight
        # A larger buffer would take longer to clear before each picture.
        screen.offwidth, screen.offheight = self.width, self.height
        try:
            self._load(kind, model)
        except Exception as error:  # a driver may fail in any way
            # The context is incomplete, so close() must not free it.
            self._gl = self._context = None
            raise CannotDraw(_failure(kind, error)) from error
        finally:
            screen.offwidth, screen.offheight = size_before
        # Exit functions run in reverse order: registered last, this one runs before the driver's.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
        _open_renderers.add(self)

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
        # As in dm_control, the rays of range finders are not drawn.
        self._option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False
        self._fixed = mujoco.MjvCamera()
        self._fixed.type = mujoco.mjtCamera.mjCAMERA_FIXED


def _close_all() -> None:
    for renderer in list(_open_renderers):
        with contextlib.suppress(Exception):  # the process is ending: close the others
            renderer.close()
