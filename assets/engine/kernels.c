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

const float zeros[16] = {0};

IN void tile(const int R, float *y, const float *from, int apart, const float *x, const float *w, const float *v, int k, int row, int n,
             int columns) {
  V a[2][4];
  for (int r = 0; r < R; r++) for (int c = 0; c < 4; c++) a[r][c] = LD(from + r * apart + 4 * c);
  const float *z = x + row;
  for (int p = 0; p < k; p += 4, w += 32, v += 32, x += 4, z += 4) {
    PIN(w); PIN(v); PIN(x);
    if (R > 1) PIN(z);
    UNROLL for (int j = 0; j < 4; j++) {
      for (int r = 0; r < R; r++) for (int c = 0; c < 4; c++) PIN(a[r][c]);
      V q[4] = {LD(w + 8 * j), LD(w + 8 * j + 4), LD(v + 8 * j), LD(v + 8 * j + 4)};
      for (int r = 0; r < R; r++) {
        V s = wasm_v128_load32_splat((r ? z : x) + j);
        for (int c = 0; c < 4; c++) a[r][c] = MADD(s, q[c], a[r][c]);
      }
    }
  }
  for (int r = 0; r < R; r++, y += n) {
    if (columns >= 16) { UNROLL for (int c = 0; c < 4; c++) ST(y + 4 * c, a[r][c]); continue; }
    float last[16];
    UNROLL for (int c = 0; c < 4; c++) ST(last + 4 * c, a[r][c]);
    for (int j = 0; j < columns; j++) y[j] = last[j];
  }
}

void tiles(float *y, const float *from, int apart, const float *x, const float *w, const float *v, int m, int k, int row, int n, int columns) {
  for (; m > 1; m -= 2, x += 2 * row, y += 2 * n, from += 2 * apart) tile(2, y, from, apart, x, w, v, k, row, n, columns);
  if (m) tile(1, y, from, apart, x, w, v, k, row, n, columns);
}

// y[m, n] = x[m, k] w + b. w: panels [n / 8][k][8], the last one filled up with zeros. b: as long as the panels, or null.
API void linear(int part, int parts, float *y, const float *x, const float *w, const float *b, int m, int k, int n) {
  for (MINE(j, (n + 15) / 16, 16)) {
    const float *first = w + j * k;
    tiles(y + j, b ? b + j : zeros, 0, x, first, j + 8 < n ? first + 8 * k : first, m, k, k, n, n - j);
  }
}

// b: GPT-2's norm takes the mean away and adds b; Llama's does neither, and b is null.
API void norm(int part, int parts, float *to, const float *from, const float *g, const float *b, int m, int k, float eps) {
  for (MINE(i, m, 1)) {
    const float *x = from + i * k;
    float *y = to + i * k;
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
API void rope(int part, int parts, float *x, const float *table, const int *positions, int n, int heads, int stride, int d) {
  for (MINE(i, n, 1)) {
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
API void store(int part, int parts, float *pool, const float *x, const int *slots, int n, int stride, int size) {
  for (MINE(i, n, 1)) {
    if (slots[i] < 0) continue;
    for (int p = 0; p < size; p += 4) ST(pool + slots[i] * size + p, LD(x + i * stride + p));
  }
}

// The scores of four keys at once: their sums, each in the order of `sum`.
IN V four(const float *q, const float *k, const int *slots, int size, int d) {
  const float *k0 = k + slots[0] * size, *k1 = k + slots[1] * size, *k2 = k + slots[2] * size, *k3 = k + slots[3] * size;
  V a = S(0), b = S(0), c = S(0), e = S(0);
  for (int p = 0; p < d; p += 4) {
    V x = LD(q + p);
    a = MADD(x, LD(k0 + p), a); b = MADD(x, LD(k1 + p), b); c = MADD(x, LD(k2 + p), c); e = MADD(x, LD(k3 + p), e);
  }
#define MIX(x, y, i, j, k, l) wasm_i32x4_shuffle(x, y, i, j, k, l)
  V ab = wasm_f32x4_add(MIX(a, b, 0, 2, 4, 6), MIX(a, b, 1, 3, 5, 7)), ce = wasm_f32x4_add(MIX(c, e, 0, 2, 4, 6), MIX(c, e, 1, 3, 5, 7));
  return wasm_f32x4_add(MIX(ab, ce, 0, 2, 4, 6), MIX(ab, ce, 1, 3, 5, 7));
}

// Sixteen numbers of a head's output: `length` values, each by its weight
IN void mixed(const int C, float *to, const float *v, const int *slots, const float *weights, int length, int size, V one) {
  V a[4];
  for (int c = 0; c < C; c++) a[c] = S(0);
  for (int t = 0; t < length; t++) {
    const float *vt = v + slots[t] * size;
    V s = wasm_v128_load32_splat(weights + t);
    for (int c = 0; c < C; c++) a[c] = MADD(s, LD(vt + 4 * c), a[c]);
  }
  for (int c = 0; c < C; c++) ST(to + 4 * c, wasm_f32x4_mul(a[c], one));
}

// Queries over the keys that they see, wherever those lie, head by head. requests: of each its first row, its rows, the keys that the first of
// them sees beside its own, where its list of slots begins; the next row sees one key more. scores: room for `longest` of them, part by part.
API void attend(int part, int parts, float *out, const float *q, const float *keys, const float *values, const int *slots, const int *requests,
                int count, int heads, int kv_heads, int d, int stride, float *scores, int longest) {
  int size = kv_heads * d, group = heads / kv_heads;
  float scale = 1.0f / __builtin_sqrtf(d);
  scores += part * longest;
  for (MINE(h, heads, 1))
    for (int r = 0; r < count; r++) {
      const int *told = requests + 4 * r, *slot = slots + told[3];
      const float *k = keys + h / group * d, *v = values + h / group * d;
      for (int i = 0; i < told[1]; i++) {
        const float *qh = q + (told[0] + i) * stride + h * d;
        float *o = out + (told[0] + i) * heads * d + h * d;
        int length = told[2] + i + 1, rounded = (length + 3) & ~3, t = 0;
        V best = S(-1e30f), z = S(0);
        for (; t + 4 <= length; t += 4) {
          V score = wasm_f32x4_mul(four(qh, k, slot + t, size, d), S(scale));
          ST(scores + t, score);
          best = wasm_f32x4_max(best, score);
        }
        if (t < length) {
          int last[4];
          for (int j = 0; j < 4; j++) last[j] = slot[t + j < length ? t + j : length - 1];
          ST(scores + t, wasm_f32x4_mul(four(qh, k, last, size, d), S(scale)));
          for (int j = length; j < rounded; j++) scores[j] = -1e30f;
          best = wasm_f32x4_max(best, LD(scores + t));
        }
        best = wasm_f32x4_max(best, MIX(best, best, 2, 3, 0, 1));
        best = wasm_f32x4_max(best, MIX(best, best, 1, 0, 3, 2));
        for (t = 0; t < rounded; t += 4) { V e = expv(wasm_f32x4_sub(LD(scores + t), best)); ST(scores + t, e); z = wasm_f32x4_add(z, e); }
        V one = S(1.0f / sum(z));
        int p = 0;
        for (; p + 16 <= d; p += 16) mixed(4, o + p, v + p, slot, scores, length, size, one);
        for (; p < d; p += 4) mixed(1, o + p, v + p, slot, scores, length, size, one);
      }
    }
}

IN V sigmoid(V x) { return wasm_f32x4_div(S(1), wasm_f32x4_add(S(1), expv(wasm_f32x4_neg(x)))); }

// gate and up stand side by side in each row
API void silu(int part, int parts, float *y, const float *x, int m, int k) {
  for (MINE(i, m, 1))
    for (int p = 0; p < k; p += 4) {
      V g = LD(x + 2 * k * i + p);
      ST(y + k * i + p, wasm_f32x4_mul(wasm_f32x4_mul(g, sigmoid(g)), LD(x + 2 * k * i + k + p)));
    }
}

API void gelu(int part, int parts, float *x, int n) {  // x sigmoid(2 √(2 / π) (x + 0.044715 x³)), which is GPT-2's, by tanh
  for (MINE(i, n / 4, 4)) {
    V v = LD(x + i), cube = wasm_f32x4_mul(wasm_f32x4_mul(v, v), v);
    V z = wasm_f32x4_mul(S(1.5957691216f), MADD(S(0.044715f), cube, v));
    ST(x + i, wasm_f32x4_mul(v, sigmoid(z)));
  }
}

API void add(int part, int parts, float *x, const float *y, int n) {
  for (MINE(i, n / 4, 4)) ST(x + i, wasm_f32x4_add(LD(x + i), LD(y + i)));
}

API void bias(int part, int parts, float *x, const float *b, int m, int n) {
  for (MINE(i, m, 1))
    for (int p = 0; p < n; p += 4) ST(x + n * i + p, wasm_f32x4_add(LD(x + n * i + p), LD(b + p)));
}

IN float most(const float *x, int n) {
  V m = S(-3.4028234663852886e38f);
  int i = 0;
  for (; i + 4 <= n; i += 4) m = wasm_f32x4_max(m, LD(x + i));
  for (; i < n; i++) m = wasm_f32x4_max(m, S(x[i]));
  m = wasm_f32x4_max(m, MIX(m, m, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(wasm_f32x4_max(m, MIX(m, m, 1, 0, 3, 2)), 0);
}

// Of each of m rows of logits, `stride` apart: which is the first of the largest, that one, the largest of the others (finite, if there is none),
// and the sum of all exponentials beside the largest's; not a number where a logit is not.
API void largest(int part, int parts, double *out, float *logits, int m, int stride, int n) {
  for (MINE(i, m, 1)) {
    float *x = logits + i * stride, best = most(x, n);
    V first = S(best);
    int at = 0, p = 0;
    for (; at < n - 1 && x[at] != best; at++);
    x[at] = -3.4028234663852886e38f;
    float second = most(x, n);
    x[at] = best;
    V low = S(0), high = S(0);
    double all = 0;
    for (; p + 4 <= n; p += 4) {
      V e = expv(wasm_f32x4_sub(LD(x + p), first));
      low = wasm_f64x2_add(low, wasm_f64x2_promote_low_f32x4(e));
      high = wasm_f64x2_add(high, wasm_f64x2_promote_low_f32x4(MIX(e, e, 2, 3, 0, 1)));
    }
    for (; p < n; p++) all += wasm_f32x4_extract_lane(expv(S(x[p] - best)), 0);
    low = wasm_f64x2_add(low, high);
    double *to = out + 4 * i;
    to[0] = at; to[1] = best; to[2] = second;
    to[3] = all + wasm_f64x2_extract_lane(low, 0) + wasm_f64x2_extract_lane(low, 1);
  }
}
