// Cartridges: which byte of the ROM the processor sees at an address, and how banks are switched.
#pragma once
#include "console.h"

namespace atari2600 {

// Four slices of 1 KiB that together are one bank of 4 KiB.
EVERYWHERE u32 bank_of_4k(u32 bank) { return 0x03020100u + bank * 0x04040404u; }

EVERYWHERE u32 slices_at_power_on(i32 cartridge) {
  switch (cartridge) {
    case CART_2K: return 0x01000100u;  // shown twice
    case CART_F8: return bank_of_4k(1);
    case CART_E0: return 0x07060504u;
    default: return bank_of_4k(0);
  }
}

// Where in the ROM the byte at an address is.
EVERYWHERE u32 place_in_rom(u32 slices, i32 cartridge, u32 address) {
  if (cartridge == CART_FE)  // the bank follows from the subroutine's address: bit 13
    return (address & 0xfff) + (address & 0x2000 ? 0 : 0x1000);
  return (slices >> (address >> 7 & 24) & 0xff) << 10 | (address & 0x3ff);
}

// Most cartridges show one bank at all addresses; that of 2 KiB is shown twice.
EVERYWHERE u32 window_of_bank(i32 cartridge) {
  switch (cartridge) {
    case CART_2K: return 0x7ff;
    case CART_4K: case CART_F8: case CART_F6: return 0xfff;
    default: return 0;
  }
}
EVERYWHERE u32 bank_start(u32 slices) { return (slices & 0xff) << 10; }

// Whether the instruction at an address lies in one slice and below the hot spots, so that its
// decoded form can be used.
EVERYWHERE bool is_plain_code(i32 cartridge, u32 address) {
  u32 within = cartridge == CART_E0 ? 0x3ff : 0xfff;
  return address & 0x1000 && (address & within) < within - 33;
}

// Any access to a hot spot, at the top of the address space, switches banks.
enum { FIRST_HOT_SPOT = 0xfe0 };

EVERYWHERE void touch_hot_spot(u32 &slices, i32 cartridge, u32 address) {
  u32 spot = address & 0xfff;
  if (spot < FIRST_HOT_SPOT) return;
  if (cartridge == CART_F8) {
    if (spot == 0xff8 || spot == 0xff9) slices = bank_of_4k(spot - 0xff8);
  } else if (cartridge == CART_F6) {
    if (spot >= 0xff6 && spot <= 0xff9) slices = bank_of_4k(spot - 0xff6);
  } else if (cartridge == CART_E0) {
    if (spot <= 0xff7) {  // eight spots for each of the three slices that can change
      u32 shift = (spot - 0xfe0) / 8 * 8;
      slices = (slices & ~(0xffu << shift)) | (spot & 7) << shift;
    }
  }
}

}  // namespace atari2600
