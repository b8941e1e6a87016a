// Products with quantized weights, which stay as they are: a panel of eight outputs is one block of 32 inputs after the other, packed by
// core/torch_engine/models/packed.py. The weight of a block, q d or q d + m, is the very float32 that its format means, and every sum runs over
// the inputs in their order, for one row as for many.
//
//   q4_1  8 float16 d, 8 float16 m, 128 bytes: byte 16c + 8i + o has input 2c + i (low half) and 16 + 2c + i (high half) of output o
//   q8_0  8 float16 d, 256 numbers of 8 bits: number 8p + o is input p of output o
#include "panel.h"
typedef unsigned char byte;

// Four bytes as four numbers. By a swizzle with constants: instructions that extend took nearly three times as long.
#define Z ((char)0x80)
#define PART(q, j) wasm_f32x4_convert_i32x4(wasm_i8x16_swizzle(q, wasm_i8x16_const( \
    4 * (j), Z, Z, Z, 4 * (j) + 1, Z, Z, Z, 4 * (j) + 2, Z, Z, Z, 4 * (j) + 3, Z, Z, Z)))
#define SIGNED(q, j) wasm_f32x4_convert_i32x4(wasm_i32x4_shr(wasm_i8x16_swizzle(q, wasm_i8x16_const( \
    Z, Z, Z, 4 * (j), Z, Z, Z, 4 * (j) + 1, Z, Z, Z, 4 * (j) + 2, Z, Z, Z, 4 * (j) + 3)), 24))

// Four float16, finite: a multiplication puts the exponent right, which is exact.
IN V halves(const void *p) {
  V h = wasm_u32x4_load16x4(p), sign = wasm_i32x4_shl(wasm_v128_and(h, wasm_i32x4_splat(0x8000)), 16);
  V size = wasm_i32x4_shl(wasm_v128_and(h, wasm_i32x4_splat(0x7fff)), 13);
  return wasm_v128_or(wasm_f32x4_mul(size, wasm_i32x4_splat(0x77800000)), sign);  // 2^112
}

// What is done with each input's eight weights, w0 and w1, in turn: the panel in float32, or R rows times it. p: the input.
#define WIDEN(p, w0, w1) { ST(to + 8 * (p), w0); ST(to + 8 * (p) + 4, w1); }
#define ADD(p, w0, w1)                                                                               \
  {                                                                                                  \
    V u = w0, v = w1;                                                                                \
    for (int r = 0; r < R; r++) {                                                                    \
      V s = wasm_v128_load32_splat(x + r * k + (p));                                                 \
      a[r] = MADD(s, u, a[r]);                                                                       \
      c[r] = MADD(s, v, c[r]);                                                                       \
    }                                                                                                \
  }

#define Q4_1(DO)                                                                                     \
  for (int b = 0; b < k; b += 32, w += 160) {                                                        \
    V d0 = halves(w), d1 = halves(w + 8), m0 = halves(w + 16), m1 = halves(w + 24);                  \
    for (int high = 0; high < 2; high++)                                                             \
      for (int j = 0; j < 16; j += 2) {                                                              \
        V q = LD(w + 32 + 8 * j);                                                                    \
        q = wasm_v128_and(high ? wasm_u16x8_shr(q, 4) : q, wasm_i8x16_splat(15));                    \
        DO(b + 16 * high + j, MADD(PART(q, 0), d0, m0), MADD(PART(q, 1), d1, m1))                    \
        DO(b + 16 * high + j + 1, MADD(PART(q, 2), d0, m0), MADD(PART(q, 3), d1, m1))                \
      }                                                                                              \
  }

#define Q8_0(DO)                                                                                     \
  for (int b = 0; b < k; b += 32, w += 272) {                                                        \
    V d0 = halves(w), d1 = halves(w + 8);                                                            \
    for (int j = 0; j < 32; j += 2) {                                                                \
      V q = LD(w + 16 + 8 * j);                                                                      \
      DO(b + j, wasm_f32x4_mul(SIGNED(q, 0), d0), wasm_f32x4_mul(SIGNED(q, 1), d1))                  \
      DO(b + j + 1, wasm_f32x4_mul(SIGNED(q, 2), d0), wasm_f32x4_mul(SIGNED(q, 3), d1))              \
    }                                                                                                \
  }

// y[m, n] = x[m, k] w, n a multiple of 8 and k of 32. For one or two rows the weights go no further than registers; for more a panel is
// widened into room, once for all of them.
#define LINEAR(name, FORMAT, size)                                                                   \
  IN void few_##name(const int R, float *y, const float *x, const byte *w, int k, int n) {           \
    V a[2], c[2];                                                                                    \
    for (int r = 0; r < R; r++) a[r] = c[r] = S(0);                                                  \
    FORMAT(ADD)                                                                                      \
    for (int r = 0; r < R; r++, y += n) { ST(y, a[r]); ST(y + 4, c[r]); }                            \
  }                                                                                                  \
  IN void widen_##name(float *to, const byte *w, int k) { FORMAT(WIDEN) }                            \
  API void linear_##name(float *y, const float *x, const byte *w, float *room, int m, int k, int n) { \
    for (int j = 0; j < n; j += 8, w += k / 32 * size) {                                             \
      if (m == 1) few_##name(1, y + j, x, w, k, n);                                                  \
      else if (m == 2) few_##name(2, y + j, x, w, k, n);                                             \
      else { widen_##name(room, w, k); panel(y + j, x, room, S(0), S(0), m, k, n, 8); }              \
    }                                                                                                \
  }
LINEAR(q4_1, Q4_1, 160)
LINEAR(q8_0, Q8_0, 272)

// Rows of the head's panels, for the tokens of a pass
API void embed_q8_0(float *x, const byte *head, const int *ids, int count, int k) {
  for (int i = 0; i < count; i++, x += k) {
    const byte *w = head + (ids[i] >> 3) * (k / 32 * 272);
    int o = ids[i] & 7;
    for (int b = 0; b < k; b += 32, w += 272) {
      float d[8];
      ST(d, halves(w)); ST(d + 4, halves(w + 8));
      for (int p = 0; p < 32; p++) x[b + p] = (float)((const signed char *)w)[16 + 8 * p + o] * d[o];
    }
  }
}
