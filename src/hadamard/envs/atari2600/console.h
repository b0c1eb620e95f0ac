// The state of one console: plain data of a few hundred bytes, copied as a whole to save a game.
// What all consoles of a game share, such as the cartridge's ROM, is in Game.
#pragma once
#include "types.h"

namespace atari2600 {

enum {
  WIDTH = 160,
  HEIGHT = 210,
  SCREEN = WIDTH * HEIGHT,
  CLOCKS_PER_CYCLE = 3,   // of the beam, for a cycle of the processor
  CYCLES_PER_LINE = 76,
  CLOCKS_PER_LINE = 228,
  BLANK_CLOCKS = 68,      // at the start of a line: the beam returns
  BOOT_ENTRIES = 12,
  MAX_ACTIONS = 18,
};

enum CartridgeKind { CART_2K, CART_4K, CART_F8, CART_F6, CART_E0, CART_FE };

enum Controller {
  JOYSTICK_LEFT,
  JOYSTICK_RIGHT,  // the agent holds the second player's joystick
  PADDLE_0,
  PADDLE_1,
};

// What the agent and the console's owner press: bits of an input.
enum Input { UP = 1, DOWN = 2, LEFT = 4, RIGHT = 8, FIRE = 16, RESET = 32, SELECT = 64 };

struct Processor {
  u32 cycle;      // since power-on
  u32 slices;     // which 1 KiB of the ROM each quarter of the cartridge's addresses shows
  u32 registers;  // a byte each: A, X, Y, S
  u32 pc;
  u32 negative;   // the flag is bit 7
  u32 nonzero;    // the zero flag is set when this is 0
  u32 carry, overflow, decimal, interrupt;  // 0 or 1
};

struct Riot {
  u8 timer, shift;  // value written to the timer; its interval is 1 << shift cycles
  u8 port_a, port_a_direction;
  u32 timer_cycle;  // when the timer was written
  u32 slipped;      // how far the count had run past zero when first read after that, plus 1
};

struct Player {
  u8 graphics, old_graphics, reflected, delayed, number_size;
  u8 motion, position;
  u8 first_hidden;  // a strobe of RESP hides the first copy for the rest of the line
};

struct Missile {
  u8 enabled, locked, motion, position;
};

struct Ball {
  u8 enabled, old_enabled, delayed, motion, position;
};

// All that the beam shows follows from these, line by line.
struct Tia {
  u32 playfield;  // 20 bits, bit 0 is the leftmost
  i32 hmove_clock;
  u8 color_player0, color_player1, color_playfield, color_background;
  u8 control;    // CTRLPF
  u8 reflected;  // the playfield's reflection on this line
  u8 vblank;
  u8 comb;  // HMOVE blanks the first eight pixels of the line
  Player player0, player1;
  Missile missile0, missile1;
  Ball ball;
};

struct Controls {
  i32 resistance;  // of the agent's paddle
  i32 charge_0, charge_1, charge_others;  // cycles a paddle's capacitor needs; NEVER, ALWAYS
  u32 discharge_cycle;
  u8 discharging;
  u8 port_a, switches, trigger_0, trigger_1;
};
enum { NEVER = -1, ALWAYS = 0 };

struct Frame {
  u32 first_cycle;  // of line 0
  u32 sync_end;     // cycle from which the end of VSYNC ends the frame; 0 outside VSYNC
  i32 seen;         // clock of the frame at which the TIA was last written or read
  i32 next_row;     // clock at which the next row of the screen begins
  i32 rows;         // rows of the screen that have begun
  u32 writes;       // recorded so far
  u32 last_access;  // of the TIA, as it is recorded
  i32 latched;      // the clock up to which collisions are latched
  i32 instructions;  // left before ALE stops
  u16 collisions;
  u8 done;
  u8 unfinished;  // the processor stopped within a frame, which goes on at the next action
  u8 waiting;     // the processor waits for the collisions
  u8 page;        // which of two screens this frame is drawn on
  u8 recording;   // which of three recordings is this frame's
  u8 unpainted[2];  // 1 + the recording of the frame that a page should show, or 0: it is painted
};

struct Console {
  Processor cpu;
  Riot riot;
  Tia tia;
  Controls controls;
  Frame frame;
  u8 ram[128];
};

// An input for some frames and none for some, several times.
struct Boot {
  u8 input, frames, pause, times;
};

struct Booted;

struct Game {
  const u8 *rom;
  const u64 *program;  // the instruction at each byte of the ROM
  const u8 *timers;  // what the timer holds at each power-on
  const Booted *booted;  // the game just switched on, for each value of the timer; or none
  u32 timer_count;
  i32 number;  // in the table of games
  i32 cartridge, controller;
  i32 first_line;  // first line of the frame that is on the screen
  i32 has_comb;
  i32 num_actions, fire;  // fire: index of FIRE among the actions, or -1
  u8 actions[MAX_ACTIONS];  // the minimal actions as inputs
  Boot boot[BOOT_ENTRIES];  // what is pressed after power-on, until an entry of 0 times
};

}  // namespace atari2600
