// The environments on the GPU: one thread plays one environment's step.
#include "agent.h"
#include "table.h"

using namespace atari2600;

// `games`: one for each environment, by `game_of`, so that a batch may mix cartridges.
extern "C" __global__ void __launch_bounds__(32)
atari2600_step(Environment *envs, i32 count, const Game *games, const u8 *game_of,
               const Settings settings, const i64 *actions, Outcome *outcomes, u8 *screens,
               const u8 *gray, u8 *observations, u8 *ended) {
  i32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Memory memory = {screens + (u64)i * 2 * SCREEN, gray, observations + (u64)i * OBSERVATION,
                   ended + (u64)i * OBSERVATION};
  Environment env = envs[i];
  Outcome outcome;
  step(env, games[game_of[i]], settings, (i32)actions[i], memory, outcome);
  envs[i] = env;
  outcomes[i] = outcome;
}

extern "C" __global__ void __launch_bounds__(32)
atari2600_begin(Environment *envs, i32 count, const Game *games, const u8 *game_of,
                const Settings settings, const u32 *seeds, const u8 *ram, u8 *screens,
                const u8 *gray, u8 *observations, u8 *ended) {
  i32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Memory memory = {screens + (u64)i * 2 * SCREEN, gray, observations + (u64)i * OBSERVATION,
                   ended + (u64)i * OBSERVATION};
  Environment env = Environment();
  env.seed = seeds[i];
  insert(env, games[game_of[i]], ram, memory);
  reset(env, games[game_of[i]], settings, memory);
  envs[i] = env;
}

// Drop the running games and begin others.
extern "C" __global__ void __launch_bounds__(32)
atari2600_reset(Environment *envs, i32 count, const Game *games, const u8 *game_of,
                const Settings settings, u8 *screens, const u8 *gray, u8 *observations, u8 *ended) {
  i32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Memory memory = {screens + (u64)i * 2 * SCREEN, gray, observations + (u64)i * OBSERVATION,
                   ended + (u64)i * OBSERVATION};
  Environment env = envs[i];
  reset(env, games[game_of[i]], settings, memory);
  envs[i] = env;
}

// What the host must know where no compiler for it is: the table of opcodes, and sizes in bytes.
#ifdef __CUDACC_RTC__
extern "C" __global__ void atari2600_constants(u32 *opcodes, u32 *sizes) {
  for (i32 i = 0; i < 256; i++) opcodes[i] = packed_opcode(OPCODES[i]);
  sizes[0] = sizeof(Environment);
  sizes[1] = sizeof(Game);
  sizes[2] = sizeof(Outcome);
}
#endif
