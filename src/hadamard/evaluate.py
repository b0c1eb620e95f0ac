"""Greedy episodes."""

from __future__ import annotations

from torch import Tensor

from hadamard.core.types import Agent, Envs, Episode, State


class GreedyPlay:
    """Environments in which the greedy policy plays, step by step beside training or on its own."""

    def __init__(self, agent: Agent, envs: Envs) -> None:
        self.agent, self.envs = agent, envs
        self.obs = envs.reset()
        self.playing = False

    def send(self, action: Tensor | None = None) -> None:
        """Start one step everywhere; where no actions are given, the agent chooses them."""
        if action is None:
            action, _ = self.agent.act(self.obs, explore=False)
        self.envs.send(action)
        self.playing = True

    def receive(self) -> tuple[Episode, ...]:
        """Wait for the step, if one is under way, and return the episodes that ended."""
        if not self.playing:
            return ()
        step = self.envs.receive()
        self.obs, self.playing = step.obs, False
        return step.episodes

    def state_dict(self) -> State:
        """Return the games' state."""
        return {"envs": self.envs.state_dict(), "obs": self.obs if self.envs.exact else None}

    def load_state_dict(self, state: State) -> None:
        """Go on where it was saved, or with fresh games where they cannot be restored."""
        self.envs.load_state_dict(state["envs"])
        saved: Tensor | None = state["obs"]
        self.obs = self.envs.reset() if saved is None else saved.to(self.obs.device)
        self.playing = False


def evaluate(agent: Agent, envs: Envs, episodes: int) -> list[Episode]:
    """Play whole greedy episodes.

    Every environment contributes the same number of games: taking whichever end first would
    favour short ones.
    """
    if episodes % envs.num_envs:
        raise ValueError(
            f"{episodes} episodes do not divide evenly among {envs.num_envs} environments"
        )
    wanted = episodes // envs.num_envs
    played: dict[int, list[Episode]] = {env: [] for env in range(envs.num_envs)}
    play = GreedyPlay(agent, envs)
    while any(len(of_env) < wanted for of_env in played.values()):
        play.send()
        for episode in play.receive():
            played[episode.env].append(episode)
    return [episode for of_env in played.values() for episode in of_env[:wanted]]
