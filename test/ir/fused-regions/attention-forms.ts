/**
 * @file Attention as exporters write it, in lines of written.ts.
 */
import type { Written } from './written.js';

export interface AttentionForm extends Written {
  readonly inside: number;
  readonly attributes: Readonly<Record<string, number>>;
  readonly reads: readonly string[];
  /** How each mask works on scores. */
  readonly masks?: readonly ('add' | 'subtract' | 'keep' | 'hide')[];
  /** Orders that bring queries, keys, values and the result to [… , positions, features]. */
  readonly perms?: readonly (readonly number[] | undefined)[];
  /** The scores' shape where each mask is applied; queries' but for the last dimension by default. */
  readonly scores?: readonly (readonly number[])[];
  readonly head?: (head: number) => number;
  readonly precision?: number;
}

export const qkv = { q: [2, 4, 5, 8], k: [2, 4, 7, 8], v: [2, 4, 7, 8] };
export const grouped = { q: [2, 4, 5, 8], k: [2, 2, 7, 8], v: [2, 2, 7, 8] };
const quarter = { scale: 0.25 };

export const ATTENTION_FORMS: Readonly<Record<string, AttentionForm>> = {
  'scaled after, no mask': {
    inputs: qkv,
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      t = Mul(s, 0.25)
      p = Softmax(t) {"axis": -1}
      y = MatMul(p, v)`,
    inside: 5,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
  },
  'divided after, float mask': {
    inputs: { ...qkv, m: [2, 1, 5, 7] },
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      t = Div(s, 4.0)
      u = Add(m, t)
      p = Softmax(u) {"axis": 3}
      y = MatMul(p, v)`,
    inside: 6,
    attributes: quarter,
    reads: ['q', 'k', 'v', 'm'],
    masks: ['add'],
  },
  'both sides scaled, keys turned between reshapes, rows that are masked whole guarded': {
    inputs: { ...qkv, m: [2, 1, 5, 7] },
    lines: `
      kr = Reshape(k, [8, 7, 8])
      kt = Transpose(kr) {"perm": [0, 2, 1]}
      ku = Reshape(kt, [2, 4, 8, 7])
      qs = Mul(q, 0.5)
      ks = Mul(ku, 0.5)
      s = MatMul(qs, ks)
      t = Add(s, m)
      p = Softmax(t) {"axis": 3}
      nan = IsNaN(p)
      g = Where(nan, 0.0, p)
      y = MatMul(g, v)`,
    inside: 11,
    attributes: quarter,
    reads: ['q', 'k', 'v', 'm'],
    masks: ['add'],
  },
  'grouped heads by Expand, in keys and values': {
    inputs: grouped,
    lines: `
      ku = Unsqueeze(k, [2])
      ke = Expand(ku, [2, 2, 2, 7, 8])
      kr = Reshape(ke, [2, 4, 7, 8])
      vu = Unsqueeze(v, [2])
      ve = Expand(vu, [2, 2, 2, 7, 8])
      vr = Reshape(ve, [2, 4, 7, 8])
      kt = Transpose(kr) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      t = Mul(0.25, s)
      p = Softmax(t) {"axis": 3}
      y = MatMul(p, vr)`,
    inside: 11,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
  },
  'grouped heads expanded and flattened in one, as the second exporter writes them': {
    inputs: grouped,
    lines: `
      ku = Unsqueeze(k, [2])
      ke = Expand(ku, [2, 2, 2, 7, 8])
      kr = Reshape(ke, [8, 7, 8])
      kt = Transpose(kr) {"perm": [0, 2, 1]}
      ks = Reshape(kt, [2, 4, 8, 7])
      kx = Mul(ks, 0.25)
      vu = Unsqueeze(v, [2])
      ve = Expand(vu, [2, 2, 2, 7, 8])
      vr = Reshape(ve, [2, 4, 7, 8])
      s = MatMul(q, kx)
      p = Softmax(s) {"axis": 3}
      y = MatMul(p, vr)`,
    inside: 12,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
  },
  'grouped heads by Tile': {
    inputs: grouped,
    lines: `
      kr = Tile(k, [1, 2, 1, 1])
      vr = Tile(v, [1, 2, 1, 1])
      kt = Transpose(kr) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      p = Softmax(s) {"axis": 3}
      y = MatMul(p, vr)`,
    inside: 6,
    attributes: { scale: 1 },
    reads: ['q', 'k', 'v'],
    head: (head) => Math.floor(head / 4) * 2 + (head % 2),
  },
  'grouped heads by Concat': {
    inputs: grouped,
    lines: `
      kr = Concat(k, k) {"axis": 1}
      vr = Concat(v, v) {"axis": 1}
      kt = Transpose(kr) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      p = Softmax(s) {"axis": 3}
      y = MatMul(p, vr)`,
    inside: 6,
    attributes: { scale: 1 },
    reads: ['q', 'k', 'v'],
    head: (head) => Math.floor(head / 4) * 2 + (head % 2),
  },
  'one key head for all': {
    inputs: { q: [2, 4, 5, 8], k: [2, 1, 7, 8], v: [2, 1, 7, 8] },
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      t = Mul(s, 0.25)
      p = Softmax(t) {"axis": 3}
      y = MatMul(p, v)`,
    inside: 5,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
  },
  'groups as a dimension of their own': {
    inputs: { q: [2, 2, 2, 5, 8], k: [2, 2, 1, 7, 8], v: [2, 2, 1, 7, 8] },
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 2, 4, 3]}
      s = MatMul(q, kt)
      t = Mul(s, 0.25)
      p = Softmax(t) {"axis": 4}
      y = MatMul(p, v)`,
    inside: 5,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
  },
  'keys split into heads and turned by one Transpose': {
    inputs: { q: [2, 4, 5, 8], k: [2, 7, 4, 8], v: [2, 4, 7, 8] },
    lines: `
      kt = Transpose(k) {"perm": [0, 2, 3, 1]}
      s = MatMul(q, kt)
      t = Mul(s, 0.25)
      p = Softmax(t) {"axis": 3}
      y = MatMul(p, v)`,
    inside: 5,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
    perms: [undefined, [0, 2, 1, 3]],
  },
  'scores flattened and unflattened for two masks': {
    inputs: { q: [8, 5, 8], k: [8, 7, 8], v: [8, 7, 8], bias: [8, 1, 7], m: [2, 1, 5, 7] },
    lines: `
      kt = Transpose(k) {"perm": [0, 2, 1]}
      s = MatMul(q, kt)
      t = Mul(s, 0.25)
      b = Add(bias, t)
      u = Reshape(b, [2, 4, 5, 7])
      w = Add(u, m)
      p = Softmax(w) {"axis": 3}
      r = Reshape(p, [8, 5, 7])
      y = MatMul(r, v)`,
    inside: 9,
    attributes: quarter,
    reads: ['q', 'k', 'v', 'bias', 'm'],
    masks: ['add', 'add'],
    scores: [
      [8, 5, 7],
      [2, 4, 5, 7],
    ],
  },
  'scores with rows and columns apart for relative positions': {
    inputs: { q: [3, 6, 8], k: [3, 6, 8], v: [3, 6, 8], rows: [3, 2, 3, 2, 1], columns: [3, 2, 3, 1, 3] },
    lines: `
      kt = Transpose(k) {"perm": [0, 2, 1]}
      s = MatMul(q, kt)
      t = Mul(s, 0.25)
      u = Reshape(t, [3, 2, 3, 2, 3])
      a = Add(u, rows)
      b = Add(a, columns)
      r = Reshape(b, [3, 6, 6])
      p = Softmax(r) {"axis": 2}
      y = MatMul(p, v)`,
    inside: 9,
    attributes: quarter,
    reads: ['q', 'k', 'v', 'rows', 'columns'],
    masks: ['add', 'add'],
    scores: [
      [3, 2, 3, 2, 3],
      [3, 2, 3, 2, 3],
    ],
  },
  'masked by Where, hiding': {
    inputs: { ...qkv, m: ['bool', 2, 1, 5, 7] },
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      t = Mul(s, 0.25)
      u = Where(m, -1e9, t)
      p = Softmax(u) {"axis": 3}
      y = MatMul(p, v)`,
    inside: 6,
    attributes: quarter,
    reads: ['q', 'k', 'v', 'm'],
    masks: ['hide'],
  },
  'masked by Where, keeping, and scaled afterwards': {
    inputs: { ...qkv, m: ['bool', 1, 1, 5, 7] },
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      u = Where(m, s, -inf)
      t = Mul(u, 0.25)
      p = Softmax(t) {"axis": 3}
      y = MatMul(p, v)`,
    inside: 6,
    attributes: quarter,
    reads: ['q', 'k', 'v', 'm'],
    masks: ['keep'],
  },
  'bias that is scaled with the scores': {
    inputs: { ...qkv, m: [4, 5, 7] },
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      u = Add(s, m)
      t = Div(u, 4.0)
      p = Softmax(t) {"axis": 3}
      y = MatMul(p, v)`,
    inside: 6,
    attributes: { scale: 0.25, mask_scale: 0.25 },
    reads: ['q', 'k', 'v', 'm'],
    masks: ['add'],
  },
  'mask subtracted, and kept from overflowing': {
    inputs: { ...qkv, m: [2, 1, 1, 7] },
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      t = Mul(s, 0.25)
      u = Sub(t, m)
      w = Max(u, -3.4028234663852886e38)
      p = Softmax(w) {"axis": 3}
      y = MatMul(p, v)`,
    inside: 7,
    attributes: quarter,
    reads: ['q', 'k', 'v', 'm'],
    masks: ['subtract'],
  },
  'capped softly, then masked': {
    inputs: { ...qkv, m: [2, 1, 5, 7] },
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      t = Mul(s, 0.25)
      d = Div(t, 1.5)
      h = Tanh(d)
      c = Mul(h, 1.5)
      u = Add(c, m)
      p = Softmax(u) {"axis": 3}
      y = MatMul(p, v)`,
    inside: 9,
    attributes: { scale: 0.25, softcap: 1.5 },
    reads: ['q', 'k', 'v', 'm'],
    masks: ['add'],
  },
  'softmax written out': {
    inputs: qkv,
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      t = Mul(s, 0.25)
      m = ReduceMax(t, [-1])
      d = Sub(t, m)
      e = Exp(d)
      z = ReduceSum(e, [-1])
      p = Div(e, z)
      y = MatMul(p, v)`,
    inside: 9,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
  },
  'softmax written out with a reciprocal and no maximum': {
    inputs: qkv,
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      e = Exp(s)
      z = ReduceSum(e, [3])
      r = Reciprocal(z)
      p = Mul(r, e)
      y = MatMul(p, v)`,
    inside: 7,
    attributes: { scale: 1 },
    reads: ['q', 'k', 'v'],
  },
  'by Einsum, with heads after positions': {
    inputs: { q: [2, 5, 4, 8], k: [2, 7, 4, 8], v: [2, 7, 4, 8] },
    lines: `
      s = Einsum(q, k) {"equation": "bqhd,bkhd->bhqk"}
      t = Mul(s, 0.25)
      p = Softmax(t) {"axis": 3}
      y = Einsum(p, v) {"equation": "bhqk,bkhd->bhqd"}`,
    inside: 4,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
    perms: [
      [0, 2, 1, 3],
      [0, 2, 1, 3],
      [0, 2, 1, 3],
    ],
  },
  'by Einsum, with groups of heads and an ellipsis': {
    inputs: { q: [2, 2, 2, 5, 8], k: [2, 2, 7, 8], v: [2, 2, 7, 8] },
    lines: `
      s = Einsum(q, k) {"equation": "bgrqd,bgkd->bgrqk"}
      t = Mul(s, 0.25)
      p = Softmax(t) {"axis": -1}
      y = Einsum(p, v) {"equation": "bgr...k,bgkd->bgr...d"}`,
    inside: 4,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
  },
  'turned: keys times queries, softmax over the rows, values times probabilities': {
    inputs: { q: [3, 8, 5], k: [3, 7, 8], v: [3, 8, 7] },
    lines: `
      s = MatMul(k, q)
      t = Mul(s, 0.25)
      p = Softmax(t) {"axis": 1}
      y = MatMul(v, p)`,
    inside: 4,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
    perms: [[0, 2, 1], undefined, [0, 2, 1], [0, 2, 1]],
  },
  'probabilities turned before the product, as image models write it': {
    inputs: { q: [3, 5, 8], k: [3, 8, 7], v: [3, 8, 7] },
    lines: `
      s = MatMul(q, k)
      t = Mul(s, 0.25)
      p = Softmax(t) {"axis": 2}
      pt = Transpose(p) {"perm": [0, 2, 1]}
      y = MatMul(v, pt)`,
    inside: 5,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
    perms: [undefined, [0, 2, 1], [0, 2, 1], [0, 2, 1]],
  },
  'one new query against a cache': {
    inputs: { q: [2, 4, 1, 8], k: [2, 4, 7, 8], v: [2, 4, 7, 8] },
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      t = Mul(s, 0.25)
      p = Softmax(t) {"axis": 3}
      y = MatMul(p, v)`,
    inside: 5,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
  },
  'half precision, softmax in float32': {
    inputs: { q: ['float16', 2, 4, 5, 8], k: ['float16', 2, 4, 7, 8], v: ['float16', 2, 4, 7, 8] },
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      t = Mul(s, 0.25h)
      c = Cast(t) {"to": 1}
      p = Softmax(c) {"axis": 3}
      h = Cast(p) {"to": 10}
      y = MatMul(h, v)`,
    inside: 7,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
    precision: 3e-3,
  },
  'operands cast up for the products': {
    inputs: { q: ['float16', 2, 4, 5, 8], k: ['float16', 2, 4, 7, 8], v: ['float16', 2, 4, 7, 8] },
    lines: `
      qc = Cast(q) {"to": 1}
      kc = Cast(k) {"to": 1}
      vc = Cast(v) {"to": 1}
      kt = Transpose(kc) {"perm": [0, 1, 3, 2]}
      s = MatMul(qc, kt)
      t = Mul(s, 0.25)
      p = Softmax(t) {"axis": 3}
      y = MatMul(p, vc)`,
    inside: 8,
    attributes: quarter,
    reads: ['q', 'k', 'v'],
  },
};
