// Products with quantized weights, which stay as they are: a panel of eight outputs is one block of 32 inputs after the other, packed by
// core/torch_engine/models/gguf_for_tab.py. The weight of a block, such as q d or q d + m, is the very float32 that its format means, and every sum
// runs over the inputs in their order, for one row as for many. A block is that of the GGUF file with eight outputs side by side for each number:
//
//   f16   8 float16
//   q8_0  8 float16 d, 256 numbers of 8 bits: number 8p + o is input p of output o
//   q4_1  8 float16 d, 8 float16 m, 128 bytes: byte 16c + 8i + o has input 2c + i (low half) and 16 + 2c + i (high half) of output o
//   q4_0  the same without m, which is -8d
//   q5_1  as q4_1, but between m and these bytes 32 others: bit p % 8 of byte 8 (p / 8) + o is 16 times as much of input p of output o
//   q5_0  the same without m, which is -16d
//   q4_k  256 inputs: 8 float16 d, 8 float16 n, 12 × 8 bytes of scales and minima, six bits of each for 32 inputs, 128 × 8 bytes: four bits of
//         32 inputs (low half) and of the next 32 (high half); the weight is q (d scale) - n minimum
//   q5_k  the same with 32 × 8 bytes before the last ones: bit g of byte 8j + o is 16 times as much of input 32g + j of output o
//   q6_k  256 inputs: 128 × 8 bytes with four bits each, 64 × 8 with two more, 16 × 8 scales of 8 bits, 8 float16 d; the weight is (d scale) q
#include "panel.h"
typedef unsigned char byte;

// Four bytes as four numbers. By a swizzle with constants: instructions that extend took nearly three times as long.
#define Z ((char)0x80)
#define PART(q, j) wasm_f32x4_convert_i32x4(wasm_i8x16_swizzle(q, wasm_i8x16_const( \
    4 * (j), Z, Z, Z, 4 * (j) + 1, Z, Z, Z, 4 * (j) + 2, Z, Z, Z, 4 * (j) + 3, Z, Z, Z)))
// Signed ones are 2^24 times as large, and their scales so much smaller, which changes no bit of a weight.
#define SIGNED(q, j) wasm_f32x4_convert_i32x4(wasm_i8x16_swizzle(q, wasm_i8x16_const( \
    Z, Z, Z, 4 * (j), Z, Z, Z, 4 * (j) + 1, Z, Z, Z, 4 * (j) + 2, Z, Z, Z, 4 * (j) + 3)))
#define SMALL(d) wasm_f32x4_mul(d, S(0x1p-24f))

// Four float16, finite: a multiplication puts the exponent right, which is exact.
IN V halves(const void *p) {
  V h = wasm_u32x4_load16x4(p);
  PIN(h);
  V sign = wasm_i32x4_shl(wasm_v128_and(h, wasm_i32x4_splat(0x8000)), 16);
  V size = wasm_i32x4_shl(wasm_v128_and(h, wasm_i32x4_splat(0x7fff)), 13);
  return wasm_v128_or(wasm_f32x4_mul(size, wasm_i32x4_splat(0x77800000)), sign);  // 2^112
}

// What is done with each input's eight weights, w0 and w1, in turn: the panel in float32, or R rows times it. p: the input in its block.
#define WIDEN(p, w0, w1) { ST(to + 8 * (p), w0); ST(to + 8 * (p) + 4, w1); }
#define ADD(p, w0, w1)                                                                               \
  {                                                                                                  \
    V u = w0, v = w1;                                                                                \
    for (int r = 0; r < R; r++) {                                                                    \
      V s = wasm_v128_load32_splat((r ? z : x) + (p));                                               \
      a[r] = MADD(s, u, a[r]);                                                                       \
      c[r] = MADD(s, v, c[r]);                                                                       \
      PIN(a[r]);                                                                                     \
      PIN(c[r]);                                                                                     \
    }                                                                                                \
  }

// Four bits of 32 inputs: of 16 in the low halves of bytes, of 16 in the high ones. MORE: what is made of q, the numbers of inputs p and p + 1
#define HALVES(DO, q_, d0, d1, m0, m1, MORE)                                                         \
  UNROLL for (int high = 0; high < 2; high++)                                                        \
    UNROLL for (int j = 0; j < 16; j += 2) {                                                                \
      V q = LD(q_ + 8 * j);                                                                          \
      q = wasm_v128_and(high ? wasm_u16x8_shr(q, 4) : q, wasm_i8x16_splat(15));                      \
      q = MORE(q, q_, 16 * high + j);                                                                \
      DO(16 * high + j, MADD(PART(q, 0), d0, m0), MADD(PART(q, 1), d1, m1))                      \
      DO(16 * high + j + 1, MADD(PART(q, 2), d0, m0), MADD(PART(q, 3), d1, m1))                  \
    }

#define FOUR(q, q_, p) q
// The fifth bits of 32 inputs stand before the others.
#define EACH(bit) (0x0101010101010101u << (bit))
#define FIVE(q, q_, p) wasm_v128_or(q, wasm_v128_and(wasm_i8x16_splat(16), wasm_i8x16_ne(wasm_i8x16_splat(0), \
    wasm_v128_and(wasm_v128_load64_splat(q_ - 32 + (p) / 8 * 8), wasm_i64x2_make(EACH((p) % 8), EACH((p) % 8 + 1))))))

#define Q4_1(DO)                                                                                     \
  {                                                                                                  \
    V d0 = halves(w), d1 = halves(w + 8), m0 = halves(w + 16), m1 = halves(w + 24);                  \
    HALVES(DO, w + 32, d0, d1, m0, m1, FOUR)                                                         \
  }

#define Q5_1(DO)                                                                                     \
  {                                                                                                  \
    V d0 = halves(w), d1 = halves(w + 8), m0 = halves(w + 16), m1 = halves(w + 24);                  \
    HALVES(DO, w + 64, d0, d1, m0, m1, FIVE)                                                         \
  }

#define Q4_0(DO)                                                                                     \
  {                                                                                                  \
    V d0 = halves(w), d1 = halves(w + 8), m0 = wasm_f32x4_mul(d0, S(-8)), m1 = wasm_f32x4_mul(d1, S(-8)); \
    HALVES(DO, w + 16, d0, d1, m0, m1, FOUR)                                                         \
  }

#define Q5_0(DO)                                                                                     \
  {                                                                                                  \
    V d0 = halves(w), d1 = halves(w + 8), m0 = wasm_f32x4_mul(d0, S(-16)), m1 = wasm_f32x4_mul(d1, S(-16)); \
    HALVES(DO, w + 48, d0, d1, m0, m1, FIVE)                                                         \
  }

#define Q8_0(DO)                                                                                     \
  {                                                                                                  \
    V d0 = SMALL(halves(w)), d1 = SMALL(halves(w + 8));                                              \
    UNROLL for (int j = 0; j < 32; j += 2) {                                                         \
      V q = LD(w + 16 + 8 * j);                                                                      \
      DO(j, wasm_f32x4_mul(SIGNED(q, 0), d0), wasm_f32x4_mul(SIGNED(q, 1), d1))                  \
      DO(j + 1, wasm_f32x4_mul(SIGNED(q, 2), d0), wasm_f32x4_mul(SIGNED(q, 3), d1))              \
    }                                                                                                \
  }

#define F16(DO) UNROLL for (int p = 0; p < 4; p++) DO(p, halves(w + 16 * p), halves(w + 16 * p + 8))

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

// q_: where the last bytes begin. MORE: what is made of q, the numbers of the g-th 32 inputs' j-th and next
#define BY_32(DO, q_, MORE)                                                                          \
  {                                                                                                  \
    V d0 = halves(w), d1 = halves(w + 8), n0 = wasm_f32x4_neg(halves(w + 16)), n1 = wasm_f32x4_neg(halves(w + 24));\
    for (int g = 0; g < 8; g++) {                                                                    \
      V scale, minimum;                                                                              \
      six_bits(w + 32, g, &scale, &minimum);                                                         \
      V s0 = wasm_f32x4_mul(d0, FIRST(scale)), s1 = wasm_f32x4_mul(d1, LAST(scale));                 \
      V m0 = wasm_f32x4_mul(n0, FIRST(minimum)), m1 = wasm_f32x4_mul(n1, LAST(minimum));             \
      for (int j = 0; j < 32; j += 2) {                                                              \
        V q = LD(q_ + 256 * (g >> 1) + 8 * j);                                                       \
        q = wasm_v128_and(g & 1 ? wasm_u16x8_shr(q, 4) : q, wasm_i8x16_splat(15));                   \
        q = MORE(q, w + 128 + 8 * j, g);                                                             \
        DO(32 * g + j, MADD(PART(q, 0), s0, m0), MADD(PART(q, 1), s1, m1))                       \
        DO(32 * g + j + 1, MADD(PART(q, 2), s0, m0), MADD(PART(q, 3), s1, m1))                   \
      }                                                                                              \
    }                                                                                                \
  }

#define Q4_K(DO) BY_32(DO, w + 128, FOUR)
#define FIFTH(q, five, g) wasm_v128_or(q, wasm_i16x8_shl(wasm_v128_and(wasm_u16x8_shr(LD(five), g), wasm_i8x16_splat(1)), 4))
#define Q5_K(DO) BY_32(DO, w + 384, FIFTH)

#define Q6_K(DO)                                                                                     \
  {                                                                                                  \
    V d0 = SMALL(halves(w + 1664)), d1 = SMALL(halves(w + 1672));                                    \
    for (int g = 0; g < 16; g++) {                                                                   \
      const byte *four = w + 512 * (g >> 3) + 256 * (g >> 1 & 1), *two = w + 1024 + 256 * (g >> 3);  \
      V scale = wasm_i16x8_load8x8(w + 1536 + 8 * g);                                                \
      V s0 = wasm_f32x4_mul(d0, FIRST(scale)), s1 = wasm_f32x4_mul(d1, LAST(scale));                 \
      for (int j = 16 * (g & 1); j < 16 * (g & 1) + 16; j += 2) {                                    \
        V q = wasm_v128_and(wasm_u16x8_shr(LD(four + 8 * j), g & 4), wasm_i8x16_splat(15));          \
        V more = wasm_v128_and(wasm_u16x8_shr(LD(two + 8 * j), g & 6), wasm_i8x16_splat(3));         \
        q = wasm_i8x16_sub(wasm_v128_or(q, wasm_i16x8_shl(more, 4)), wasm_i8x16_splat(32));          \
        int p = 16 * g + (j & 15);                                                               \
        DO(p, wasm_f32x4_mul(SIGNED(q, 0), s0), wasm_f32x4_mul(SIGNED(q, 1), s1))                    \
        DO(p + 1, wasm_f32x4_mul(SIGNED(q, 2), s0), wasm_f32x4_mul(SIGNED(q, 3), s1))                \
      }                                                                                              \
    }                                                                                                \
  }

// Inputs that are widened at once, of two panels: about 18 kB, which stay near
#define TOGETHER(k, inputs) (((k) / inputs + ((k) + 287) / 288 - 1) / (((k) + 287) / 288) * inputs)
#define MOST 512

// y[m, n] = x[m, k] w, n a multiple of 8 and k of a block's inputs. For one or two rows the weights go no further than registers; for more they
// are widened once for all rows. embed: the rows of some outputs, for the tokens of a pass.
#define LINEAR(name, FORMAT, inputs, size)                                                           \
  IN void few_##name(const int R, float *y, const float *x, const byte *w, int k, int n) {           \
    V a[2], c[2];                                                                                    \
    const float *z = x + k;                                                                          \
    for (int r = 0; r < R; r++) a[r] = c[r] = S(0);                                                  \
    for (int b = 0; b < k; b += inputs, w += size, x += inputs, z += inputs) {                       \
      PIN(w); PIN(x);                                                                                \
      if (R > 1) PIN(z);                                                                             \
      FORMAT(ADD)                                                                                    \
    }                                                                                                \
    for (int r = 0; r < R; r++, y += n) { ST(y, a[r]); ST(y + 4, c[r]); }                            \
  }                                                                                                  \
  static void widen_##name(float *to, const byte *w, int k) {                                        \
    for (int b = 0; b < k; b += inputs, w += size, to += 8 * inputs) {                               \
      PIN(w); PIN(to);                                                                               \
      FORMAT(WIDEN)                                                                                  \
    }                                                                                                \
  }                                                                                                  \
  API void linear_##name(int part, int parts, float *y, const float *x, const byte *w, int m, int k, int n) { \
    int panel = k / inputs * size;                                                                   \
    if (m == 1) for (MINE(j, n / 8, 8)) few_##name(1, y + j, x, w + j / 8 * panel, k, n);            \
    if (m == 2) for (MINE(j, n / 8, 8)) few_##name(2, y + j, x, w + j / 8 * panel, k, n);            \
    if (m <= 2) return;                                                                              \
    float room[2][8 * MOST];                                                                         \
    int together = TOGETHER(k, inputs);                                                              \
    for (MINE(j, (n + 15) / 16, 16))                                                                 \
      for (int b = 0; b < k; b += together) {                                                        \
        const byte *at = w + j / 8 * panel + b / inputs * size;                                      \
        int some = k - b < together ? k - b : together, two = j + 8 < n;                             \
        widen_##name(room[0], at, some);                                                             \
        if (two) widen_##name(room[1], at + panel, some);                                            \
        tiles(y + j, b ? y + j : zeros, b ? n : 0, x + b, room[0], room[two], m, some, k, n, two ? 16 : 8); \
      }                                                                                              \
  }                                                                                                  \
  API void embed_##name(int part, int parts, float *x, const byte *w, const int *ids, int count, int k) { \
    float room[8 * MOST];                                                                        \
    for (MINE(i, count, 1))                                                                          \
      for (int b = 0; b < k; b += MOST) {                                                        \
        int some = k - b < MOST ? k - b : MOST;                                              \
        widen_##name(room, w + ((ids[i] >> 3) * (k / inputs) + b / inputs) * size, some);            \
        for (int p = 0; p < some; p++) x[i * k + b + p] = room[8 * p + (ids[i] & 7)];                \
      }                                                                                              \
  }
LINEAR(f16, F16, 4, 64)
LINEAR(q4_0, Q4_0, 32, 144)
LINEAR(q4_1, Q4_1, 32, 160)
LINEAR(q5_0, Q5_0, 32, 176)
LINEAR(q5_1, Q5_1, 32, 192)
LINEAR(q8_0, Q8_0, 32, 272)
LINEAR(q4_k, Q4_K, 256, 1152)
LINEAR(q5_k, Q5_K, 256, 1408)
LINEAR(q6_k, Q6_K, 256, 1680)
