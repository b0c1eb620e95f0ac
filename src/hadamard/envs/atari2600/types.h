// Integer types, and the marks that let one source serve g++ and NVRTC (which has no headers).
// The parts of a frame are inlined into it; what calls for a frame is not, or the interpreter would
// be there many times.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define EVERYWHERE __host__ __device__ __forceinline__
#define OUTLINED static __host__ __device__ __noinline__
#define DEVICE_TABLE static __device__
#else
#define EVERYWHERE inline
#define OUTLINED static
#define DEVICE_TABLE static
#endif

// Threads of a warp that play one environment together: one on the host.
#ifndef LANES
#define LANES 1
#endif

// A pointer to what the threads of a block share, for which faster instructions exist.
#ifdef __CUDA_ARCH__
#define IS_SHARED(pointer) __builtin_assume(__isShared(pointer))
#else
#define IS_SHARED(pointer)
#endif

// Kept out of the way of what is usually done, so that this stays in the instruction cache.
#define RARELY(condition) __builtin_expect(!!(condition), 0)
#define USUALLY(condition) __builtin_expect(!!(condition), 1)

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

static_assert(sizeof(u8) == 1 && sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "");

namespace atari2600 {

// A load of what no kernel writes.
template <class Value> EVERYWHERE Value read_only(const Value *from) {
#ifdef __CUDA_ARCH__
  return __ldg(from);
#else
  return *from;
#endif
}

// The threads that play one environment. The first plays the processor, all draw the beam.
struct Lanes {
  i32 lane;  // of this thread
  u32 mask;  // of these threads in their warp

  EVERYWHERE bool is_first() const { return LANES == 1 || lane == 0; }

  // Wait for the other environments of the block, which then run the same instructions at about the
  // same time: the multiprocessor's memory for instructions is small.
  EVERYWHERE void meet() const {
#if defined(__CUDA_ARCH__) && !defined(ALONE)
    __syncthreads();
#endif
  }

  // What the others have written can be read afterwards.
  EVERYWHERE void sync() const {
#ifdef __CUDA_ARCH__
    if (LANES > 1) __syncwarp(mask);
#endif
  }

  // The bits that any of the threads has.
  EVERYWHERE u32 any(u32 bits) const {
#ifdef __CUDA_ARCH__
    for (i32 step = LANES / 2; step > 0; step /= 2) bits |= __shfl_xor_sync(mask, bits, step);
#endif
    return bits;
  }

  // Done by one of the threads, for all of them.
  template <class Action> EVERYWHERE void once(Action action) const {
    sync();
    if (is_first()) action();
    sync();
  }
};

// Copied by all threads together.
template <class Struct> EVERYWHERE void copy_words(const Lanes &lanes, Struct &to, const Struct &from) {
  static_assert(sizeof(Struct) % 4 == 0, "");
  lanes.sync();
  for (i32 i = lanes.lane; i < (i32)(sizeof(Struct) / 4); i += LANES)
    ((u32 *)&to)[i] = ((const u32 *)&from)[i];
  lanes.sync();
}

}  // namespace atari2600
