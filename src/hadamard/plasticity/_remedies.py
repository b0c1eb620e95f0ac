"""A network's remedies: when each of them acts, and what of them a checkpoint holds.

A remedy acts at up to three moments of an update::

    gradient -> change_gradients -> optimizer's step -> change_weights -> remedy(updates, obs)

The first two are part of the captured update: tensor programs that never wait for the device. They
get tensors by the parameters' names, each with a leading dimension for networks: one alone, several
in a fleet. The last is a call from Python, on one network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from hadamard.compute.flat import gradient_of
from hadamard.core.types import AfterUpdate, State

Tensors = Mapping[str, Tensor]
"""By name, each (networks, ...)."""


@runtime_checkable
class ChangesGradients(Protocol):
    """A remedy that acts between the gradient and the optimizer's step."""

    def change_gradients(self, weights: Tensors, gradients: Tensors, state: Tensors) -> None:
        """Change the gradients in place; ``state`` is the remedy's, by the names in its own.

        A weight that the loss did not use may have no gradient.
        """


@runtime_checkable
class ChangesWeights(Protocol):
    """A remedy that acts after every step of the optimizer."""

    def change_weights(self, weights: Tensors, state: Tensors, rates: Tensor) -> None:
        """Change the weights in place; ``rates`` (networks,) are the learning rates."""


@runtime_checkable
class ActsAfterUpdates(Protocol):
    """A remedy that is called after every update."""

    def __call__(self, updates: int, obs: Tensor) -> None:
        """Act on the network; ``obs`` are the observations of the update."""


@runtime_checkable
class HasState(Protocol):
    """A remedy with tensors that checkpoints hold and that the captured update may change."""

    state: dict[str, Tensor]


class Remedies:
    """The remedies of one network, which act one after the other."""

    def __init__(self, network: nn.Module, remedies: Mapping[str, Any]) -> None:
        self.network, self.by_name = network, dict(remedies)
        self.weights = {name: p for name, p in network.named_parameters() if p.requires_grad}
        self.on_gradients = self._those(ChangesGradients)
        self.on_weights = self._those(ChangesWeights)
        self.after_updates = [r for r in self.by_name.values() if isinstance(r, ActsAfterUpdates)]

    def _those(self, kind: type) -> dict[str, Any]:
        return {name: r for name, r in self.by_name.items() if isinstance(r, kind)}

    def act_with(self, optimizer: torch.optim.Optimizer) -> None:
        """Act before and after every step of an optimizer from now on."""

        def before(*_: Any) -> None:
            self._change_gradients(optimizer)

        def after(*_: Any) -> None:
            self._change_weights(optimizer)

        if self.on_gradients:
            optimizer.register_step_pre_hook(before)
        if self.on_weights:
            optimizer.register_step_post_hook(after)

    def __call__(self, updates: int, obs: Tensor) -> None:
        """Let the remedies act after an update."""
        for remedy in self.after_updates:
            remedy(updates, obs)

    @torch.no_grad()
    def _change_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        gradients = {}
        for name, parameter in self.weights.items():
            gradient = gradient_of(optimizer, parameter)
            if gradient is not None:
                gradients[name] = gradient.unsqueeze(0)
        weights = {name: p.detach().unsqueeze(0) for name, p in self.weights.items()}
        for name, remedy in self.on_gradients.items():
            remedy.change_gradients(weights, gradients, self.stacked_state(name))

    @torch.no_grad()
    def _change_weights(self, optimizer: torch.optim.Optimizer) -> None:
        weights = {name: p.detach().unsqueeze(0) for name, p in self.weights.items()}
        device = next(iter(weights.values())).device
        rates = torch.as_tensor(optimizer.param_groups[0]["lr"], device=device).view(1)
        for name, remedy in self.on_weights.items():
            remedy.change_weights(weights, self.stacked_state(name), rates)

    def stacked_state(self, remedy: str) -> dict[str, Tensor]:
        """Return a remedy's state with the leading dimension of one network."""
        return {name: tensor.unsqueeze(0) for name, tensor in self.state_of(remedy).items()}

    def state_of(self, remedy: str) -> dict[str, Tensor]:
        """Return a remedy's state."""
        owner = self.by_name[remedy]
        return owner.state if isinstance(owner, HasState) else {}

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors of their state."""
        return [tensor for name in self.by_name for tensor in self.state_of(name).values()]

    def state_dict(self) -> State:
        """Return the remedies' state, by remedy."""
        return {name: dict(self.state_of(name)) for name in self.by_name if self.state_of(name)}

    @torch.no_grad()
    def load_state_dict(self, state: State) -> None:
        """Restore saved state, in place: captured updates read it where it is."""
        for name in self.by_name:
            own = self.state_of(name)
            saved = state.get(name, {})
            if saved.keys() != own.keys():
                raise ValueError(f"the saved state of the remedy {name} has other tensors")
            for key, tensor in own.items():
                if saved[key].shape != tensor.shape:
                    raise ValueError(
                        f"{key} of the remedy {name} has the shape {tuple(saved[key].shape)} "
                        f"where it should have {tuple(tensor.shape)}"
                    )
                tensor.copy_(saved[key])


class StackedRemedies:
    """The remedies of several networks whose weights are the rows of one matrix.

    Neighbors with the same remedy and settings act together, except with ``one_by_one``.
    """

    def __init__(
        self, remedies: Sequence[AfterUpdate | None], weights: Tensors, *, one_by_one: bool
    ) -> None:
        self.members, self.weights = list(remedies), weights
        self._shared: dict[tuple[str, int], dict[str, Tensor]] = {}
        self._on_gradients = self._groups("on_gradients", one_by_one=one_by_one)
        self._on_weights = self._groups("on_weights", one_by_one=one_by_one)

    @property
    def in_update(self) -> bool:
        """Whether any of them is a part of the captured update."""
        return bool(self._on_gradients or self._on_weights)

    @property
    def after_updates(self) -> bool:
        """Whether any of them is called after updates."""
        return any(
            member is not None and getattr(member, "after_updates", True) for member in self.members
        )

    @property
    def tensors(self) -> list[Tensor]:
        """All that the captured update changes."""
        groups = [*self._on_gradients, *self._on_weights]
        return [tensor for _, _, state in groups for tensor in state.values()]

    @torch.no_grad()
    def change_gradients(self, gradients: Tensors) -> None:
        """Let them act between the gradients and the optimizers' step."""
        for remedy, rows, state in self._on_gradients:
            own = {name: weight[rows] for name, weight in self.weights.items()}
            remedy.change_gradients(own, {name: g[rows] for name, g in gradients.items()}, state)

    @torch.no_grad()
    def change_weights(self, rates: Tensor) -> None:
        """Let them act after the optimizers' step."""
        for remedy, rows, state in self._on_weights:
            own = {name: weight[rows] for name, weight in self.weights.items()}
            remedy.change_weights(own, state, rates[rows])

    def __call__(self, updates: int, obs: Tensor) -> None:
        """Let them act after an update, on each network alone; ``obs`` is (networks, ...)."""
        for index, member in enumerate(self.members):
            if member is not None:
                member(updates, obs[index])

    def _groups(self, moment: str, *, one_by_one: bool) -> list[tuple[Any, slice, Tensors]]:
        """Return who acts at a moment, on which rows and with which state, in order."""
        groups: list[tuple[Any, slice, Tensors]] = []
        index = 0
        while index < len(self.members):
            end = index + 1
            while end < len(self.members) and not one_by_one and self._alike(index, end):
                end += 1
            first = self.members[index]
            for name, remedy in getattr(first, moment, {}).items():
                state = self._shared_state(name, index, end)
                groups.append((remedy, slice(index, end), state))
            index = end
        return groups

    def _alike(self, index: int, other: int) -> bool:
        """Tell whether two networks have the same remedies with the same settings."""
        settings = []
        for member in (self.members[index], self.members[other]):
            own = getattr(member, "by_name", {})
            settings.append([(name, getattr(r, "config", r)) for name, r in own.items()])
        return settings[0] == settings[1]

    def _shared_state(self, name: str, index: int, end: int) -> dict[str, Tensor]:
        """Return the state of neighbors as one; their own tensors are its rows from now on."""
        if (name, index) not in self._shared:
            members = [m for m in self.members[index:end] if isinstance(m, Remedies)]
            states = [member.state_of(name) for member in members]
            self._shared[name, index] = {}
            for key in states[0]:
                stacked = torch.stack([state[key] for state in states])
                self._shared[name, index][key] = stacked
                for state, row in zip(states, stacked, strict=True):
                    state[key] = row
        return self._shared[name, index]
