// Products with quantized weights, which stay as they are: a panel of eight outputs is one block of 32 inputs after the other, packed by
// core/torch_engine/models/packed.py. The weight of a block, such as q d or q d + m, is the very float32 that its format means, and every sum
// runs over the inputs in their order, for one row as for many. A block is that of the GGUF file with eight outputs side by side for each number:
//
//   f16   8 float16
//   q8_0  8 float16 d, 256 numbers of 8 bits: number 8p + o is input p of output o
//   q4_1  8 float16 d, 8 float16 m, 128 bytes: byte 16c + 8i + o has input 2c + i (low half) and 16 + 2c + i (high half) of output o
//   q4_0  the same without m, which is -8d
//   q4_k  256 inputs: 8 float16 d, 8 float16 n, 12 × 8 bytes of scales and minima, six bits of each for 32 inputs, 128 × 8 bytes: four bits of
//         32 inputs (low half) and of the next 32 (high half); the weight is q (d scale) - n minimum
//   q6_k  256 inputs: 128 × 8 bytes with four bits each, 64 × 8 with two more, 16 × 8 scales of 8 bits, 8 float16 d; the weight is (d scale) q
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

// Four bits of 32 inputs: of 16 in the low halves of bytes, of 16 in the high ones
#define HALVES(DO, q_, d0, d1, m0, m1)                                                               \
  for (int high = 0; high < 2; high++)                                                               \
    for (int j = 0; j < 16; j += 2) {                                                                \
      V q = LD(q_ + 8 * j);                                                                          \
      q = wasm_v128_and(high ? wasm_u16x8_shr(q, 4) : q, wasm_i8x16_splat(15));                      \
      DO(b + 16 * high + j, MADD(PART(q, 0), d0, m0), MADD(PART(q, 1), d1, m1))                      \
      DO(b + 16 * high + j + 1, MADD(PART(q, 2), d0, m0), MADD(PART(q, 3), d1, m1))                  \
    }

#define Q4_1(DO)                                                                                     \
  for (int b = 0; b < k; b += 32, w += 160) {                                                        \
    V d0 = halves(w), d1 = halves(w + 8), m0 = halves(w + 16), m1 = halves(w + 24);                  \
    HALVES(DO, w + 32, d0, d1, m0, m1)                                                               \
  }

#define Q4_0(DO)                                                                                     \
  for (int b = 0; b < k; b += 32, w += 144) {                                                        \
    V d0 = halves(w), d1 = halves(w + 8), m0 = wasm_f32x4_mul(d0, S(-8)), m1 = wasm_f32x4_mul(d1, S(-8)); \
    HALVES(DO, w + 16, d0, d1, m0, m1)                                                               \
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

#define F16(DO)                                                                                      \
  for (int p = 0; p < k; p++, w += 16) DO(p, halves(w), halves(w + 8))

// Eight numbers of 16 bits as four and four float32
#define FIRST(q) wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(q))
#define LAST(q) wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(q))

// Scale and minimum of the s-th 32 inputs, for eight outputs
IN void six_bits(const byte *w, int s, V *scale, V *minimum) {
#define ROW(i) wasm_u16x8_load8x8(w + 8 * (i))
#define LOW(q, bits) wasm_v128_and(q, wasm_i16x8_splat(bits))
  if (s < 4) { *scale = LOW(ROW(s), 63); *minimum = LOW(ROW(s + 4), 63); return; }
  V both = ROW(s + 4);
  *scale = wasm_v128_or(LOW(both, 15), wasm_i16x8_shl(wasm_u16x8_shr(ROW(s - 4), 6), 4));
  *minimum = wasm_v128_or(wasm_u16x8_shr(both, 4), wasm_i16x8_shl(wasm_u16x8_shr(ROW(s), 6), 4));
}

#define Q4_K(DO)                                                                                     \
  for (int b = 0; b < k; b += 256, w += 1152) {                                                      \
    V d0 = halves(w), d1 = halves(w + 8), n0 = wasm_f32x4_neg(halves(w + 16)), n1 = wasm_f32x4_neg(halves(w + 24));\
    for (int g = 0; g < 8; g++) {                                                                    \
      V scale, minimum;                                                                              \
      six_bits(w + 32, g, &scale, &minimum);                                                         \
      V s0 = wasm_f32x4_mul(d0, FIRST(scale)), s1 = wasm_f32x4_mul(d1, LAST(scale));                 \
      V m0 = wasm_f32x4_mul(n0, FIRST(minimum)), m1 = wasm_f32x4_mul(n1, LAST(minimum));             \
      for (int j = 0; j < 32; j += 2) {                                                              \
        V q = LD(w + 128 + 256 * (g >> 1) + 8 * j);                                                  \
        q = wasm_v128_and(g & 1 ? wasm_u16x8_shr(q, 4) : q, wasm_i8x16_splat(15));                   \
        DO(b + 32 * g + j, MADD(PART(q, 0), s0, m0), MADD(PART(q, 1), s1, m1))                       \
        DO(b + 32 * g + j + 1, MADD(PART(q, 2), s0, m0), MADD(PART(q, 3), s1, m1))                   \
      }                                                                                              \
    }                                                                                                \
  }

#define Q6_K(DO)                                                                                     \
  for (int b = 0; b < k; b += 256, w += 1680) {                                                      \
    V d0 = halves(w + 1664), d1 = halves(w + 1672);                                                  \
    for (int g = 0; g < 16; g++) {                                                                   \
      const byte *four = w + 512 * (g >> 3) + 256 * (g >> 1 & 1), *two = w + 1024 + 256 * (g >> 3);  \
      V scale = wasm_i16x8_load8x8(w + 1536 + 8 * g);                                                \
      V s0 = wasm_f32x4_mul(d0, FIRST(scale)), s1 = wasm_f32x4_mul(d1, LAST(scale));                 \
      for (int j = 16 * (g & 1); j < 16 * (g & 1) + 16; j += 2) {                                    \
        V q = wasm_v128_and(wasm_u16x8_shr(LD(four + 8 * j), g & 4), wasm_i8x16_splat(15));          \
        V more = wasm_v128_and(wasm_u16x8_shr(LD(two + 8 * j), g & 6), wasm_i8x16_splat(3));         \
        q = wasm_i8x16_sub(wasm_v128_or(q, wasm_i16x8_shl(more, 4)), wasm_i8x16_splat(32));          \
        int p = b + 16 * g + (j & 15);                                                               \
        DO(p, wasm_f32x4_mul(SIGNED(q, 0), s0), wasm_f32x4_mul(SIGNED(q, 1), s1))                    \
        DO(p + 1, wasm_f32x4_mul(SIGNED(q, 2), s0), wasm_f32x4_mul(SIGNED(q, 3), s1))                \
      }                                                                                              \
    }                                                                                                \
  }

// y[m, n] = x[m, k] w, n a multiple of 8 and k of 32. For one or two rows the weights go no further than registers; for more a panel is
// widened into room, once for all of them.
// embed: the rows of some outputs, for the tokens of a pass.
#define LINEAR(name, FORMAT, inputs, size)                                                           \
  IN void few_##name(const int R, float *y, const float *x, const byte *w, int k, int n) {           \
    V a[2], c[2];                                                                                    \
    for (int r = 0; r < R; r++) a[r] = c[r] = S(0);                                                  \
    FORMAT(ADD)                                                                                      \
    for (int r = 0; r < R; r++, y += n) { ST(y, a[r]); ST(y + 4, c[r]); }                            \
  }                                                                                                  \
  IN void widen_##name(float *to, const byte *w, int k) { FORMAT(WIDEN) }                            \
  API void linear_##name(float *y, const float *x, const byte *w, float *room, int m, int k, int n) { \
    for (int j = 0; j < n; j += 8, w += k / inputs * size) {                                         \
      if (m == 1) few_##name(1, y + j, x, w, k, n);                                                  \
      else if (m == 2) few_##name(2, y + j, x, w, k, n);                                             \
      else { widen_##name(room, w, k); panel(y + j, x, room, S(0), S(0), m, k, n, 8); }              \
    }                                                                                                \
  }                                                                                                  \
  API void embed_##name(float *x, const byte *w, float *room, const int *ids, int count, int k) {    \
    for (int i = 0; i < count; i++, x += k) {                                                        \
      widen_##name(room, w + (ids[i] >> 3) * (k / inputs * size), k);                                \
      for (int p = 0; p < k; p++) x[p] = room[8 * p + (ids[i] & 7)];                                 \
    }                                                                                                \
  }
LINEAR(f16, F16, 1, 16)
LINEAR(q4_0, Q4_0, 32, 144)
LINEAR(q4_1, Q4_1, 32, 160)
LINEAR(q8_0, Q8_0, 32, 272)
LINEAR(q4_k, Q4_K, 256, 1152)
LINEAR(q6_k, Q6_K, 256, 1680)
