// The environments on the GPU: LANES threads of a warp play one environment's step.
#include "call.h"
#include "saved.h"

using namespace atari2600;

// Threads of a block at most.
#ifndef BLOCK
#define BLOCK 256
#endif
// Blocks that must fit a multiprocessor together: fewer registers for each thread.
#ifndef RESIDENT
#define RESIDENT 2
#endif

// Which environment this thread plays.
EVERYWHERE Lanes lanes_of(u32 thread) {
  i32 lane = (i32)(thread % LANES);
  u32 mask = LANES == 32 ? 0xffffffffu : ((1u << LANES % 32) - 1) << (thread % 32 - lane);
  return {lane, mask};
}

// One kernel for everything, since each would have the whole program in it.
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT) atari2600_play(const Call call) {
  extern __shared__ u32 shared_memory[];
  i32 slot = (i32)(blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES);
  if (slot >= call.count) return;
  Lanes lanes = lanes_of(threadIdx.x);
  Seat &seat = ((Seat *)shared_memory)[threadIdx.x / LANES];
  if (call.action == BOOT) {
    make_booted(lanes, seat.env.console, *call.game, LEAST_TIMER + slot,
                ((Screens *)call.screens)[slot], call.recordings + slot * RECORDINGS,
                call.booted[slot]);
    return;
  }
  i32 i = call.members[slot];
  copy_words(lanes, seat.env, call.envs[i]);
  act(call, {lanes, seat.env, seat.outcome, *call.game, call.settings, memory_of(call, i)}, i);
  copy_words(lanes, call.envs[i], seat.env);
  if (call.action == STEP) copy_words(lanes, call.outcomes[i], seat.outcome);
}

// Whether saved environments can be played.
extern "C" __global__ void
atari2600_check(const Environment *envs, const i32 *members, i32 count, const Game *game,
                const Recording *recordings, u8 *sound) {
  i32 slot = (i32)(blockIdx.x * blockDim.x + threadIdx.x);
  if (slot >= count) return;
  i32 i = members[slot];
  sound[i] = is_sound(envs[i], recordings + (u64)i * RECORDINGS, *game);
}

// The decoded instructions of a ROM.
extern "C" __global__ void atari2600_decode(const u8 *rom, u32 bytes, u64 *program) {
  u32 place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place < bytes) program[place] = decode_at(rom, bytes, place);
}

// Sizes in bytes, for those who allocate the memory.
extern "C" __global__ void atari2600_sizes(u32 *sizes) {
  if (threadIdx.x) return;
  sizes[0] = sizeof(Environment);
  sizes[1] = sizeof(Game);
  sizes[2] = sizeof(Outcome);
  sizes[3] = sizeof(Recording) * RECORDINGS;
  sizes[4] = sizeof(Booted) * TIMER_VALUES;
  sizes[5] = sizeof(Seat);
}
