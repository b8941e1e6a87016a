// Tiles, which all products are made of: one or two rows times two panels of eight columns.
#include <wasm_simd128.h>
#define HIDDEN __attribute__((visibility("hidden")))
#define API __attribute__((visibility("default")))
#define IN static inline __attribute__((always_inline))
typedef v128_t V;

#define MADD(a, b, c) wasm_f32x4_add(c, wasm_f32x4_mul(a, b))
#define S(x) wasm_f32x4_splat(x)
#define LD(p) wasm_v128_load(p)
#define ST(p, v) wasm_v128_store(p, v)

// Keeps what is written in its order: clang and some browsers put all loads of a loop first, until there are no registers left. Of a pointer it
// also leaves the offsets in the loads.
#define PIN(v) asm volatile("" : "+r"(v))
#define UNROLL _Pragma("clang loop unroll(full)")

// Work is cut into parts, one thread each: this one's of so many things. No sum is cut.
#define MINE(i, count, step) int i = (count) * part / parts * (step), i##_end = (count) * (part + 1) / parts * (step); i < i##_end; i += (step)

// m rows of x, `row` numbers apart, times two panels of k inputs. Sums begin as `from` says, which is `apart` numbers further for each row; of
// the 16 columns the first `columns` are written.
HIDDEN void tiles(float *y, const float *from, int apart, const float *x, const float *w, const float *v, int m, int k, int row, int n,
                  int columns);
HIDDEN extern const float zeros[16];
