"""Load damaged saved games of the emulators: each is refused, or plays without leaving its memory.

    python -m tests.envs.damaged_games --trials 3000
    LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so)" \\
        ASAN_OPTIONS=detect_leaks=0 python -m tests.envs.damaged_games --trials 100000 --sanitize

With ``--sanitize`` the source is compiled so that the first wrong access or undefined result ends
the process, with ``--translated`` each game plays by its translated program, as on a GPU. For each
game it prints how many were refused and how many played.
"""

from __future__ import annotations

import argparse
import copy
import functools
import hashlib
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from hadamard.envs.atari2600 import batch, source
from hadamard.envs.atari_on_device import EmulatedGames

GAMES = {
    "breakout": "2 KiB, with a paddle",
    "seaquest": "4 KiB",
    "asterix": "two banks",
    "road_runner": "four banks",
    "montezuma_revenge": "four slices",
    "robotank": "a bank that follows from the address",
}
STEPS = 3
SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def saved_game(name: str) -> tuple[EmulatedGames, Any]:
    """Return an environment, and its state after some steps."""
    games = EmulatedGames([name], [3])
    games.reset()
    for step in range(5):
        games.step(torch.tensor([step % games.spec.num_actions]))
    return games, copy.deepcopy(games.state_dict())


def digest(state: Any) -> str:
    """Return a checksum of a saved game."""
    saved = state["emulators"]
    content = b"".join(saved[name].numpy().tobytes() for name in sorted(saved))
    return hashlib.sha256(content).hexdigest()


def damages(console: Tensor, recording: Tensor, trials: int, seed: int) -> Iterator[None]:
    """Damage a state in place again and again: each byte of the console, then any bytes."""
    choose = random.Random(seed)
    for place in range(len(console)):
        console[place] = 0xFF
        yield
    for _ in range(trials):
        for _ in range(choose.choice((1, 1, 2, 8))):
            memory = choose.choice((console, console, recording))
            start = choose.randrange(len(memory))
            run = memory[start : start + choose.choice((1, 1, 4, 64, 1024))]
            if choose.random() < 0.5:
                run.fill_(choose.choice((0xFF, 0x80, 0x7F, 0x01)))
            else:
                run.copy_(torch.tensor(list(choose.randbytes(len(run))), dtype=torch.uint8))
        yield


def play_damaged(name: str, trials: int, seed: int) -> str:
    """Load and play damaged states of a game; say what happened."""
    games, whole = saved_game(name)
    state = copy.deepcopy(whole)
    kept = [state["emulators"][part] for part in ("consoles", "recordings")]
    actions = random.Random(seed)
    refused = played = 0
    for _ in damages(kept[0][0], kept[1][0], trials, seed):
        try:
            games.load_state_dict(state)
        except ValueError as error:
            refused += "environment 0 is damaged" in str(error)
        else:
            played += 1
            for _ in range(STEPS):
                games.step(torch.tensor([actions.randrange(games.spec.num_actions)]))
        for memory, part in zip(kept, ("consoles", "recordings"), strict=True):
            memory.copy_(whole["emulators"][part])
    return f"{name} {digest(whole)}: {refused} refused, {played} played"


def main() -> None:
    """Print what happened to each game's."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=3_000, help="beside one for each byte")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--games", nargs="*", default=list(GAMES))
    parser.add_argument("--sanitize", action="store_true", help="see above")
    parser.add_argument("--translated", action="store_true", help="see above")
    options = parser.parse_args()
    if options.sanitize:
        source.FLAGS = (*source.FLAGS, *SANITIZED)
    torch.set_num_threads(1)
    for name in options.games:
        if options.translated:
            batch.host_library = functools.partial(source.host_library, name)
            for cached in (batch.player_on, batch.cartridge):
                cached.cache_clear()
        print(play_damaged(name, options.trials // len(options.games), options.seed), flush=True)


if __name__ == "__main__":
    main()
