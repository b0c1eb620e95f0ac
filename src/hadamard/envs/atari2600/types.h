// Integer types, and the marks that let one source serve g++ and NVRTC (which has no headers).
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define EVERYWHERE __host__ __device__ __forceinline__
#else
#define EVERYWHERE inline
#endif

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

static_assert(sizeof(u8) == 1 && sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "");
