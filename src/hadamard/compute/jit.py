"""Faster learning steps: CUDA graphs (``jit``) and torch.compile (``compiler``).

``self.learn = jit(self._learn, device, [net, optimizer])`` is all that an algorithm needs. On a GPU
the step is captured as a CUDA graph and replayed with new inputs; on the CPU it runs unchanged. The
step is a function of tensors that returns tensors and never waits for the device. Everything else
it reads (weights, a replay, a generator) must stay at the same place in memory.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

_RECOMPILE_LIMIT = 64
_ONE_AT_A_TIME = threading.RLock()
"""Held while a graph is captured, which runs in other threads must not do at the same time."""
Step = Callable[..., Mapping[str, Tensor]]
First = TypeVar("First")
Second = TypeVar("Second")
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]


def jit(
    function: Step,
    device: torch.device,
    mutated: Sequence[Any],
    capture: bool = True,
    *,
    reuse_output: bool = False,
) -> Step:
    """Return the fastest form of a learning step on this device.

    ``mutated`` are the modules, optimizers, tensors and generators that the step changes: capturing
    needs warm-up calls, whose effects on these are undone. ``capture`` is ``--train.capture``.
    Inputs may be on the CPU. With ``reuse_output`` a call returns the same tensors every time and
    overwrites what the last call returned, which saves copying them.
    """
    if device.type == "cpu":
        return function
    if capture and device.type == "cuda":
        return Captured(function, device, mutated, reuse_output=reuse_output)

    def with_inputs_on_device(*inputs: Tensor) -> Mapping[str, Tensor]:
        return function(*(tensor.to(device) for tensor in inputs))

    return with_inputs_on_device


class Captured:
    """A function as CUDA graphs, one for each combination of input shapes."""

    def __init__(
        self,
        function: Step,
        device: torch.device,
        mutated: Sequence[Any],
        *,
        reuse_output: bool = False,
    ) -> None:
        self.function, self.device, self.mutated = function, device, mutated
        self.reuse_output = reuse_output
        self.graphs: dict[tuple[torch.Size, ...], _Graph] = {}
        # Libraries keep scratch memory per capture stream. Several learners run at once, so their
        # graphs must not share a stream: they would overwrite each other's scratch memory.
        self.stream: torch.cuda.Stream | None = None

    def __call__(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Run the step on these inputs."""
        shapes = tuple(tensor.shape for tensor in inputs)
        if shapes not in self.graphs:
            input_buffers = [tensor.to(self.device, copy=True) for tensor in inputs]
            with _ONE_AT_A_TIME:
                self.graphs[shapes] = self._capture(input_buffers)
        return self.graphs[shapes](inputs)

    def _capture(self, input_buffers: list[Tensor]) -> _Graph:
        saved = {id(t): (t, t.detach().clone()) for t in self._mutated_tensors()}
        generators = [part for part in self.mutated if isinstance(part, torch.Generator)]
        states = [generator.get_state() for generator in generators]
        if self.stream is None:
            self.stream = torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self.function(*input_buffers)
        torch.cuda.current_stream().wait_stream(self.stream)
        with torch.no_grad():
            for tensor in self._mutated_tensors():
                if id(tensor) in saved:
                    tensor.copy_(saved[id(tensor)][1])
                else:
                    # The warm-up created it: an optimizer's moments, which start from zero.
                    tensor.zero_()
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        # thread_local: runs in other threads may allocate memory meanwhile.
        with (
            _without_garbage_collection(),
            torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"),
        ):
            outputs = dict(self.function(*input_buffers))
        return _Graph(graph, input_buffers, outputs, self.reuse_output)

    def _mutated_tensors(self) -> Iterator[Tensor]:
        for part in self.mutated:
            if isinstance(part, torch.optim.Optimizer):
                for state in part.state.values():
                    yield from (value for value in state.values() if isinstance(value, Tensor))
            elif isinstance(part, Tensor):
                yield part
            elif isinstance(part, torch.nn.Module):
                yield from part.parameters()
                yield from part.buffers()


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keep Python from freeing graphs of earlier runs, which would end a capture with an error."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def forget_graphs(owner: Any) -> None:
    """Let an object's captured steps be captured anew, since what they read has moved."""
    for value in vars(owner).values():
        if isinstance(value, Captured):
            value.graphs.clear()


def also_changes(owner: Any, tensors: Sequence[Tensor]) -> None:
    """Say that an object's captured steps change these tensors, too."""
    for value in vars(owner).values():
        if isinstance(value, Captured):
            value.mutated = [*value.mutated, *tensors]


class _Graph(NamedTuple):
    """A captured step and the tensors it reads and writes."""

    graph: torch.cuda.CUDAGraph
    input_buffers: list[Tensor]
    outputs: dict[str, Tensor]
    reuse_output: bool

    def __call__(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        for buffer, tensor in zip(self.input_buffers, inputs, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        self.graph.replay()
        if self.reuse_output:
            return self.outputs
        return {name: value.clone() for name, value in self.outputs.items()}


def in_parallel(first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
    """Call both functions; in a captured step they run at the same time on the GPU."""
    if not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
        return first(), second()
    current, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        first_result = first()
    second_result = second()
    current.wait_stream(side)
    return first_result, second_result


def compiler(setting: str, device: torch.device) -> Compiler:
    """Return torch.compile with our options, or ``uncompiled``.

    ``setting`` is ``--train.compile``: "auto" compiles on a GPU, if torch.compile works there.
    """
    if setting == "off" or (setting == "auto" and device.type != "cuda"):
        return uncompiled
    problem = _compile_problem(device)
    if problem is None:
        if device.type == "cpu":
            import torch._functorch.config as partitioner

            # Without this, the backward pass of a ReLU before a flatten reads stored booleans,
            # which on a CPU doubles the time of an update.
            partitioner.recompute_views = True
        return _compiled
    if setting == "on":
        raise ValueError(f"{problem}, or train with --train.compile off")
    warnings.warn(f"training is slower than it could be. {problem}", stacklevel=2)
    return uncompiled


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function unchanged."""
    return function


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch._dynamo.config as settings  # slow to import, so only where it is needed

    # PyTorch's own limit is too low for a process that trains many kinds of networks.
    limit = "recompile_limit" if hasattr(settings, "recompile_limit") else "cache_size_limit"
    setattr(settings, limit, max(getattr(settings, limit), _RECOMPILE_LIMIT))
    # Our indices are always in range. Checking them again would be most of the time of a loss: 17
    # microseconds on a GPU.
    options: dict[str, Any] = {"assert_indirect_indexing": False}
    compiled: Callable[..., Any] = torch.compile(
        function, fullgraph=True, dynamic=False, options=options
    )
    return compiled


@functools.cache
def _compile_problem(device: torch.device) -> str | None:
    """Compile a small function and return why it failed; None if it works.

    This finds problems before training begins. The time is not wasted: the first real compilation
    reuses what this one builds.
    """
    try:
        _compiled(torch.tanh)(torch.zeros(8, device=device))
    except Exception as error:  # compilers raise errors of any kind
        requirement = "Triton and a C compiler" if device.type == "cuda" else "a C++ compiler (g++)"
        return (
            f"torch.compile does not work here ({str(error).splitlines()[0]}): it needs "
            f"{requirement} and Python's headers. Install them (CC or CXX may name a compiler)"
        )
    return None
