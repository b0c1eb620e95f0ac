"""The table of games: what is particular to each cartridge.

A reading is a C expression over the bytes of RAM after a frame, in the words of ``readings.h``. The
readings were found by observation: ale-py's rewards, lives and ends in play, and after one byte of
RAM or several had been set to every value. ``benchmarks/atari_exact.py`` compares them again.

- ``score``: the points. The reward is what it gained in the frame.
- ``reward``: for the few games in which that is not all: an expression of ``gain``.
- ``lives`` and ``over``: lives left, and whether the game is over.
"""

from __future__ import annotations

from dataclasses import dataclass

Press = tuple[str, int, int, int]
Boot = tuple[Press, ...]


def press(button: str, frames: int, *, pause: int = 0, times: int = 1) -> Press:
    """Return what holds a button for some frames and leaves it for some, several times."""
    return (button, frames, pause, times)


WAIT: Boot = (press("", 60),)
"""Every game is left alone for a second after power-on."""
RESET: Boot = (*WAIT, press("RESET", 8))
RESET_LONGER: Boot = (*WAIT, press("RESET", 12))
"""ALE presses RESET again in games with several modes."""

_BY_SIZE = {2048: "CART_2K", 4096: "CART_4K", 8192: "CART_F8", 16384: "CART_F6"}


@dataclass(frozen=True)
class Game:
    """One cartridge."""

    rom: str
    """ale-py's name."""
    score: str
    lives: str = "0"
    over: str = "lives == 0"
    reward: str = "gain"
    refused: str = ""
    """Why the game is not exact, if it is not."""
    remember: str = "0"
    """What the next frame's readings know as ``remembered``."""
    boot: Boot = RESET
    """What is pressed from power-on to the first action."""
    boots_anew: bool = False
    """Whether the boot reads RAM that it has not written, so that it depends on the game before."""
    cartridge: str = ""
    """The kind of cartridge, if not the usual one of its size."""
    controller: str = "JOYSTICK_LEFT"
    first_line: int = 34
    """The line of the frame that is the screen's first."""
    comb: bool = True
    """Whether HMOVE blanks the start of a line (a fact about how ALE shows this ROM)."""

    def cartridge_of(self, rom_bytes: int) -> str:
        """Return the kind of cartridge, for a ROM of so many bytes."""
        return self.cartridge or _BY_SIZE[rom_bytes]


def _after(boot: Boot, *actions: Press) -> Boot:
    return (*boot, *actions)


TABLE = (
    Game(
        "alien",
        "10 * (digit_of_8(ram[0x0b]) + 10 * digit_of_8(ram[0x09]) + 100 * digit_of_8(ram[0x07])"
        " + 1000 * digit_of_8(ram[0x05]) + 10000 * digit_of_8(ram[0x03]))",
        "low(ram[0x40])",
        boot=RESET_LONGER,
    ),
    Game(
        "amidar", "decimal(ram[0x5b], ram[0x5a], ram[0x59])", "low(ram[0x56])", "ram[0x56] == 0x80"
    ),
    Game("assault", "decimal(ram[0x00], ram[0x01], ram[0x02])", "ram[0x65]"),
    Game(
        "asterix",
        "decimal(ram[0x5e], ram[0x5f], ram[0x60])",
        "over ? 0 : low(ram[0x53])",
        "ram[0x47] == 1 && low(ram[0x53]) == 1",
        boot=_after(RESET, press("FIRE", 1)),
    ),
    Game(
        "asteroids",
        "10 * decimal(ram[0x3d], ram[0x3e])",
        "high(ram[0x3c])",
        reward="gain < 0 ? gain + 100000 : gain",
        comb=False,
        boot=RESET_LONGER,
    ),
    Game(
        "atlantis",
        "100 * decimal(ram[0x21], ram[0x23], ram[0x22])",
        "over ? 0 : ram[0x71]",
        "ram[0x71] == 0xff",
        boot=RESET_LONGER,
    ),
    Game(
        "bank_heist",
        "decimal(ram[0x58], ram[0x59], ram[0x5a])",
        "ram[0x55]",
        "ram[0x4e] == 1 && ram[0x55] == 0",
        boot=RESET_LONGER,
    ),
    Game(
        "battle_zone",
        "1000 * (digit(high(ram[0x1d])) + 10 * digit(low(ram[0x1e]))"
        " + 100 * digit(high(ram[0x1e])))",
        "low(ram[0x3a])",
        comb=False,
        boot=RESET_LONGER,
    ),
    Game(
        "beam_rider",
        "decimal(ram[0x0b], ram[0x0a], ram[0x09])",
        "over ? 0 : ram[0x0c] == 5 && remembered ? remembered : ram[0x05] + 1",
        over="ram[0x05] == 0xff",
        remember="lives",
        boot=_after(RESET, press("RIGHT", 1)),
    ),
    Game(
        "berzerk",
        "decimal(ram[0x5d], ram[0x5e], ram[0x5f])",
        "(u8)(ram[0x5a] + 1)",
        boot=_after(WAIT, press("RESET", 4), press("SELECT", 12), press("RESET", 16)),
    ),
    Game("bowling", "decimal(ram[0x26], ram[0x21])", over="ram[0x24] > 0x10", boot=RESET_LONGER),
    Game(
        "boxing",
        "points_of_boxing(ram[0x12]) - points_of_boxing(ram[0x13])",
        over="points_of_boxing(ram[0x12]) == 100 || points_of_boxing(ram[0x13]) == 100"
        " || (high(ram[0x10]) == 0 && ram[0x11] == 0)",
    ),
    Game(
        "breakout",
        "decimal(low(ram[0x4c]), ram[0x4d])",
        "ram[0x39]",
        controller="PADDLE_0",
        boot=RESET_LONGER,
    ),
    Game(
        "centipede",
        "decimal(ram[0x74], ram[0x75], ram[0x76])",
        "over ? 0 : (high(ram[0x6d]) & 7) + 1",
        over="ram[0x26] & 0x40",
        reward="gain < 0 ? 0 : gain",
        boot=RESET_LONGER,
    ),
    Game(
        "chopper_command",
        "100 * decimal(ram[0x6c], ram[0x6e])",
        "low(ram[0x64])",
        boot=RESET_LONGER,
    ),
    Game(
        "crazy_climber",
        "100 * (ram[0x02] + 10 * ram[0x03] + 100 * ram[0x04] + 1000 * ram[0x05])",
        "ram[0x2a]",
        reward="gain < 0 ? 0 : gain",
        boot=RESET_LONGER,
    ),
    Game(
        "defender",
        "digit(low(ram[0x1c])) + 10 * digit(low(ram[0x1d])) + 100 * digit(low(ram[0x1e]))"
        " + 1000 * digit(low(ram[0x1f])) + 10000 * digit(low(ram[0x20]))"
        " + 100000 * digit(low(ram[0x21]))",
        "ram[0x42]",
        boot=RESET_LONGER,
    ),
    Game(
        "demon_attack",
        "shows_title(ram) ? 0 : decimal(ram[0x01], ram[0x03], ram[0x05])",
        "over ? 0 : ram[0x72] + 1",
        "ram[0x71] == 0xbd && ram[0x72] == 0",
        boot=RESET_LONGER,
    ),
    Game(
        "double_dunk",
        refused="its menu at the start is not reproduced",
        score="decimal(ram[0x76]) - decimal(ram[0x77])",
        over="0",
        boot=RESET_LONGER,
    ),
    Game(
        "enduro",
        "ram[0x2d] ? 300 * ram[0x2d] - 100 - decimal(ram[0x2c], ram[0x2b]) : 0",
        over="ram[0x2f] == 0xff",
        boot=_after(RESET, press("FIRE", 1)),
    ),
    Game(
        "fishing_derby",
        "decimal(ram[0x3d]) - decimal(ram[0x3e])",
        over="ram[0x3d] == 0x99 || ram[0x3e] == 0x99",
    ),
    Game(
        "freeway",
        "decimal(ram[0x67])",
        over="ram[0x16] == 1",
        reward="gain > 1 ? 1 : gain",
        boot=RESET_LONGER,
    ),
    Game(
        "frostbite",
        "decimal(ram[0x48], ram[0x49], ram[0x4a])",
        "over ? 0 : low(ram[0x4c]) + 1",
        "ram[0x71] & 0x80 && low(ram[0x4c]) == 0",
        boot=RESET_LONGER,
    ),
    Game(
        "gopher",
        "decimal(ram[0x30], ram[0x31], ram[0x32])",
        "bits(ram[0x34] & 7)",
        boot=_after(WAIT, press("RESET", 16), press("FIRE", 1)),
    ),
    Game(
        "gravitar",
        "decimal(ram[0x07], ram[0x08], ram[0x09])",
        "over ? 0 : ram[0x04] + 1",
        "ram[0x01] == 1",
        cartridge="CART_F8",
        boot=_after(RESET_LONGER, press("FIRE", 16)),
    ),
    Game("hero", "decimal(ram[0x37], ram[0x38], ram[0x39])", "ram[0x33]", boot=RESET_LONGER),
    Game(
        "ice_hockey",
        "decimal(ram[0x0a]) - decimal(ram[0x0b])",
        over="ram[0x06] == 0 && ram[0x07] == 0",
        reward="gain > 1 ? 1 : gain",
        boot=RESET_LONGER,
        boots_anew=True,
    ),
    Game(
        "jamesbond",
        "decimal(ram[0x5e], ram[0x5d], ram[0x5c])",
        "over ? 0 : low(ram[0x06]) + 1",
        "ram[0x0c] == 0x68 && low(ram[0x06]) == 0",
        cartridge="CART_E0",
        boot=RESET_LONGER,
    ),
    Game(
        "kangaroo",
        "100 * decimal(ram[0x27], ram[0x28])",
        "over ? 0 : (ram[0x2d] & 7) + 1",
        over="ram[0x2d] == 0xff",
        boot=RESET_LONGER,
    ),
    Game(
        "krull",
        "decimal(ram[0x1c], ram[0x1d], ram[0x1e])",
        "over ? 0 : (ram[0x1f] & 7) + 1",
        "ram[0x00] == 0x80 && (ram[0x1f] & 7) == 0",
    ),
    Game(
        "kung_fu_master",
        "decimal(ram[0x18], ram[0x19], ram[0x1a])",
        "over ? 0 : (ram[0x1d] & 7) + 1",
        over="ram[0x1d] == 0xff",
        boots_anew=True,
    ),
    Game(
        "montezuma_revenge",
        "decimal(ram[0x13], ram[0x14], ram[0x15])",
        "over ? 0 : (ram[0x3a] & 7) + 1",
        "ram[0x7e] == 0x60 && ram[0x3a] == 0",
        cartridge="CART_E0",
    ),
    Game(
        "ms_pacman",
        "decimal(ram[0x7a], ram[0x79], ram[0x78])",
        "over ? 0 : (ram[0x7b] & 7) + 1",
        "ram[0x27] == 0x53 && low(ram[0x7b]) == 0",
        comb=False,
        boot=RESET_LONGER,
    ),
    Game(
        "name_this_game",
        score="decimal(ram[0x44], ram[0x45], ram[0x46])",
        lives="ram[0x47] & 7",
        boot=_after(
            WAIT,
            press("RESET", 4),
            press("SELECT", 2, pause=1, times=134),
            press("RESET", 8),
        ),
    ),
    Game(
        "phoenix",
        "100 * decimal(ram[0x49], ram[0x48]) + 10 * high(ram[0x47])",
        "over ? 0 : ram[0x4b] & 7",
        over="ram[0x4c] == 0x80",
    ),
    Game(
        "pitfall",
        "decimal(ram[0x55], ram[0x56], ram[0x57])",
        "over ? 0 : high(ram[0x00]) == 0xa ? 3 : high(ram[0x00]) == 8 ? 2 : 1",
        "high(ram[0x00]) == 0 && ram[0x1e] != 0",
        boot=_after(RESET, press("UP", 1)),
    ),
    Game(
        "pong",
        "ram[0x0e] - ram[0x0d]",
        over="ram[0x0d] == 21 || ram[0x0e] == 21",
        controller="PADDLE_1",
        boot=RESET_LONGER,
    ),
    Game(
        "private_eye",
        "decimal(ram[0x48], ram[0x49], ram[0x4a])",
        over="ram[0x42] > 1",
        boot=_after(RESET_LONGER, press("UP", 1)),
    ),
    Game(
        "qbert",
        "decimal(ram[0x59], ram[0x5a], ram[0x5b])",
        "over ? 0 : remembered || ram[0x08] ? (u8)(ram[0x08] + 2) : 4",
        over="ram[0x08] == 0xfe",
        remember="remembered | (ram[0x08] == 2)",
        first_line=40,
    ),
    Game(
        "riverraid",
        "shown_digit(ram[0x57]) + 10 * shown_digit(ram[0x55]) + 100 * shown_digit(ram[0x53])"
        " + 1000 * shown_digit(ram[0x51]) + 10000 * shown_digit(ram[0x4f])"
        " + 100000 * shown_digit(ram[0x4d])",
        "over ? 0 : ram[0x40] == 0x58 ? 4 : ram[0x40] == 0x59 ? 1 : (ram[0x40] >> 3) + 1",
        "ram[0x40] == 0x58 && remembered == 0x59",
        remember="ram[0x40]",
    ),
    Game(
        "road_runner",
        "100 * (digit(low(ram[0x49])) + 10 * digit(low(ram[0x4a])) + 100 * digit(low(ram[0x4b]))"
        " + 1000 * digit(low(ram[0x4c])))",
        "over ? 0 : (ram[0x44] & 7) + 1",
        "(ram[0x44] & 7) == 0 && ram[0x3d] != 0",
    ),
    Game(
        "robotank",
        "ram[0x35] + 12 * ram[0x36]",
        "over ? 0 : low(ram[0x28]) + 1",
        "ram[0x34] == 0xff && ram[0x28] == 0",
        cartridge="CART_FE",
    ),
    Game(
        "seaquest",
        "decimal(ram[0x38], ram[0x39], ram[0x3a])",
        "over ? 0 : ram[0x3b] + 1",
        over="ram[0x23] != 0",
    ),
    Game(
        "skiing",
        "-(6000 * ram[0x68] + decimal(ram[0x69], ram[0x6a]))",
        over="ram[0x11] == 0xff",
        boot=_after(RESET, press("DOWN", 16)),
    ),
    Game(
        "solaris",
        "10 * decimal(ram[0x5e], ram[0x5d], ram[0x5c])",
        "low(ram[0x59])",
        over="ram[0x59] == 0",
    ),
    Game(
        "space_invaders",
        "decimal(ram[0x66], ram[0x68])",
        "over ? 0 : ram[0x49]",
        over="ram[0x18] & 0x80 || ram[0x49] == 0",
        reward="gain < 0 ? gain + 10000 : gain",
        boot=RESET_LONGER,
    ),
    Game(
        "star_gunner",
        "100 * (digit(low(ram[0x03])) + 10 * digit(low(ram[0x04])) + 100 * digit(low(ram[0x05]))"
        " + 1000 * digit(low(ram[0x06])))",
        "remembered ? low(ram[0x07]) : 5",
        remember="remembered | (low(ram[0x07]) == 5)",
        over="ram[0x07] == 0",
        boot=RESET_LONGER,
    ),
    Game(
        "surround",
        "decimal(ram[0x77]) - decimal(ram[0x76])",
        "over ? 0 : 1",
        over="ram[0x76] == 0x10 || ram[0x77] == 0x10",
        controller="JOYSTICK_RIGHT",
        boot=_after(WAIT, press("RESET", 4), press("SELECT", 3), press("RESET", 8)),
        boots_anew=True,
    ),
    Game(
        "tennis",
        "1024 * (ram[0x47] - ram[0x48]) + ram[0x45] - ram[0x46]",
        reward="gain_of_tennis(gain)",
        over="ram[0x47] > 5 || ram[0x48] > 5",
        boot=RESET_LONGER,
    ),
    Game(
        "time_pilot",
        "100 * decimal(ram[0x0f], ram[0x0d])",
        "over ? 0 : (ram[0x0b] & 7) + !(ram[0x00] & 1 && ram[0x11] == 8)",
        over="ram[0x20] != 0",
        boots_anew=True,
    ),
    Game(
        "tutankham",
        "decimal(ram[0x1a], ram[0x1c])",
        "ram[0x1e] & 3",
        over="ram[0x1e] == 0",
        cartridge="CART_E0",
        boot=RESET_LONGER,
    ),
    Game(
        "up_n_down",
        "decimal(ram[0x00], ram[0x01], ram[0x02])",
        "over ? 0 : low(ram[0x06]) + 1",
        over="low(ram[0x06]) == 0 && ram[0x14] > 0x40",
        first_line=30,
        boot=_after(RESET, press("FIRE", 1)),
    ),
    Game(
        "venture",
        "100 * decimal(ram[0x47], ram[0x48])",
        "over ? 0 : (ram[0x46] & 7) + 1",
        "ram[0x46] == 0 && ram[0x4d] == 0xff && ram[0x3f] & 0x80",
    ),
    Game(
        "video_pinball",
        "decimal(ram[0x34], ram[0x32], ram[0x30])",
        "over ? 0 : 4 + (ram[0x28] & 1) - (ram[0x19] & 7)",
        over="ram[0x2f] & 1",
        boot=RESET_LONGER,
    ),
    Game(
        "wizard_of_wor",
        "100 * decimal(ram[0x06]) + 10000 * (decimal(ram[0x08]) % 80)",
        "over ? 0 : low(ram[0x0d]) + (ram[0x57] & 1 && !(ram[0x09] & 1 && ram[0x0d] == 1))",
        "ram[0x74] == 0xf8 && low(ram[0x0d]) == 0",
        controller="JOYSTICK_RIGHT",
    ),
    Game(
        "yars_revenge",
        "decimal(ram[0x60], ram[0x61], ram[0x62])",
        "high(ram[0x1e])",
        boot=_after(
            WAIT,
            press("RESET", 4),
            press("SELECT", 1, pause=1, times=7),
            press("RESET", 8),
            press("FIRE", 1),
        ),
        boots_anew=True,
    ),
    Game("zaxxon", "100 * decimal(ram[0x68], ram[0x69])", "ram[0x6a] & 7", boot=RESET_LONGER),
)
