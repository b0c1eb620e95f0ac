// Games just switched on, kept ready: a new game begins with 68 frames and more that are always the
// same but for the timer's value at power-on, and a batch would wait for them.
#pragma once
#include "frame.h"

namespace atari2600 {

enum { LEAST_TIMER = 25, TIMER_VALUES = 75 };

struct Screens {
  u32 words[2 * SCREEN / 4];
};

struct Booted {
  Console console;
  u32 kept[4];  // bytes of RAM that keep what the game before has left there
  u32 whole;    // nothing else depends on the game before
  Screens screens;
};

EVERYWHERE void fill_before(Console &console, Screens &screens, u8 value) {
  console = Console();
  for (i32 i = 0; i < 128; i++) console.ram[i] = value;
  for (i32 i = 0; i < 2 * SCREEN / 4; i++) screens.words[i] = value * 0x01010101u;
}

EVERYWHERE void boot_and_paint(const Lanes &lanes, Console &console, const Game &game, u8 timer,
                               const Film &film) {
  boot(lanes, console, game, timer, film);
  for (i32 page = 0; page < 2; page++) paint_page(lanes, console, game, film, page);
}

// Switch a game on twice, after games that left zeros and after games that left ones. What the
// first byte read of RAM could have changed is not found so: such games are `boots_anew` in games.py.
EVERYWHERE void make_booted(const Lanes &lanes, Console &console, const Game &game, i32 timer,
                            Screens &screens, Recording *recordings, Booted &booted) {
  Film film = {(u8 *)&screens, recordings};
  lanes.once([&] { fill_before(console, screens, 0); });
  boot_and_paint(lanes, console, game, (u8)timer, film);
  copy_words(lanes, booted.console, console);
  copy_words(lanes, booted.screens, screens);
  lanes.once([&] { fill_before(console, screens, 0xff); });
  boot_and_paint(lanes, console, game, (u8)timer, film);
  lanes.once([&] {
    booted.whole = 1;
    for (i32 i = 0; i < 4; i++) booted.kept[i] = 0;
    for (i32 i = 0; i < 128; i++) {
      if (booted.console.ram[i] == console.ram[i]) continue;
      booted.kept[i / 32] |= 1u << i % 32;
      if (booted.console.ram[i] != 0 || console.ram[i] != 0xff) booted.whole = 0;
    }
    const u32 *one = (const u32 *)&booted.console, *other = (const u32 *)&console;
    for (i32 i = 0; i < (i32)(sizeof(Console) - 128) / 4; i++)  // all but RAM, which comes last
      if (one[i] != other[i]) booted.whole = 0;
    for (i32 i = 0; i < 2 * SCREEN / 4; i++)
      if (booted.screens.words[i] != screens.words[i]) booted.whole = 0;
  });
}

// Switch a game on, at once if it is kept ready.
OUTLINED void switch_on(const Lanes &lanes, Console &console, const Game &game, u8 timer,
                        const Film &film) {
  const Booted *booted = game.booted ? game.booted + (timer - LEAST_TIMER) : (const Booted *)0;
  if (!booted || !booted->whole) return boot(lanes, console, game, timer, film);
  // Pages and recordings go on in their turn: those of a kept game began with the first ones.
  u32 page = console.frame.page, recording = console.frame.recording;
  lanes.sync();
  for (i32 i = lanes.lane; i < 128; i += LANES)
    if (!(booted->kept[i / 32] >> i % 32 & 1)) console.ram[i] = booted->console.ram[i];
  const u32 *from = (const u32 *)&booted->console;
  for (i32 i = lanes.lane; i < (i32)(sizeof(Console) - 128) / 4; i += LANES)
    ((u32 *)&console)[i] = from[i];
  lanes.once([&] {
    console.frame.page = (u8)(console.frame.page ^ page);
    console.frame.recording = (u8)((console.frame.recording + recording) % RECORDINGS);
  });
  if (!film.screens) return;
  u32 *screens = (u32 *)film.screens;
  for (i32 i = lanes.lane; i < 2 * SCREEN / 4; i += LANES)
    screens[(i + (i32)page * SCREEN / 4) % (2 * SCREEN / 4)] = booted->screens.words[i];
  lanes.sync();
}

}  // namespace atari2600
