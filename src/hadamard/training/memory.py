"""The memory that a run needs, estimated from its settings before anything is allocated.

The estimate is low rather than high: it counts what certainly is kept (environments, replay or
rollout, weights with their gradients and moments, batches), so a run that it refuses cannot work.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hadamard.core import record
from hadamard.core.config import RunSpec, flattened, to_dict
from hadamard.core.run import Run
from hadamard.core.types import EnvSpec
from hadamard.text import data_size, joined

ENVIRONMENT_BYTES = {
    "atari": 1_000_000,
    "dmc": 27_000_000,
    "dmc-state": 15_000_000,
    "gym": 10_000,
    "humanoid": 15_000_000,
    "minatar": 7_000,
}
"""Memory of one environment by suite, measured on Linux; of gym's a small one, CartPole."""
EMULATED_BYTES = 240_000
"""Memory of one Atari game that is played on a device: screens, recordings, stacked frames."""
SMALL_ENVIRONMENT_BYTES = 1_000
"""Memory of one environment of any other suite, at least."""
WORKER_BYTES = 30_000_000
"""Memory of a worker process that it does not share with others, at least."""
IMAGE_FEATURES = 1_000
"""Features of an image that reach the first dense layer, at least."""
BLOCK_BYTES = 10_000
"""Memory of the Python objects of a block of layers."""
FLOAT_BYTES = 4
COPIES_OF_WEIGHTS = 4
"""The weights, their gradients and Adam's two moments."""


class Part(NamedTuple):
    """Something that is kept in memory, and the settings that decide its size."""

    name: str
    size: int
    settings: tuple[str, ...]
    place: str
    """memory, GPU memory or disk; auto: the GPU's, if this is at most half of what is left."""


def check(spec: RunSpec[Any], device: torch.device, env: EnvSpec | None = None) -> None:
    """Refuse a run that needs more memory than the machine has.

    Before the environments are made, so without ``env``, an observation counts as nothing.
    """
    values = flattened(to_dict(spec))
    parts = _placed(_parts(spec, values, device, env), spec)
    for place in dict.fromkeys(part.place for part in parts):
        needed, (total, free) = sum(p.size for p in parts if p.place == place), _sizes(place, spec)
        if needed <= free:
            continue
        largest = [p for p in parts if p.place == place and 10 * p.size >= needed]
        sizes: dict[str, int] = {}
        for part in largest:
            sizes[part.name] = sizes.get(part.name, 0) + part.size
        names = joined([f"{name} {data_size(size)}" for name, size in sizes.items()], "and")
        settings = {name for part in largest for name in part.settings}
        message = (
            f"the run needs at least {data_size(needed)} of {place} ({names}), and there are "
            f"{data_size(total if needed > total else free)}"
        )
        largest_first = sorted(settings, key=lambda name: -values[name])
        advice = f"lower {options(values, largest_first)}"
        if needed > total:
            raise ValueError(f"{message}: {advice}")
        warnings.warn(f"{message} free now: if it fails, {advice}", stacklevel=2)


def check_together(specs: Sequence[RunSpec[Any]], device: torch.device, env: EnvSpec) -> None:
    """Refuse runs of which each fits the machine alone, and all at once do not."""
    for place, (needed, names) in _needed(specs, device, env).items():
        total, free = _sizes(place, specs[0])
        if needed <= free or len(specs) == 1:
            continue
        limit = total if needed > total else free
        count = _fraction(len(specs), limit, needed)
        values = flattened(to_dict(specs[0]))
        largest_first = sorted(names, key=lambda name: -values[name])
        message = (
            f"{len(specs)} runs at once need at least {data_size(needed)} of {place}, and there "
            f"are {data_size(limit)}"
        )
        advice = (
            f"train {count} at once (--seeds {count}), or lower {options(values, largest_first)}"
        )
        if needed > total:
            raise ValueError(f"{message}: {count} would fit. Either {advice}")
        warnings.warn(f"{message} free now: if it fails, {advice}", stacklevel=2)


def fitting(specs: Sequence[RunSpec[Any]], device: torch.device, env: EnvSpec) -> int:
    """Return how many of these runs, which have one shape, fit the machine at once; at least 1."""
    counts = [len(specs)]
    for place, (needed, _) in _needed(specs, device, env).items():
        total, _ = _sizes(place, specs[0])
        if needed > total:
            counts.append(_fraction(len(specs), total, needed))
    return max(1, min(counts))


def _fraction(count: int, available: int, needed: int) -> int:
    """Return how many of so many equal runs fit, which together need more than is available."""
    return max(0, available) * count // needed


def _needed(
    specs: Sequence[RunSpec[Any]], device: torch.device, env: EnvSpec
) -> dict[str, tuple[int, set[str]]]:
    """Return the bytes that runs need in each place, with the settings that decide most of them."""
    sizes: dict[str, dict[tuple[str, ...], int]] = {}
    parts = [part for spec in specs for part in _parts(spec, flattened(to_dict(spec)), device, env)]
    for part in _placed(parts, specs[0]):
        in_place = sizes.setdefault(part.place, {})
        in_place[part.settings] = in_place.get(part.settings, 0) + part.size
    needed = {}
    for place, in_place in sizes.items():
        total = sum(in_place.values())
        largest = [settings for settings, size in in_place.items() if 10 * size >= total]
        needed[place] = total, {name for settings in largest for name in settings}
    return needed


def _placed(parts: Iterable[Part], spec: RunSpec[Any]) -> list[Part]:
    """Decide where the parts are kept that may be in either memory, as a replay decides it."""
    parts, on_gpu = list(parts), "GPU memory"
    left = _sizes(on_gpu, spec)[0] if any(part.place == "auto" for part in parts) else 0
    left -= sum(part.size for part in parts if part.place == on_gpu)
    placed = []
    for part in parts:
        if part.place == "auto":
            part = part._replace(place=on_gpu if 2 * part.size < left else "memory")
            left -= part.size if part.place == on_gpu else 0
        placed.append(part)
    return placed


def _parts(
    spec: RunSpec[Any], values: dict[str, Any], device: torch.device, env: EnvSpec | None
) -> Iterable[Part]:
    """Yield what a run keeps in memory."""
    algo, train = spec.algo, spec.train
    learner = "GPU memory" if device.type == "cuda" else "memory"
    obs_shape = env.obs_shape if env is not None else ()
    numbers = math.prod(obs_shape) if env is not None else 0
    obs_bytes = numbers * (env.obs_dtype.itemsize if env is not None else 0)
    action_bytes = math.prod(env.action_shape) * env.action_dtype.itemsize if env else 0

    counts = {"algo.num_envs": algo.num_envs, "train.greedy_envs": train.greedy_envs}
    counts["train.eval_episodes"] = train.eval_episodes if train.eval_every else 0
    suite = spec.env.partition("/")[0].lower().replace("_", "-")
    emulated = train.emulators == "gpu"
    each = ENVIRONMENT_BYTES.get(suite, SMALL_ENVIRONMENT_BYTES) + 2 * obs_bytes
    each = EMULATED_BYTES if emulated else each
    for name, count in counts.items():
        yield Part("environments", count * each, (name,), learner if emulated else "memory")
    workers = {"train.env_workers": train.env_workers}
    workers["train.eval_workers"] = train.eval_workers if train.eval_every else 0
    for name, count in workers.items():
        yield Part("worker processes", (count or 0) * WORKER_BYTES, (name,), "memory")

    capacity = values.get("algo.replay_capacity")
    on_device = env is not None and env.on_device
    if capacity is not None and train.fleet == "on" and on_device:  # see ``BitReplay``
        size = 2 * -(-numbers // 8) + FLOAT_BYTES + 2
        yield Part("replay", capacity * size, ("algo.replay_capacity",), learner)
    elif capacity is not None:
        slots = min(capacity, train.horizon)  # memory is taken as it fills
        frames = slots * (obs_bytes // env.frames if env is not None else 1)
        rest = slots * (action_bytes + FLOAT_BYTES + 2)
        storage = values.get("algo.replay_storage", "device")
        place = {"device": learner, "disk": "disk"}.get(storage, "memory")
        if storage == "auto" and learner != "memory":
            place = "auto"
        yield Part("replay", frames, ("algo.replay_capacity",), place)
        yield Part("replay", rest, ("algo.replay_capacity",), "memory")
    if (rollout_steps := values.get("algo.rollout_steps")) is not None:
        size = algo.num_envs * rollout_steps * (obs_bytes + action_bytes + FLOAT_BYTES)
        yield Part("rollout", size, ("algo.num_envs", "algo.rollout_steps"), learner)

    width = spec.net.width
    if (batch := values.get("algo.batch_size")) is not None:
        size = batch * (2 * numbers + width) * FLOAT_BYTES
        yield Part("batch", size, ("algo.batch_size", "net.width"), learner)
    if train.health_every:
        size = train.health_samples * (obs_bytes + width * FLOAT_BYTES)
        yield Part("diagnosis", size, ("train.health_samples", "net.width"), learner)
    inputs = IMAGE_FEATURES if len(obs_shape) == 3 else max(1, numbers)
    yield _weights(width * inputs, ("net.width",), learner)
    for name in ("hidden_width", "actor_width", "critic_blocks", "actor_blocks"):
        if (value := values.get(f"algo.{name}")) is None:
            continue
        setting = f"algo.{name}"
        if name.endswith("_blocks"):
            inner = "net.width" if name == "critic_blocks" else "algo.actor_width"
            matrix = 2 * values["algo.expansion"] * values[inner] ** 2
            size = _weights(value * matrix, (), "").size + value * BLOCK_BYTES
            yield Part("network", size, (setting, inner, "algo.expansion"), learner)
        else:
            yield _weights(value**2, (setting,), learner)
    if (bins := values.get("algo.bins")) is not None:
        yield _weights(bins * width, ("algo.bins", "net.width"), learner)


def _weights(count: int, settings: tuple[str, ...], place: str) -> Part:
    return Part("network", count * FLOAT_BYTES * COPIES_OF_WEIGHTS, settings, place)


def _sizes(place: str, spec: RunSpec[Any]) -> tuple[int, int]:
    """Return how many bytes there are, and how many are free."""
    if place == "GPU memory":
        free, total = torch.cuda.mem_get_info()  # of the device chosen for the run
        return total, free
    if place == "disk":
        folder = Path(spec.run_dir or ".").absolute()
        while not folder.is_dir():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        return free, free
    return host_memory()


def host_memory() -> tuple[int, int]:
    """Return how much memory this process may use, and how much of it is free."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = total
    for line in _lines(Path("/proc/meminfo")):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            free = 1_024 * int(value.split()[0])
    # A container or a batch system may allow less.
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            root, limit_name, used_name = "", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root, limit_name, used_name = "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        path = Path("/sys/fs/cgroup", root, group.lstrip("/"))
        for folder in (path, *path.parents):
            if (limit := _number(folder / limit_name)) is not None:
                total = min(total, limit)
                free = min(free, limit - (_number(folder / used_name) or 0))
    return total, free


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    text = "".join(_lines(path))
    return int(text) if text.isdigit() else None


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that an allocation failed, on the CPU or on a GPU."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    messages = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in messages)
    )


class OutOfMemory(RuntimeError):
    """A run needs more memory than there is; the message says what to lower."""


@contextmanager
def explained(specs: Sequence[RunSpec[Any]]) -> Iterator[None]:
    """Turn a failed allocation into `OutOfMemory`, with what to lower in these runs."""
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        if not is_out_of_memory(error) or not specs:
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        saved = [
            f"{checkpoints[0]} is the newest checkpoint: on a machine with more memory, continue "
            f"with `hadamard train --resume {spec.run_dir}`"
            for spec in specs
            if spec.run_dir and (checkpoints := record.checkpoints(Run(spec.run_dir).checkpoints))
        ]
        if len(saved) > _MOST_NAMED:
            saved[_MOST_NAMED:] = [f"likewise {len(saved) - _MOST_NAMED} more runs"]
        raise OutOfMemory(
            f"out of memory: {reason}. Lower {options(flattened(to_dict(specs[0])))}"
            f"{', or train fewer runs side by side' if len(specs) > 1 else ''}. "
            f"{'; '.join(saved) or 'No checkpoint was written'}"
        ) from error


_MOST_NAMED = 3
"""Runs whose checkpoints an error names, at most."""
SIZES = (
    "algo.replay_capacity", "algo.num_envs", "algo.rollout_steps", "algo.batch_size", "net.width",
    "algo.hidden_width", "algo.actor_width", "train.greedy_envs", "train.eval_episodes",
    "train.env_workers", "train.health_samples",
)  # fmt: skip
"""Settings that decide how much memory a run needs."""


def options(values: dict[str, Any], names: Iterable[str] = SIZES) -> str:
    """Return settings as the command line spells them, those that are 0 or unknown left out."""
    present = [name for name in dict.fromkeys(names) if values.get(name)]
    return joined([f"--{name.replace('_', '-')} {values[name]}" for name in present], "or")
