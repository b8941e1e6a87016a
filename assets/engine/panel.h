// Rows times a panel of eight columns, which all products are made of.
#include <wasm_simd128.h>
#define API __attribute__((visibility("default")))
#define IN static inline __attribute__((always_inline))
typedef v128_t V;

#define MADD(a, b, c) wasm_f32x4_add(c, wasm_f32x4_mul(a, b))
#define S(x) wasm_f32x4_splat(x)
#define LD(p) wasm_v128_load(p)
#define ST(p, v) wasm_v128_store(p, v)

IN void block(const int R, float *y, const float *x, const float *w, V b0, V b1, int k, int n, int columns) {
  V a[4], c[4];
  for (int r = 0; r < R; r++) a[r] = b0, c[r] = b1;
  for (int p = 0; p < k; p++, w += 8) {
    V w0 = LD(w), w1 = LD(w + 4);
    for (int r = 0; r < R; r++) {
      V v = wasm_v128_load32_splat(x + r * k + p);
      a[r] = MADD(v, w0, a[r]);
      c[r] = MADD(v, w1, c[r]);
    }
  }
  for (int r = 0; r < R; r++, y += n) {
    if (columns >= 8) { ST(y, a[r]); ST(y + 4, c[r]); continue; }
    float last[8];
    ST(last, a[r]); ST(last + 4, c[r]);
    for (int j = 0; j < columns; j++) y[j] = last[j];
  }
}

// m rows times one panel, four at a time
IN void panel(float *y, const float *x, const float *w, V b0, V b1, int m, int k, int n, int columns) {
  int i = 0;
  for (; i + 4 <= m; i += 4) block(4, y + i * n, x + i * k, w, b0, b1, k, n, columns);
  if (m - i == 3) block(3, y + i * n, x + i * k, w, b0, b1, k, n, columns);
  if (m - i == 2) block(2, y + i * n, x + i * k, w, b0, b1, k, n, columns);
  if (m - i == 1) block(1, y + i * n, x + i * k, w, b0, b1, k, n, columns);
}
