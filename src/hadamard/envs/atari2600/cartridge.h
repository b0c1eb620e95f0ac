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

EVERYWHERE u8 cartridge_byte(const Console &console, const Game &game, u32 address) {
  if (game.cartridge == CART_FE)  // the bank follows from the subroutine's address: bit 13
    return game.rom[(address & 0xfff) + (address & 0x2000 ? 0 : 0x1000)];
  u32 slice = console.slices >> ((address >> 10 & 3) * 8) & 0xff;
  return game.rom[slice << 10 | (address & 0x3ff)];
}

// Any access to a hot spot, at the top of the address space, switches banks.
EVERYWHERE void touch_cartridge(Console &console, const Game &game, u32 address) {
  u32 spot = address & 0xfff;
  if (spot < 0xfe0) return;
  if (game.cartridge == CART_F8) {
    if (spot == 0xff8 || spot == 0xff9) console.slices = bank_of_4k(spot - 0xff8);
  } else if (game.cartridge == CART_F6) {
    if (spot >= 0xff6 && spot <= 0xff9) console.slices = bank_of_4k(spot - 0xff6);
  } else if (game.cartridge == CART_E0) {
    if (spot <= 0xff7) {  // eight spots for each of the three slices that can change
      u32 shift = (spot - 0xfe0) / 8 * 8;
      console.slices = (console.slices & ~(0xffu << shift)) | (spot & 7) << shift;
    }
  }
}

}  // namespace atari2600
