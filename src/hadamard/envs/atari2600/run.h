// The processor runs: as far as its program is translated, and else by the interpreter.
#pragma once
#include "processor.h"
#include "translated.h"

namespace atari2600 {

// Run until the frame ends, ALE stops or collisions are needed.
EVERYWHERE void run_processor(Console &console, const Game &game, Recording &recording) {
  IS_SHARED(&console);
  Frame &frame = console.frame;
  Machine m = {console.cpu, 0, NOT_FETCHED, game.program, game.rom, game.cartridge,
               window_of_bank(game.cartridge), bank_start(console.cpu.slices), frame.first_cycle, frame.instructions, false,
               console, game, recording};
  frame.waiting = 0;
  while (m.instructions > 0 && !m.stopped) {
    run_translated(m);
    if (m.instructions > 0 && !m.stopped) step_processor(m);
  }
  console.cpu = m.cpu;
  frame.instructions = m.instructions;
  if (!m.stopped) stop_within_frame(console, recording);
  end_recording(frame, recording);
}

}  // namespace atari2600
