"""The kernels of ``device.cu``, compiled for this machine's GPU when they are first needed.

NVRTC compiles them, the CUDA compiler that comes with PyTorch; no toolchain is needed. It is called
through NVIDIA's own ``cuda.bindings``, which PyTorch 2.11 and later bring along, too. What it made
is kept in the cache folder of ``source.py``.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hadamard.envs.atari2600.source import ALONE, cache_folder, sources

OPTIONS = ("--std=c++17", "--fmad=false", "--device-as-default-execution-space")
INSTALL = "pip install 'hadamard-rl[gpu-atari]'"


class NoGpuEmulators(RuntimeError):
    """The emulators cannot play on this GPU; the message says why."""


def joined_source(rom: str | None = None) -> str:
    """Return the source of the kernels as one text without includes of its own."""
    files = sources(rom)
    included: set[str] = set()

    def text(name: str) -> str:
        if name in included:
            return ""
        included.add(name)
        content = files[name].replace("#pragma once\n", "")
        return re.sub(r'#include "(.+)"\n', lambda match: text(match[1]), content)

    return text("device.cu")


def _bindings() -> tuple[Any, Any]:
    """Return NVIDIA's bindings of NVRTC and of the driver."""
    try:
        from cuda.bindings import driver, nvrtc
    except ImportError as error:
        raise NoGpuEmulators(
            f"the emulators are compiled through cuda.bindings, which cannot be imported ({error}):"
            f" {INSTALL}"
        ) from None
    return nvrtc, driver


def _checked(result: Sequence[Any], action: str, describe: Any = str) -> Any:
    """Return what a call of the bindings returned beside its error code, which must be 0."""
    error, *values = result
    if int(error) != 0:
        raise NoGpuEmulators(f"the emulators cannot {action}: {describe(error)}")
    return values[0] if len(values) == 1 else values


@dataclass(frozen=True)
class Build:
    """What is compiled, and where the result is kept."""

    source: str
    options: tuple[str, ...]
    path: Path

    @property
    def done(self) -> bool:
        """Whether the result is there."""
        return self.path.is_file()

    def code(self) -> bytes:
        """Return the kernels; compile them unless that was done before."""
        if self.done:
            return self.path.read_bytes()
        code = _compile(_bindings()[0], self.source, self.options)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.path.parent, delete=False) as file:
            file.write(code)
        os.replace(file.name, self.path)  # other processes may compile at the same time
        return code


def build(
    architecture: int, rom: str | None = None, definitions: Sequence[str] = ALONE.definitions
) -> Build:
    """Describe the kernels in the form of a GPU's architecture, such as 90.

    With a ROM's name they play that game only, by its translated program. This needs no GPU.
    """
    source = joined_source(rom)
    options = *OPTIONS, *definitions, f"--gpu-architecture=sm_{architecture}"
    nvrtc, _ = _bindings()
    try:
        version = _checked(nvrtc.nvrtcVersion(), "ask NVRTC for its version")
        known = _checked(nvrtc.nvrtcGetSupportedArchs(), "ask NVRTC for its GPUs")
    except RuntimeError as error:  # the bindings do not find the library
        if isinstance(error, NoGpuEmulators):
            raise
        raise NoGpuEmulators(
            f"the emulators are compiled by NVRTC, which is not found ({error}): {INSTALL}"
        ) from None
    if architecture not in known:
        age = "too old" if architecture < min(known) else "unknown"
        raise NoGpuEmulators(
            f"a GPU of compute capability {architecture / 10} is {age} for NVRTC "
            f"{'.'.join(map(str, version))}, which compiles for {min(known) / 10} to "
            f"{max(known) / 10}"
        )
    key = repr((source, options, version)).encode()
    path = cache_folder() / f"{hashlib.sha256(key).hexdigest()[:24]}.cubin"
    return Build(source, options, path)


def compile_all(builds: Sequence[Build]) -> None:
    """Compile those that are not there yet, side by side: a game takes up to a minute or two."""
    missing = list({build.path: build for build in builds if not build.done}.values())
    if not missing:
        return
    games = "one game" if len(missing) == 1 else f"{len(missing)} games"
    print(
        f"Compiling {games} for this GPU; they are kept in {cache_folder()}",
        file=sys.stderr,
        flush=True,
    )
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        list(pool.map(Build.code, missing))


def _compile(nvrtc: Any, source: str, options: Sequence[str]) -> bytes:
    program = _checked(
        nvrtc.nvrtcCreateProgram(source.encode(), b"atari2600.cu", 0, [], []), "be compiled"
    )
    encoded = [option.encode() for option in options]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    if int(error) != 0:
        log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program), "be compiled")
        _checked(nvrtc.nvrtcGetProgramLog(program, log), "be compiled")
        raise NoGpuEmulators(f"NVRTC refused the emulators:\n{log.decode(errors='replace')}")
    code: bytes = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program), "be compiled")
    _checked(nvrtc.nvrtcGetCUBIN(program, code), "be compiled")
    nvrtc.nvrtcDestroyProgram(program)
    return code


class Kernels:
    """The kernels on one GPU."""

    def __init__(self, device: torch.device, rom: str | None, definitions: Sequence[str]) -> None:
        major, minor = torch.cuda.get_device_capability(device)
        code = build(10 * major + minor, rom, definitions).code()
        _, self._driver = _bindings()
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()  # PyTorch's context is the current one
            self._module = self._checked(self._driver.cuModuleLoadData(code), "be loaded")
        self._functions: dict[str, Any] = {}

    def launch(
        self, name: str, blocks: int, threads: int, arguments: Sequence[Any], shared_bytes: int = 0
    ) -> None:
        """Queue a kernel on PyTorch's current stream; arguments are values of ``ctypes``."""
        if name not in self._functions:
            self._functions[name] = self._function(name)
        pointers = [ctypes.addressof(argument) for argument in arguments]
        packed = (ctypes.c_void_p * len(pointers))(*pointers)
        stream = torch.cuda.current_stream().cuda_stream
        self._checked(
            self._driver.cuLaunchKernel(
                self._functions[name], blocks, 1, 1, threads, 1, 1, shared_bytes, stream,
                ctypes.addressof(packed), 0,
            ),
            f"start {name}",
        )  # fmt: skip

    def _function(self, name: str) -> Any:
        found = self._driver.cuModuleGetFunction(self._module, name.encode())
        return self._checked(found, f"find {name}")

    def _checked(self, result: Sequence[Any], action: str) -> Any:
        return _checked(result, action, self._describe)

    def _describe(self, error: Any) -> str:
        _, text = self._driver.cuGetErrorString(error)
        return text.decode() if text else str(error)


def check_gpu(device: torch.device) -> None:
    """Refuse a device on which the kernels cannot run."""
    if device.type != "cuda":
        raise NoGpuEmulators(f"the device is {device}, which is no GPU")
    if not torch.cuda.is_available():
        raise NoGpuEmulators("PyTorch finds no GPU here")
    kernels(device)


def prepare(
    device: torch.device, names: Sequence[str], definitions: Sequence[str] = ALONE.definitions
) -> None:
    """Compile what plays these games."""
    major, minor = torch.cuda.get_device_capability(device)
    compile_all([build(10 * major + minor, name, definitions) for name in names])


@functools.cache
def kernels(
    device: torch.device, rom: str | None = None, definitions: tuple[str, ...] = ALONE.definitions
) -> Kernels:
    """Return the kernels on a GPU, compiled and loaded once in a process."""
    return Kernels(device, rom, definitions)
