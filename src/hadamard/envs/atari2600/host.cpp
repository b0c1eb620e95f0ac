// The console on the host, for g++ and ctypes: what the tests and benchmarks call.
#include "frame.h"

using namespace atari2600;

extern "C" {

u32 atari2600_console_bytes() { return sizeof(Console); }
u32 atari2600_game_bytes() { return sizeof(Game); }

void atari2600_opcodes(u32 *packed) {
  for (i32 i = 0; i < 256; i++) packed[i] = packed_opcode(OPCODES[i]);
}

void atari2600_boot(Console *console, const Game *game, u32 timer, u8 *screens) {
  boot(*console, *game, (u8)timer, screens);
}

void atari2600_frame(Console *console, const Game *game, u32 input, u8 *screens) {
  run_frame(*console, *game, input, screens);
}

u8 *atari2600_ram(Console *console) { return console->ram; }
u32 atari2600_page(const Console *console) { return console->frame.page; }
}
