// The environments on the host, for g++ and ctypes: what tests and benchmarks call.
#include "agent.h"
#include "table.h"

using namespace atari2600;

extern "C" {

u32 atari2600_environment_bytes() { return sizeof(Environment); }
u32 atari2600_game_bytes() { return sizeof(Game); }
u32 atari2600_outcome_bytes() { return sizeof(Outcome); }

void atari2600_opcodes(u32 *packed) {
  for (i32 i = 0; i < 256; i++) packed[i] = packed_opcode(OPCODES[i]);
}

static Memory memory_of(i32 env, u8 *screens, const u8 *gray, u8 *observations, u8 *ended) {
  Memory memory = {screens + (u64)env * 2 * SCREEN, gray, observations + (u64)env * OBSERVATION,
                   ended + (u64)env * OBSERVATION};
  return memory;
}

void atari2600_insert(Environment *envs, i32 count, const Game *game, const u8 *ram,
                      const u32 *seeds, u8 *screens) {
  for (i32 i = 0; i < count; i++) {
    envs[i] = Environment();
    envs[i].seed = seeds[i];
    insert(envs[i], *game, ram, memory_of(i, screens, 0, 0, 0));
  }
}

void atari2600_reset(Environment *envs, i32 count, const Game *game, const Settings *settings,
                     u8 *screens, const u8 *gray, u8 *observations, u8 *ended) {
  for (i32 i = 0; i < count; i++)
    reset(envs[i], *game, *settings, memory_of(i, screens, gray, observations, ended));
}

void atari2600_step(Environment *envs, i32 count, const Game *game, const Settings *settings,
                    const i32 *actions, Outcome *outcomes, u8 *screens, const u8 *gray,
                    u8 *observations, u8 *ended) {
  for (i32 i = 0; i < count; i++)
    step(envs[i], *game, *settings, actions[i],
         memory_of(i, screens, gray, observations, ended), outcomes[i]);
}

// Single frames, to be compared with ale-py's.
void atari2600_new_game(Environment *env, const Game *game, u8 *screens) {
  Outcome unused = Outcome();
  new_game(*env, *game, screens, unused);
}
i32 atari2600_frame(Environment *env, const Game *game, u32 input, u8 *screens) {
  Settings settings = {CLEANRL, 0, 0, 0};
  return play_frame(*env, *game, settings, input, screens);
}
void atari2600_look(const Environment *env, u8 *ram, i32 *lives_over_page) {
  for (i32 i = 0; i < 128; i++) ram[i] = env->console.ram[i];
  lives_over_page[0] = env->lives;
  lives_over_page[1] = env->over;
  lives_over_page[2] = env->console.frame.page;
}

// Batches as on the GPU: the same arguments as the kernels of device.cu.
void atari2600_batch_constants(u32 *opcodes, u32 *sizes) {
  atari2600_opcodes(opcodes);
  sizes[0] = sizeof(Environment);
  sizes[1] = sizeof(Game);
  sizes[2] = sizeof(Outcome);
}
void atari2600_batch_begin(Environment *envs, i32 count, const Game *games, const u8 *game_of,
                           Settings settings, const u32 *seeds, const u8 *ram, u8 *screens,
                           const u8 *gray, u8 *observations, u8 *ended) {
  for (i32 i = 0; i < count; i++) {
    atari2600_insert(envs + i, 1, games + game_of[i], ram, seeds + i, screens + (u64)i * 2 * SCREEN);
    reset(envs[i], games[game_of[i]], settings, memory_of(i, screens, gray, observations, ended));
  }
}
void atari2600_batch_reset(Environment *envs, i32 count, const Game *games, const u8 *game_of,
                           Settings settings, u8 *screens, const u8 *gray, u8 *observations,
                           u8 *ended) {
  for (i32 i = 0; i < count; i++)
    reset(envs[i], games[game_of[i]], settings, memory_of(i, screens, gray, observations, ended));
}
void atari2600_batch_step(Environment *envs, i32 count, const Game *games, const u8 *game_of,
                          Settings settings, const i64 *actions, Outcome *outcomes, u8 *screens,
                          const u8 *gray, u8 *observations, u8 *ended) {
  for (i32 i = 0; i < count; i++)
    step(envs[i], games[game_of[i]], settings, (i32)actions[i],
         memory_of(i, screens, gray, observations, ended), outcomes[i]);
}
}
