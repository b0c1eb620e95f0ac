// The environments on the host, for g++ and ctypes: what tests and benchmarks call.
#include "agent.h"
#include "call.h"
#include "saved.h"

using namespace atari2600;

static Memory memory_of(i32 env, u8 *screens, Recording *recordings, const u8 *gray,
                        u8 *observations, u8 *ended) {
  return {{screens + (u64)env * 2 * SCREEN, recordings + (u64)env * RECORDINGS}, gray,
          observations + (u64)env * OBSERVATION, ended + (u64)env * OBSERVATION};
}

extern "C" {

u32 atari2600_environment_bytes() { return sizeof(Environment); }
u32 atari2600_game_bytes() { return sizeof(Game); }
u32 atari2600_outcome_bytes() { return sizeof(Outcome); }
u32 atari2600_recording_bytes() { return sizeof(Recording) * RECORDINGS; }

u32 atari2600_booted_bytes() { return sizeof(Booted) * TIMER_VALUES; }

void atari2600_boot(const Game *game, i32 timer, Booted *booted, u8 *screens,
                    Recording *recordings) {
  Console console;
  make_booted({0, 1}, console, *game, timer, *(Screens *)screens, recordings,
              booted[timer - LEAST_TIMER]);
}

void atari2600_decode(const u8 *rom, u32 bytes, u64 *program) {
  for (u32 place = 0; place < bytes; place++) program[place] = decode_at(rom, bytes, place);
}

void atari2600_insert(Environment *envs, i32 count, const Game *game, const u8 *ram,
                      const u32 *seeds, u8 *screens, Recording *recordings) {
  for (i32 i = 0; i < count; i++) {
    Outcome unused = Outcome();
    envs[i] = Environment();
    envs[i].seed = seeds[i];
    insert({{0, 1}, envs[i], unused, *game, {}, memory_of(i, screens, recordings, 0, 0, 0)}, ram);
  }
}

void atari2600_reset(Environment *envs, i32 count, const Game *game, const Settings *settings,
                     u8 *screens, Recording *recordings, const u8 *gray, u8 *observations,
                     u8 *ended) {
  for (i32 i = 0; i < count; i++) {
    Outcome unused = Outcome();
    reset({{0, 1}, envs[i], unused, *game, *settings,
           memory_of(i, screens, recordings, gray, observations, ended)});
  }
}

void atari2600_step(Environment *envs, i32 count, const Game *game, const Settings *settings,
                    const i32 *actions, Outcome *outcomes, u8 *screens, Recording *recordings,
                    const u8 *gray, u8 *observations, u8 *ended) {
  for (i32 i = 0; i < count; i++)
    step({{0, 1}, envs[i], outcomes[i], *game, *settings,
          memory_of(i, screens, recordings, gray, observations, ended)}, actions[i]);
}

// Single frames, to be compared with ale-py's.
void atari2600_new_game(Environment *env, const Game *game, u8 *screens, Recording *recordings) {
  Outcome unused = Outcome();
  new_game({{0, 1}, *env, unused, *game, {}, memory_of(0, screens, recordings, 0, 0, 0)});
}
i32 atari2600_frame(Environment *env, const Game *game, u32 input, u8 *screens,
                    Recording *recordings) {
  Outcome unused = Outcome();
  return play_frame({{0, 1}, *env, unused, *game, {}, memory_of(0, screens, recordings, 0, 0, 0)},
                    input, false);
}
void atari2600_look(Environment *env, const Game *game, u8 *screens, Recording *recordings,
                    u8 *ram, i32 *lives_over_page) {
  Film film = {screens, recordings};
  i32 page = env->console.frame.page;
  for (i32 i = 0; i < 128; i++) ram[i] = env->console.ram[i];
  paint_page({0, 1}, env->console, *game, film, page);
  lives_over_page[0] = env->lives;
  lives_over_page[1] = env->over;
  lives_over_page[2] = page;
}

// Batches as on the GPU: the same arguments as the kernels of device.cu.
void atari2600_batch_sizes(u32 *sizes) {
  sizes[0] = sizeof(Environment);
  sizes[1] = sizeof(Game);
  sizes[2] = sizeof(Outcome);
  sizes[3] = sizeof(Recording) * RECORDINGS;
  sizes[4] = sizeof(Booted) * TIMER_VALUES;
  sizes[5] = sizeof(Seat);
}
void atari2600_batch_decode(const u8 *rom, u32 bytes, u64 *program) {
  atari2600_decode(rom, bytes, program);
}
void atari2600_batch_check(const Environment *envs, const i32 *members, i32 count,
                           const Game *game, const Recording *recordings, u8 *sound) {
  for (i32 slot = 0; slot < count; slot++) {
    i32 i = members[slot];
    sound[i] = is_sound(envs[i], recordings + (u64)i * RECORDINGS, *game);
  }
}
void atari2600_batch_play(const Call *call) {
  for (i32 slot = 0; slot < call->count; slot++) {
    if (call->action == BOOT) {
      atari2600_boot(call->game, LEAST_TIMER + slot, call->booted, call->screens, call->recordings);
      continue;
    }
    i32 i = call->members[slot];
    Outcome unused = Outcome(), &outcome = call->action == STEP ? call->outcomes[i] : unused;
    act(*call, {{0, 1}, call->envs[i], outcome, *call->game, call->settings, memory_of(*call, i)}, i);
  }
}
}
