// What an agent sees of the games: steps of four frames, observations, rewards, ends and new games.
// One call plays a step of one environment; all it needs and leaves is in memory of the device.
// The rules are those of envs/atari_game.py, which tests compare with.
#pragma once
#include "boots.h"
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
  i32 gain;            // the reward of the newest frame
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
// Where the environment's pictures are.
struct Memory {
  Film film;
  const u8 *gray;    // ALE's gray value of each color
  u8 *observation;   // to act on next
  u8 *ended;         // of the life or game that ended in the step
};

// An environment and all that a step of it works with.
struct Play {
  Lanes lanes;
  Environment &env;
  Outcome &outcome;
  const Game &game;
  const Settings &settings;
  Memory memory;
};

EVERYWHERE u32 draw_noops(const Play &play) {
  u32 word = random_word(play.env.seed, play.env.draws);
  play.lanes.once([&] { play.env.draws++; });
  return word % MOST_NOOPS;
}

// ------------------------------------------------------------------ frames

EVERYWHERE void read_ram(Environment &env, const Game &game, bool is_new) {
  Reading now = read_game(game.number, env.console.ram, is_new ? 0 : env.remembered);
  env.gain = is_new ? 0 : reward_of(game.number, now.score - env.last_score);
  env.last_score = now.score;
  env.lives = now.lives;
  env.remembered = now.remember;
  env.over = !is_new && now.over;
}

// Play one frame, which may be looked at afterwards; returns its reward.
OUTLINED i32 play_frame(const Play &play, u32 input, bool looked_at) {
  Environment &env = play.env;
  if (env.over) return 0;
  run_frame(play.lanes, env.console, play.game, input, play.memory.film, looked_at);
  play.lanes.once([&] {
    env.frames++;
    read_ram(env, play.game, false);
    // 1: the game is over; 2: only cut short.
    i32 most = play.settings.most_frames;
    if (!env.over && most && env.frames >= most) env.over = 2;
  });
  return env.gain;
}

// A new game, switched on as ALE does.
OUTLINED void new_game(const Play &play) {
  Environment &env = play.env;
  const Game &game = play.game;
  u32 turn = env.power_ons < game.timer_count ? env.power_ons : game.timer_count - 1;
  play.lanes.once([&] {
    if (env.length) {
      play.outcome.finished = 1;
      play.outcome.score = env.score;
      play.outcome.length = env.length;
    }
    env.score = env.length = env.frames = 0;
    env.power_ons++;
  });
  switch_on(play.lanes, env.console, game, game.timers[turn], play.memory.film);
  play.lanes.once([&] { read_ram(env, game, true); });
}

// ------------------------------------------------------------------ observations

// What an observation is made of: the brighter of two screens, or one alone, in ALE's grays.
struct View {
  const u8 *gray, *newest, *before;
};

EVERYWHERE i32 gray_at(const View &view, i32 at) {
  i32 value = read_only(view.gray + view.newest[at]);
  if (view.before) {
    i32 other = read_only(view.gray + view.before[at]);
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

EVERYWHERE u8 rounded(float value) {  // to the nearest, a half to the even one
  i32 whole = (i32)value;
  float rest = value - (float)whole;
  return (u8)(whole + (rest > 0.5f || (rest == 0.5f && whole & 1)));
}

// One column of the observation. A pixel of it is the mean of 2.5 rows by 160/84 columns of the
// screen: two pixels of five rows.
EVERYWHERE void observe_column(const View &view, i32 column, u8 *out) {
  i32 left = 40 * column, right = left + 40, first = left / 21;  // left, right: in 21sts of a column
  float weight[3];
  for (i32 i = 0; i < 3; i++) {
    i32 from = 21 * (first + i), to = from + 21;
    i32 width = (to < right ? to : right) - (from > left ? from : left);
    weight[i] = width > 0 ? (float)width / 40.0f : 0.0f;
  }
  i32 last = weight[2] > 0 ? 2 : 1;  // the third one may be beyond the screen
  for (i32 pair = 0; pair < SIDE / 2; pair++) {
    float row[5];
    for (i32 y = 0; y < 5; y++) {
      i32 at = (5 * pair + y) * WIDTH + first;
      row[y] = add_product(0, weight[0], (float)gray_at(view, at));
      row[y] = add_product(row[y], weight[1], (float)gray_at(view, at + 1));
      row[y] = add_product(row[y], weight[2], (float)gray_at(view, at + last));
    }
    float upper = add_product(add_product(add_product(0, 0.4f, row[0]), 0.4f, row[1]), 0.2f, row[2]);
    float lower = add_product(add_product(add_product(0, 0.2f, row[2]), 0.4f, row[3]), 0.4f, row[4]);
    out[2 * pair * SIDE + column] = rounded(upper);
    out[(2 * pair + 1) * SIDE + column] = rounded(lower);
  }
}

EVERYWHERE void paint_pages(const Play &play) {
  for (i32 page = 0; page < 2; page++)
    paint_page(play.lanes, play.env.console, play.game, play.memory.film, page);
}

// Without a place for it, nothing is observed.
OUTLINED void observe(const Play &play, bool alone, u8 *out) {
  if (!out) return;
  const Console &console = play.env.console;
  const Film &film = play.memory.film;
  paint_pages(play);
  View view;
  view.gray = play.memory.gray;
  view.newest = film.screens + console.frame.page * SCREEN;
  view.before = alone ? (const u8 *)0 : film.screens + (console.frame.page ^ 1) * SCREEN;
  for (i32 column = play.lanes.lane; column < SIDE; column += LANES)
    observe_column(view, column, out);
  play.lanes.sync();
}

// ------------------------------------------------------------------ steps

EVERYWHERE void add_score(const Play &play, i32 reward) {
  play.lanes.once([&] { play.env.score += reward; });
}
EVERYWHERE void show_lives(const Play &play) {
  play.lanes.once([&] { play.env.shown_lives = play.env.lives; });
}
EVERYWHERE bool life_is_lost(const Environment &env) {
  return 0 < env.lives && env.lives < env.shown_lives;
}

// An action held for four frames or until the game ends, and what is then seen. All environments of
// a step begin a frame `together`.
OUTLINED i32 repeat(const Play &play, u32 input, u8 *out, bool together) {
  i32 reward = 0, frames = 0;
  for (i32 frame = 0; frame < FRAME_SKIP; frame++) {
    if (together) play.lanes.meet();
    if (play.env.over) continue;
    bool looked_at = frame >= FRAME_SKIP - 2;
    reward += play_frame(play, input, looked_at);
    frames++;
  }
  add_score(play, reward);
  observe(play, frames < FRAME_SKIP, out);
  return reward;
}

OUTLINED void begin_life(const Play &play, bool is_new, u8 *out) {
  if (!is_new) {
    repeat(play, 0, out, false);
    is_new = play.env.over;
  }
  if (is_new) {
    new_game(play);
    for (u32 left = 1 + draw_noops(play); left > 0; left--) {
      add_score(play, play_frame(play, 0, false));
      if (play.env.over) new_game(play);
    }
    observe(play, true, out);
  }
  show_lives(play);
}

OUTLINED void begin_as_envpool(const Play &play, bool is_new) {
  const Game &game = play.game;
  if (is_new) new_game(play);
  for (u32 left = draw_noops(play) + (game.fire < 0); left > 0; left--) {
    play_frame(play, 0, false);
    if (play.env.over) new_game(play);
  }
  if (game.fire >= 0) play_frame(play, game.actions[game.fire], true);
  observe(play, true, play.memory.observation);
  show_lives(play);
}

OUTLINED void begin_as_cleanrl(const Play &play, bool is_new) {
  const Game &game = play.game;
  u8 *observation = play.memory.observation;
  begin_life(play, is_new, observation);
  for (i32 action = 1; game.fire >= 0 && action <= 2; action++) {
    repeat(play, game.actions[action], observation, false);
    // The wrapper then resets again, but what it returns is the frame from before that.
    if (play.env.over || life_is_lost(play.env)) begin_life(play, play.env.over, (u8 *)0);
    show_lives(play);
  }
}

EVERYWHERE void begin(const Play &play, bool is_new) {
  if (play.settings.protocol == ENVPOOL)
    begin_as_envpool(play, is_new);
  else
    begin_as_cleanrl(play, is_new);
  paint_pages(play);  // a saved game has screens, not recordings
}

// Insert the cartridge: RAM is what ALE's random numbers leave there, and the game runs for a second.
EVERYWHERE void insert(const Play &play, const u8 *ram) {
  Environment &env = play.env;
  const Game &game = play.game;
  play.lanes.once([&] {
    for (i32 i = 0; i < 128; i++) env.console.ram[i] = ram[i];
    power_on(env.console, game, game.timers[0]);
  });
  for (i32 frame = 0; frame < 60; frame++)
    run_frame(play.lanes, env.console, game, 0, play.memory.film, false);
  boot(play.lanes, env.console, game, game.timers[1], play.memory.film);
  play.lanes.once([&] { env.power_ons = 2; });
}

// Drop the running game and begin another.
EVERYWHERE void reset(const Play &play) {
  play.lanes.once([&] { play.env.length = 0; });
  begin(play, true);
}

EVERYWHERE void step(const Play &play, i32 action) {
  Environment &env = play.env;
  Outcome &outcome = play.outcome;
  play.lanes.once([&] { outcome = Outcome(); });
  i32 reward = repeat(play, play.game.actions[action], play.memory.observation, true);
  bool life_lost = life_is_lost(env);
  bool cut = play.settings.most_steps && env.length + 1 == play.settings.most_steps;
  bool game_ended = env.over || cut;
  play.lanes.once([&] {
    env.length++;
    env.shown_lives = env.lives;
    outcome.reward = reward;
    if (!game_ended && !life_lost) return;
    outcome.terminated = env.over == 1 || (life_lost && play.settings.training);
    outcome.truncated = game_ended && !outcome.terminated;
    outcome.begun = 1;
  });
  if (!game_ended && !life_lost) return;
  for (i32 i = play.lanes.lane; i < OBSERVATION; i += LANES)
    play.memory.ended[i] = play.memory.observation[i];
  begin(play, game_ended);
  play.lanes.once([&] {
    if (outcome.finished && !outcome.truncated) outcome.terminated = 1;
  });
}

}  // namespace atari2600
