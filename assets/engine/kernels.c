// The arithmetic of a packed pass, in float32. Pointers lie in the memory that the page gives; nothing is allocated here. No operation is
// fused and every sum has one order, whoever shares the batch: all machines compute the same numbers. `sh build.sh` makes kernels.wasm.
#include "panel.h"

IN float sum(V a) {
  return (wasm_f32x4_extract_lane(a, 0) + wasm_f32x4_extract_lane(a, 1)) + (wasm_f32x4_extract_lane(a, 2) + wasm_f32x4_extract_lane(a, 3));
}

IN V expv(V x) {  // 2^n times a polynomial of what is left
  x = wasm_f32x4_max(wasm_f32x4_min(x, S(88.0f)), S(-87.0f));
  V n = wasm_f32x4_nearest(wasm_f32x4_mul(x, S(1.44269504f)));
  V r = wasm_f32x4_sub(wasm_f32x4_sub(x, wasm_f32x4_mul(n, S(0.693359375f))), wasm_f32x4_mul(n, S(-2.12194440e-4f)));
  V p = S(1.0f / 5040);
  p = MADD(p, r, S(1.0f / 720)); p = MADD(p, r, S(1.0f / 120)); p = MADD(p, r, S(1.0f / 24));
  p = MADD(p, r, S(1.0f / 6)); p = MADD(p, r, S(0.5f)); p = MADD(p, r, S(1.0f)); p = MADD(p, r, S(1.0f));
  return wasm_f32x4_mul(p, wasm_i32x4_shl(wasm_i32x4_add(wasm_i32x4_trunc_sat_f32x4(n), wasm_i32x4_splat(127)), 23));
}

// y[m, n] = x[m, k] w + b. w: panels [n / 8][k][8], the last one filled up with zeros. b: as long as the panels, or null. Panel by panel: a
// single row is as fast as memory is read in one stream; several panels at a time were slower.
API void linear(float *y, const float *x, const float *w, const float *b, int m, int k, int n) {
  for (int j = 0; j < n; j += 8, w += k * 8) {
    V b0 = b ? LD(b + j) : S(0), b1 = b ? LD(b + j + 4) : S(0);
    panel(y + j, x, w, b0, b1, m, k, n, n - j);
  }
}

// b: GPT-2's norm takes the mean away and adds b; Llama's does neither, and b is null.
API void norm(float *y, const float *x, const float *g, const float *b, int m, int k, float eps) {
  for (int i = 0; i < m; i++, x += k, y += k) {
    V s = S(0), q = S(0);
    if (b) for (int p = 0; p < k; p += 4) s = wasm_f32x4_add(s, LD(x + p));
    V mean = S(sum(s) / k);
    for (int p = 0; p < k; p += 4) { V d = wasm_f32x4_sub(LD(x + p), mean); q = MADD(d, d, q); }
    V scale = S(1.0f / __builtin_sqrtf(sum(q) / k + eps));
    for (int p = 0; p < k; p += 4) {
      V d = wasm_f32x4_mul(wasm_f32x4_mul(wasm_f32x4_sub(LD(x + p), mean), scale), LD(g + p));
      ST(y + p, b ? wasm_f32x4_add(d, LD(b + p)) : d);
    }
  }
}

// table: [position][d / 2] cosines, then as many sines
API void rope(float *x, const float *table, const int *positions, int n, int heads, int stride, int d) {
  for (int i = 0; i < n; i++) {
    const float *c = table + positions[i] * d, *s = c + d / 2;
    for (int h = 0; h < heads; h++) {
      float *a = x + i * stride + h * d, *b = a + d / 2;
      for (int p = 0; p < d / 2; p += 4) {
        V u = LD(a + p), v = LD(b + p), cs = LD(c + p), sn = LD(s + p);
        ST(a + p, wasm_f32x4_sub(wasm_f32x4_mul(u, cs), wasm_f32x4_mul(v, sn)));
        ST(b + p, wasm_f32x4_add(wasm_f32x4_mul(v, cs), wasm_f32x4_mul(u, sn)));
      }
    }
  }
}

// Rows of x (stride apart) to their slots of a layer's pool; a pad has slot -1.
API void store(float *pool, const float *x, const int *slots, int n, int stride, int size) {
  for (int i = 0; i < n; i++) {
    if (slots[i] < 0) continue;
    for (int p = 0; p < size; p += 4) ST(pool + slots[i] * size + p, LD(x + i * stride + p));
  }
}

// One request's queries over a list of keys, wherever their slots lie: `count` rows, the first of which sees `seen` keys beside its own, the
// next one key more. scores: room for a row.
API void attend(float *out, const float *q, const float *keys, const float *values, const int *slots, int count, int seen, int heads,
                int kv_heads, int d, int stride, float *scores) {
  int size = kv_heads * d, group = heads / kv_heads;
  float scale = 1.0f / __builtin_sqrtf(d);
  for (int i = 0; i < count; i++, q += stride, out += heads * d) {
    int length = seen + i + 1, rounded = (length + 3) & ~3;
    for (int h = 0; h < heads; h++) {
      const float *qh = q + h * d, *k = keys + h / group * d, *v = values + h / group * d;
      float best = -1e30f;
      for (int t = 0; t < length; t++) {
        const float *kt = k + slots[t] * size;
        V a = S(0);
        for (int p = 0; p < d; p += 4) a = MADD(LD(qh + p), LD(kt + p), a);
        scores[t] = sum(a) * scale;
        if (scores[t] > best) best = scores[t];
      }
      for (int t = length; t < rounded; t++) scores[t] = -1e30f;
      V z = S(0);
      for (int t = 0; t < rounded; t += 4) { V e = expv(wasm_f32x4_sub(LD(scores + t), S(best))); ST(scores + t, e); z = wasm_f32x4_add(z, e); }
      float one = 1.0f / sum(z);
      float *o = out + h * d;
      for (int p = 0; p < d; p += 4) {
        V a = S(0);
        for (int t = 0; t < length; t++) a = MADD(S(scores[t]), LD(v + slots[t] * size + p), a);
        ST(o + p, wasm_f32x4_mul(a, S(one)));
      }
    }
  }
}

IN V sigmoid(V x) { return wasm_f32x4_div(S(1), wasm_f32x4_add(S(1), expv(wasm_f32x4_neg(x)))); }

// gate and up stand side by side in each row
API void silu(float *y, const float *x, int m, int k) {
  for (int i = 0; i < m; i++, x += 2 * k, y += k)
    for (int p = 0; p < k; p += 4) { V g = LD(x + p); ST(y + p, wasm_f32x4_mul(wasm_f32x4_mul(g, sigmoid(g)), LD(x + k + p))); }
}

API void gelu(float *x, int n) {  // x sigmoid(2 √(2 / π) (x + 0.044715 x³)), which is GPT-2's, by tanh
  for (int i = 0; i < n; i += 4) {
    V v = LD(x + i), cube = wasm_f32x4_mul(wasm_f32x4_mul(v, v), v);
    V z = wasm_f32x4_mul(S(1.5957691216f), MADD(S(0.044715f), cube, v));
    ST(x + i, wasm_f32x4_mul(v, sigmoid(z)));
  }
}

API void add(float *x, const float *y, int n) {
  for (int i = 0; i < n; i += 4) ST(x + i, wasm_f32x4_add(LD(x + i), LD(y + i)));
}

API void bias(float *x, const float *b, int m, int n) {
  for (int i = 0; i < m; i++, x += n)
    for (int p = 0; p < n; p += 4) ST(x + p, wasm_f32x4_add(LD(x + p), LD(b + p)));
}
