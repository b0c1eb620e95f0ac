"""One line makes a learning step fast: ``self.learn = jit(self._learn, device, [net, optimiser])``.

On a GPU the step becomes a CUDA graph: captured once, replayed with new inputs. On the CPU it
runs as it is. The function takes tensors and returns tensors, and never waits for the device.
What it reads besides (weights, a replay, a generator) keeps its place in memory between calls.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

_KINDS = 64
Step = Callable[..., Mapping[str, Tensor]]
One = TypeVar("One")
Other = TypeVar("Other")
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]


def jit(
    function: Step,
    device: torch.device,
    changes: Sequence[Any],
    capture: bool = True,
    *,
    lent: bool = False,
) -> Step:
    """Return the fastest form of a learning step on this device.

    ``changes`` are the modules, optimisers, tensors and generators the step changes: capturing a
    graph needs warm-up calls, whose effect is undone. ``capture`` is ``--train.capture``. What a
    call returns is the caller's to keep, unless it is ``lent``: then the next call overwrites it,
    and nothing is copied.
    """
    if capture and device.type == "cuda":
        return Captured(function, device, changes, lent=lent)
    return function


class Captured:
    """A function as CUDA graphs, one for every shape of its inputs, which may be on the CPU."""

    def __init__(
        self, function: Step, device: torch.device, changes: Sequence[Any], *, lent: bool = False
    ) -> None:
        self.function, self.device, self.changes, self.lent = function, device, changes, lent
        self.graphs: dict[tuple[torch.Size, ...], _Graph] = {}
        # Libraries keep scratch memory for each stream that they are captured on: graphs that share
        # one would write into each other's where several learners run at once.
        self.stream: torch.cuda.Stream | None = None

    def __call__(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Run the step on these inputs."""
        shapes = tuple(tensor.shape for tensor in inputs)
        if shapes not in self.graphs:
            places = [tensor.to(self.device, copy=True) for tensor in inputs]
            self.graphs[shapes] = self._capture(places)
        return self.graphs[shapes](inputs)

    def _capture(self, inputs: list[Tensor]) -> _Graph:
        before = {id(t): (t, t.detach().clone()) for t in self._tensors()}
        generators = [part for part in self.changes if isinstance(part, torch.Generator)]
        states = [generator.get_state() for generator in generators]
        if self.stream is None:
            self.stream = torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self.function(*inputs)
        torch.cuda.current_stream().wait_stream(self.stream)
        with torch.no_grad():
            for tensor in self._tensors():
                # An optimiser's moments appear with its first step, and start from zero.
                found = before.get(id(tensor))
                tensor.zero_() if found is None else tensor.copy_(found[1])
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, stream=self.stream):
            outputs = dict(self.function(*inputs))
        return _Graph(graph, inputs, outputs, self.lent)

    def _tensors(self) -> Iterator[Tensor]:
        for part in self.changes:
            if isinstance(part, torch.optim.Optimizer):
                for state in part.state.values():
                    yield from (value for value in state.values() if isinstance(value, Tensor))
            elif isinstance(part, Tensor):
                yield part
            elif isinstance(part, torch.nn.Module):
                yield from part.parameters()
                yield from part.buffers()


def beside(one: Callable[[], One], other: Callable[[], Other]) -> tuple[One, Other]:
    """Call both. In a captured step they run side by side, where neither fills the device."""
    if not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
        return one(), other()
    here, there = torch.cuda.current_stream(), torch.cuda.Stream()
    there.wait_stream(here)
    with torch.cuda.stream(there):
        first = one()
    second = other()
    here.wait_stream(there)
    return first, second


class _Graph(NamedTuple):
    """A captured step, and where it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    outputs: dict[str, Tensor]
    lent: bool

    def __call__(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        for place, given in zip(self.inputs, inputs, strict=True):
            place.copy_(given, non_blocking=True)
        self.graph.replay()
        if self.lent:
            return self.outputs
        return {name: value.clone() for name, value in self.outputs.items()}


def compiler(asked: str, device: torch.device) -> Compiler:
    """Return what makes a function of tensors faster: torch.compile, or nothing at all.

    ``asked`` is ``--train.compile``: "auto" compiles on a GPU, if it works there at all.
    """
    if asked == "off" or (asked == "auto" and device.type != "cuda"):
        return as_it_is
    trouble = _try_compiling(device)
    if trouble is None:
        if device.type == "cpu":
            import torch._functorch.config as partitioner

            # Or the signs of a ReLU whose output is flattened are kept for the backward pass as
            # booleans, which a CPU would write and read one by one: twice the time of an update.
            partitioner.recompute_views = True
        return _compiled
    if asked == "on":
        raise ValueError(f"{trouble}, or train with --train.compile off")
    warnings.warn(f"training is slower than it could be. {trouble}", stacklevel=2)
    return as_it_is


def as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile nothing."""
    return function


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch._dynamo.config as settings  # takes its time: not where nothing is compiled

    # A process may train more kinds of networks than the few that a function is compiled for.
    limit = "recompile_limit" if hasattr(settings, "recompile_limit") else "cache_size_limit"
    setattr(settings, limit, max(getattr(settings, limit), _KINDS))
    # Indices are actions, which are checked where they are taken, or computed to be in range. A
    # kernel that can say where one is not takes 17 microseconds for a loss on a GPU, most of it
    # for that.
    options: dict[str, Any] = {"assert_indirect_indexing": False}
    made: Callable[..., Any] = torch.compile(
        function, fullgraph=True, dynamic=False, options=options
    )
    return made


@functools.cache
def _try_compiling(device: torch.device) -> str | None:
    """Say before any training what cannot work; what this builds, the first real one needs too."""
    try:
        _compiled(torch.tanh)(torch.zeros(8, device=device))
    except Exception as error:  # a compiler may fail in any way
        needed = "Triton and a C compiler" if device.type == "cuda" else "a C++ compiler (g++)"
        return (
            f"torch.compile does not work here ({str(error).splitlines()[0]}): it needs {needed} "
            "and Python's headers. Install them (a compiler elsewhere is named by CC or CXX)"
        )
    return None
