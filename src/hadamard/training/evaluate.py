"""Greedy games: step by step beside training, or as whole episodes of an evaluation."""

from __future__ import annotations

from torch import Tensor

from hadamard.core.types import Agent, Envs, Episode, State


class GreedyPlay:
    """Environments in which the agent plays greedily, one step at a time."""

    def __init__(self, agent: Agent, envs: Envs) -> None:
        self.agent, self.envs = agent, envs
        self.obs = envs.reset()
        self.in_flight = False
        """Whether a step was sent and not yet received."""

    def send(self, action: Tensor | None = None) -> None:
        """Start a step with these actions, by default with the agent's choice."""
        if action is None:
            action = self.agent.act_greedily(self.obs)
        self.envs.send(action)
        self.in_flight = True

    def receive(self) -> tuple[Episode, ...]:
        """Wait for the step in flight, if there is one, and return the episodes that ended."""
        if not self.in_flight:
            return ()
        step = self.envs.receive()
        self.obs, self.in_flight = step.obs, False
        return step.episodes

    def state_dict(self) -> State:
        """Return the games' state."""
        return {"envs": self.envs.state_dict(), "obs": self.obs if self.envs.exact else None}

    def load_state_dict(self, state: State) -> None:
        """Restore the games, or start new ones if the environments cannot be restored exactly."""
        self.envs.load_state_dict(state["envs"])
        saved: Tensor | None = state["obs"]
        self.obs = self.envs.reset() if saved is None else saved.to(self.obs.device)
        self.in_flight = False


def evaluate(agent: Agent, envs: Envs, episodes: int) -> list[Episode]:
    """Play whole greedy episodes.

    Every environment contributes equally many: the first to end anywhere would be the short ones.
    """
    if episodes % envs.num_envs:
        raise ValueError(
            f"{episodes} episodes do not divide evenly among {envs.num_envs} environments"
        )
    per_env = episodes // envs.num_envs
    finished: dict[int, list[Episode]] = {env: [] for env in range(envs.num_envs)}
    play = GreedyPlay(agent, envs)
    while any(len(games) < per_env for games in finished.values()):
        play.send()
        for episode in play.receive():
            finished[episode.env].append(episode)
    return [episode for games in finished.values() for episode in games[:per_env]]
