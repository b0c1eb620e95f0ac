// The environments on the GPU: LANES threads of a warp play one environment's step.
#include "agent.h"
#include "saved.h"
#include "table.h"

using namespace atari2600;

// Threads of a block.
#ifndef BLOCK
#define BLOCK 32
#endif
// Blocks that must fit a multiprocessor together: fewer registers for each thread.
#ifndef RESIDENT
#define RESIDENT 1
#endif

enum { ENVIRONMENTS = BLOCK / LANES };  // of a block

// The state of a block's environments while they play.
struct Seat {
  Environment env;
  Outcome outcome;
};

// Which environment this thread plays.
EVERYWHERE Lanes lanes_of(u32 thread) {
  i32 lane = (i32)(thread % LANES);
  u32 mask = LANES == 32 ? 0xffffffffu : ((1u << LANES % 32) - 1) << (thread % 32 - lane);
  return {lane, mask};
}

EVERYWHERE Memory memory_of(i32 env, u8 *screens, Recording *recordings, const u8 *gray,
                            u8 *observations, u8 *ended) {
  return {{screens + (u64)env * 2 * SCREEN, recordings + (u64)env * RECORDINGS}, gray,
          observations + (u64)env * OBSERVATION, ended + (u64)env * OBSERVATION};
}

// A launch plays the environments of one game: `members` are their numbers in the batch, `game` is the
// one whose program was translated for this module.
EVERYWHERE i32 member_of(const i32 *members, i32 count) {
  i32 slot = (i32)(blockIdx.x * ENVIRONMENTS + threadIdx.x / LANES);
  return slot < count ? members[slot] : -1;
}

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
atari2600_step(Environment *envs, const i32 *members, i32 count, const Game *game,
               const Settings settings, const i64 *actions, Outcome *outcomes, u8 *screens,
               Recording *recordings, const u8 *gray, u8 *observations, u8 *ended) {
  __shared__ Seat seats[ENVIRONMENTS];
  i32 i = member_of(members, count);
  if (i < 0) return;
  Lanes lanes = lanes_of(threadIdx.x);
  Seat &seat = seats[threadIdx.x / LANES];
  copy_words(lanes, seat.env, envs[i]);
  step({lanes, seat.env, seat.outcome, *game, settings,
        memory_of(i, screens, recordings, gray, observations, ended)}, (i32)actions[i]);
  copy_words(lanes, envs[i], seat.env);
  copy_words(lanes, outcomes[i], seat.outcome);
}

// Drop the running games and begin others.
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
atari2600_reset(Environment *envs, const i32 *members, i32 count, const Game *game,
                const Settings settings, u8 *screens, Recording *recordings, const u8 *gray,
                u8 *observations, u8 *ended) {
  __shared__ Seat seats[ENVIRONMENTS];
  i32 i = member_of(members, count);
  if (i < 0) return;
  Lanes lanes = lanes_of(threadIdx.x);
  Seat &seat = seats[threadIdx.x / LANES];
  copy_words(lanes, seat.env, envs[i]);
  reset({lanes, seat.env, seat.outcome, *game, settings,
         memory_of(i, screens, recordings, gray, observations, ended)});
  copy_words(lanes, envs[i], seat.env);
}

// Insert the cartridges and begin games.
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
atari2600_begin(Environment *envs, const i32 *members, i32 count, const Game *game,
                const Settings settings, const u32 *seeds, const u8 *ram, u8 *screens,
                Recording *recordings, const u8 *gray, u8 *observations, u8 *ended) {
  __shared__ Seat seats[ENVIRONMENTS];
  i32 i = member_of(members, count);
  if (i < 0) return;
  Lanes lanes = lanes_of(threadIdx.x);
  Seat &seat = seats[threadIdx.x / LANES];
  lanes.once([&] {
    seat.env = Environment();
    seat.env.seed = seeds[i];
  });
  Play play = {lanes, seat.env, seat.outcome, *game, settings,
               memory_of(i, screens, recordings, gray, observations, ended)};
  insert(play, ram);
  reset(play);
  copy_words(lanes, envs[i], seat.env);
}

// Whether saved environments can be played.
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
atari2600_check(const Environment *envs, const i32 *members, i32 count, const Game *game,
                const Recording *recordings, u8 *sound) {
  i32 i = member_of(members, count);
  if (i < 0 || threadIdx.x % LANES) return;
  sound[i] = is_sound(envs[i], recordings + (u64)i * RECORDINGS, *game);
}

// Games just switched on: one for each value of the timer. `booted`, `recordings` and `screens`
// have room for TIMER_VALUES.
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
atari2600_boot(const Game *game, Booted *booted, u8 *screens, Recording *recordings) {
  __shared__ Console consoles[ENVIRONMENTS];
  i32 i = (i32)(blockIdx.x * ENVIRONMENTS + threadIdx.x / LANES);
  if (i >= TIMER_VALUES) return;
  make_booted(lanes_of(threadIdx.x), consoles[threadIdx.x / LANES], *game,
              LEAST_TIMER + i, ((Screens *)screens)[i], recordings + i * RECORDINGS,
              booted[i]);
}

// The decoded instructions of a ROM.
extern "C" __global__ void atari2600_decode(const u8 *rom, u32 bytes, u64 *program) {
  u32 place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place < bytes) program[place] = decode_at(rom, bytes, place);
}

// Sizes in bytes, for those who allocate the memory.
extern "C" __global__ void atari2600_sizes(u32 *sizes) {
  sizes[0] = sizeof(Environment);
  sizes[1] = sizeof(Game);
  sizes[2] = sizeof(Outcome);
  sizes[3] = sizeof(Recording) * RECORDINGS;
  sizes[4] = sizeof(Booted) * TIMER_VALUES;
}
