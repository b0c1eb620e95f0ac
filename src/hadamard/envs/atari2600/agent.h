// What an agent sees of the games: steps of four frames, observations, rewards, ends and new games.
// One call plays a step of one environment; all it needs and leaves is in memory of the device.
// The rules are those of envs/atari_game.py, which tests compare with.
#pragma once
#include "frame.h"
#include "readings.h"

namespace atari2600 {

// Score, lives and end of the game as its RAM has them; from the table of games, games.py.
struct Reading {
  i32 score, lives;
  bool over;
  u8 remember;
};
EVERYWHERE Reading read_game(i32 number, const u8 *ram, u8 remembered);
EVERYWHERE i32 reward_of(i32 number, i32 gain);

enum { FRAME_SKIP = 4, SIDE = 84, OBSERVATION = SIDE * SIDE, MOST_NOOPS = 30 };
enum Protocol { CLEANRL, ENVPOOL };

struct Settings {
  i32 protocol;      // how games and lives begin
  i32 training;      // a lost life ends the episode
  i32 most_steps;    // chosen actions after which a game is truncated, or 0
  i32 most_frames;   // frames after which a game is truncated, or 0
};

// One environment: the console, and the game as the agent plays it.
struct Environment {
  Console console;
  u32 seed, draws;     // random numbers drawn so far
  u32 power_ons;       // games started: which of ALE's timer values comes next
  i32 score, length;   // of the running game: reward in all, chosen actions
  i32 frames;          // of the emulator since the game's reset
  i32 last_score;      // as it is in RAM
  i32 lives, shown_lives;  // in RAM now, and when the running life began
  u8 over, remembered;
};

// What a step leaves for the learner.
struct Outcome {
  i32 reward;        // not clipped
  u8 terminated, truncated;
  u8 begun;          // a life or a game ended and a new one began: the observation is its first
  u8 finished;       // a whole game ended, and its score and length are those below
  i32 score, length;
};

// ------------------------------------------------------------------ random numbers

// numpy.random.SeedSequence((seed, draw)).generate_state(1)[0]: M. E. O'Neill's seed_seq_fe.
EVERYWHERE u32 seed_hash(u32 value, u32 &constant, u32 factor) {
  value ^= constant;
  constant *= factor;
  value *= constant;
  return value ^ value >> 16;
}
EVERYWHERE u32 random_word(u32 seed, u32 draw) {
  u32 constant = 0x43b0d7e5u, pool[4];
  for (i32 i = 0; i < 4; i++)
    pool[i] = seed_hash(i == 0 ? seed : i == 1 ? draw : 0, constant, 0x931e8875u);
  for (i32 from = 0; from < 4; from++)
    for (i32 to = 0; to < 4; to++)
      if (from != to) {
        u32 mixed = 0xca01f9ddu * pool[to] -
                    0x4973f715u * seed_hash(pool[from], constant, 0x931e8875u);
        pool[to] = mixed ^ mixed >> 16;
      }
  constant = 0x8b51f9ddu;
  return seed_hash(pool[0], constant, 0x58f38dedu);
}
EVERYWHERE u32 draw_noops(Environment &env) { return random_word(env.seed, env.draws++) % MOST_NOOPS; }

// ------------------------------------------------------------------ frames

// Play one frame; returns its reward.
OUTLINED i32 play_frame(Environment &env, const Game &game, const Settings &settings, u32 input,
                          u8 *screens) {
  if (env.over) return 0;
  run_frame(env.console, game, input, screens);
  env.frames++;
  Reading now = read_game(game.number, env.console.ram, env.remembered);
  i32 gain = reward_of(game.number, now.score - env.last_score);
  env.last_score = now.score;
  env.lives = now.lives;
  env.remembered = now.remember;
  // 1: the game is over; 2: only cut short.
  env.over = now.over ? 1 : settings.most_frames && env.frames >= settings.most_frames ? 2 : 0;
  return gain;
}

// A new game, switched on as ALE does.
OUTLINED void new_game(Environment &env, const Game &game, u8 *screens, Outcome &outcome) {
  if (env.length) {
    outcome.finished = 1;
    outcome.score = env.score;
    outcome.length = env.length;
  }
  env.score = env.length = env.frames = 0;
  u32 turn = env.power_ons < game.timer_count ? env.power_ons : game.timer_count - 1;
  env.power_ons++;
  boot(env.console, game, game.timers[turn], screens);
  Reading now = read_game(game.number, env.console.ram, 0);
  env.last_score = now.score;
  env.lives = now.lives;
  env.remembered = now.remember;
  env.over = 0;
}

// ------------------------------------------------------------------ observations

// What an observation is made of: the brighter of two screens, or one alone, in ALE's grays.
struct View {
  const u8 *gray, *newest, *before;
};

EVERYWHERE i32 gray_at(const View &view, i32 at) {
  i32 value = view.gray[view.newest[at]];
  if (view.before) {
    i32 other = view.gray[view.before[at]];
    if (other > value) value = other;
  }
  return value;
}

// Sums in single precision, each product and each sum rounded, as cv2.resize does with INTER_AREA.
EVERYWHERE float add_product(float sum, float weight, float value) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(sum, __fmul_rn(weight, value));
#else
  float product = weight * value;
  return sum + product;
#endif
}

// One pixel of the observation: the mean of 2.5 rows by 160/84 columns of the screen.
EVERYWHERE u8 observed_pixel(const View &view, i32 row, i32 column) {
  i32 first_row = 5 * row / 2, last_row = (5 * row + 4) / 2;
  i32 left = 40 * column, right = left + 40;  // in 21sts of a column
  i32 first_column = left / 21, last_column = (right - 1) / 21;
  float sum = 0;
  for (i32 y = first_row; y <= last_row; y++) {
    bool half = (row & 1) ? y == first_row : y == last_row;
    float in_row = 0;
    for (i32 x = first_column; x <= last_column; x++) {
      i32 from = 21 * x > left ? 21 * x : left, to = 21 * x + 21 < right ? 21 * x + 21 : right;
      in_row = add_product(in_row, (float)((to - from) / 40.0),
                           (float)gray_at(view, y * WIDTH + x));
    }
    sum = add_product(sum, half ? 0.2f : 0.4f, in_row);
  }
  i32 whole = (i32)sum;  // rounded to the nearest, a half to the even one
  float rest = sum - (float)whole;
  if (rest > 0.5f || (rest == 0.5f && whole & 1)) whole++;
  return (u8)whole;
}

// The environment's screens, and where its observations go.
struct Memory {
  u8 *screens;       // two of them
  const u8 *gray;    // ALE's gray value of each color
  u8 *observation;   // to act on next
  u8 *ended;         // of the life or game that ended in the step
};

OUTLINED void observe(const Environment &env, const Memory &memory, bool alone, u8 *out) {
  if (!out) return;
  View view;
  view.gray = memory.gray;
  view.newest = memory.screens + env.console.frame.page * SCREEN;
  view.before = alone ? (const u8 *)0 : memory.screens + (env.console.frame.page ^ 1) * SCREEN;
  for (i32 row = 0; row < SIDE; row++)
    for (i32 column = 0; column < SIDE; column++)
      out[row * SIDE + column] = observed_pixel(view, row, column);
}

// ------------------------------------------------------------------ steps

// An action held for four frames or until the game ends, and what is then seen.
OUTLINED i32 repeat(Environment &env, const Game &game, const Settings &settings, u32 input,
                      const Memory &memory, u8 *out) {
  i32 reward = 0, frame = 0;
  for (; frame < FRAME_SKIP && !env.over; frame++)
    reward += play_frame(env, game, settings, input, memory.screens);
  env.score += reward;
  observe(env, memory, frame < FRAME_SKIP, out);
  return reward;
}

OUTLINED void begin_life(Environment &env, const Game &game, const Settings &settings, bool is_new,
                           const Memory &memory, u8 *out, Outcome &outcome) {
  if (!is_new) {
    repeat(env, game, settings, 0, memory, out);
    is_new = env.over;
  }
  if (is_new) {
    new_game(env, game, memory.screens, outcome);
    for (u32 left = 1 + draw_noops(env); left > 0; left--) {
      env.score += play_frame(env, game, settings, 0, memory.screens);
      if (env.over) new_game(env, game, memory.screens, outcome);
    }
    observe(env, memory, true, out);
  }
  env.shown_lives = env.lives;
}

OUTLINED void begin_as_envpool(Environment &env, const Game &game, const Settings &settings,
                                 bool is_new, const Memory &memory, Outcome &outcome) {
  if (is_new) new_game(env, game, memory.screens, outcome);
  for (u32 left = draw_noops(env) + (game.fire < 0); left > 0; left--) {
    play_frame(env, game, settings, 0, memory.screens);
    if (env.over) new_game(env, game, memory.screens, outcome);
  }
  if (game.fire >= 0) play_frame(env, game, settings, game.actions[game.fire], memory.screens);
  observe(env, memory, true, memory.observation);
  env.shown_lives = env.lives;
}

OUTLINED void begin_as_cleanrl(Environment &env, const Game &game, const Settings &settings,
                                 bool is_new, const Memory &memory, Outcome &outcome) {
  begin_life(env, game, settings, is_new, memory, memory.observation, outcome);
  for (i32 action = 1; game.fire >= 0 && action <= 2; action++) {
    repeat(env, game, settings, game.actions[action], memory, memory.observation);
    // The wrapper then resets again, but what it returns is the frame from before that.
    if (env.over || (0 < env.lives && env.lives < env.shown_lives))
      begin_life(env, game, settings, env.over, memory, (u8 *)0, outcome);
    env.shown_lives = env.lives;
  }
}

EVERYWHERE void begin(Environment &env, const Game &game, const Settings &settings, bool is_new,
                      const Memory &memory, Outcome &outcome) {
  if (settings.protocol == ENVPOOL)
    begin_as_envpool(env, game, settings, is_new, memory, outcome);
  else
    begin_as_cleanrl(env, game, settings, is_new, memory, outcome);
}

// Insert the cartridge: RAM is what ALE's random numbers leave there, and the game runs for a second.
EVERYWHERE void insert(Environment &env, const Game &game, const u8 *ram, const Memory &memory) {
  for (i32 i = 0; i < 128; i++) env.console.ram[i] = ram[i];
  power_on(env.console, game, game.timers[0]);
  for (i32 frame = 0; frame < 60; frame++) run_frame(env.console, game, 0, memory.screens);
  boot(env.console, game, game.timers[1], memory.screens);
  env.power_ons = 2;
}

// Drop the running game and begin another.
EVERYWHERE void reset(Environment &env, const Game &game, const Settings &settings,
                      const Memory &memory) {
  Outcome unused = Outcome();
  env.length = 0;
  begin(env, game, settings, true, memory, unused);
}

EVERYWHERE void step(Environment &env, const Game &game, const Settings &settings, i32 action,
                     const Memory &memory, Outcome &outcome) {
  outcome = Outcome();
  outcome.reward = repeat(env, game, settings, game.actions[action], memory, memory.observation);
  env.length++;
  bool life_lost = 0 < env.lives && env.lives < env.shown_lives;
  bool cut = settings.most_steps && env.length == settings.most_steps;
  bool game_ended = env.over || cut;
  env.shown_lives = env.lives;
  if (!game_ended && !life_lost) return;
  outcome.terminated = env.over == 1 || (life_lost && settings.training);
  outcome.truncated = game_ended && !outcome.terminated;
  outcome.begun = 1;
  for (i32 i = 0; i < OBSERVATION; i++) memory.ended[i] = memory.observation[i];
  begin(env, game, settings, game_ended, memory, outcome);
  if (outcome.finished && !outcome.truncated) outcome.terminated = 1;
}

}  // namespace atari2600
