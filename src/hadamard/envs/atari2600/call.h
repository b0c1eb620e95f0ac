// What is asked of a batch's environments of one game, on the host and on a GPU alike.
#pragma once
#include "agent.h"
#include "table.h"

namespace atari2600 {

// The state of an environment while it plays.
struct Seat {
  Environment env;
  Outcome outcome;
};

enum Action : i32 {
  STEP,
  RESTART,  // drop the running games and begin others
  BEGIN,    // insert the cartridges and begin games
  BOOT,     // make games that are just switched on: one for each value of the timer
};

struct Call {
  i32 action, count;
  Environment *envs;
  const i32 *members;  // the numbers of the game's environments
  const Game *game;    // the one whose program is translated here
  Settings settings;
  const i64 *actions;
  Outcome *outcomes;
  const u32 *seeds;
  const u8 *ram;  // as it is first switched on
  u8 *screens;
  Recording *recordings;
  const u8 *gray;
  u8 *observations, *ended;
  Booted *booted;
};

EVERYWHERE Memory memory_of(const Call &call, i32 env) {
  return {{call.screens + (u64)env * 2 * SCREEN, call.recordings + (u64)env * RECORDINGS}, call.gray,
          call.observations + (u64)env * OBSERVATION, call.ended + (u64)env * OBSERVATION};
}

EVERYWHERE void act(const Call &call, const Play &play, i32 i) {
  switch (call.action) {
    case STEP: return step(play, (i32)call.actions[i]);
    case BEGIN:
      play.lanes.once([&] {
        play.env = Environment();
        play.env.seed = call.seeds[i];
      });
      insert(play, call.ram);
    default: return reset(play);
  }
}

}  // namespace atari2600
