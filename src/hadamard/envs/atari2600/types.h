// Integer types, and the marks that let one source serve g++ and NVRTC (which has no headers).
// The parts of a frame are inlined into it; what calls for a frame is not, or the interpreter would
// be there many times.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define EVERYWHERE __host__ __device__ __forceinline__
#define OUTLINED static __host__ __device__ __noinline__
#else
#define EVERYWHERE inline
#define OUTLINED static
#endif

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

static_assert(sizeof(u8) == 1 && sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "");
