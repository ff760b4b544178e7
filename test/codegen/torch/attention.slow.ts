/**
 * @file Attention that a file writes out, as one function of torch: in training every gradient equals the bundled
 * runtime's, which runs the file's operators. Queries, keys and values are data times a weight each; models of
 * PyTorch's exporter are trained in pipelines and with recompute.
 */
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import type { CompileOptions } from '../../../src/api/index.js';
import { sharedCases } from '../../api/shared-models.js';
import { ATTENTION_FORMS } from '../../ir/fused-regions/attention-forms.js';
import { savedModel, type Written } from '../../ir/fused-regions/written.js';
import { missing } from '../../missing.js';
import { torchAbsence } from '../../reference/torch.js';
import { checkRun } from './check-run.js';
import { type Emitted, emitted, type Ran, ranHere, runForked } from './emitted.js';

const absence = torchAbsence('numpy', 'safetensors');
const STEPS = 3;

/** Forms that stay written out, and why. */
const WRITTEN_OUT: Readonly<Record<string, string>> = {
  'grouped heads by Tile': 'torch repeats each head in a row',
  'grouped heads by Concat': 'torch repeats each head in a row',
  'scores flattened and unflattened for two masks': 'the masks have other dimensions than the scores',
  'scores with rows and columns apart for relative positions': 'the masks have other dimensions than the scores',
  'masked by Where, hiding': 'a row without keys has equal shares only where the fill is the least number',
  'bias that is scaled with the scores': 'the mask is scaled',
  'mask subtracted, and kept from overflowing': 'the mask is subtracted',
  'capped softly, then masked': 'scores are capped',
  'by Einsum, with heads after positions': 'no MatMul',
  'by Einsum, with groups of heads and an ellipsis': 'no MatMul',
  'turned: keys times queries, softmax over the rows, values times probabilities': 'rows of scores are columns',
  'probabilities turned before the product, as image models write it': 'rows of scores are columns',
};

/** Models with attention as PyTorch's exporter writes it, a causal mask being a constant. */
const MODELS = sharedCases().filter(({ name }) => /hf_gpt2$|hf_llama_gqa$/.test(name));

const STEPPED = {
  loss: { kind: 'cross_entropy' },
  optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.05 },
} as const;
const PLANS: Readonly<Record<string, Omit<CompileOptions, 'model'>>> = {
  'dp 2 · tp 2': { devices: 4, degrees: { dp: 2, tp: 2 }, training: STEPPED },
  'recompute but in the last micro-batch': {
    ...{ devices: 2, degrees: { dp: 1, tp: 2 }, recompute: 'full:except-last' },
    training: { ...STEPPED, microBatches: 2 },
  },
  'zero-bubble, recompute': {
    ...{ devices: 2, degrees: { pp: 2, dp: 1, tp: 1 }, schedule: 'zero-bubble', recompute: 'full' },
    training: { ...STEPPED, microBatches: 2 },
  },
};

interface Case {
  readonly name: string;
  readonly form: Written;
  readonly call: RegExp | null;
}

const CALL = /scaled_dot_product_attention/;
const causal = (lines: string): Written => ({
  inputs: { q: [2, 4, 6, 8], k: [2, 4, 6, 8], v: [2, 4, 6, 8] },
  lines: `
    one = Expand(1.0, [6, 6])
    kt = Transpose(k) {"perm": [0, 1, 3, 2]}
    s = MatMul(q, kt)
    ${lines}
    p = Softmax(u) {"axis": 3}
    y = MatMul(p, v)`,
});

/** Keys behind the query. */
const LATER = 'c = Trilu(one, 1i) {"upper": 1}\n h = Cast(c) {"to": 9}';

const CASES: readonly Case[] = [
  // 16-bit floats are rounded by each engine in its own places.
  ...Object.entries(ATTENTION_FORMS).flatMap(([name, form]) => {
    const isHalf = Object.values(form.inputs).some(([dtype]) => dtype === 'float16');
    return isHalf ? [] : [{ name, form, call: name in WRITTEN_OUT ? null : CALL }];
  }),
  {
    name: 'causal, hiding by −∞',
    form: causal(`${LATER}\n u = Where(h, -inf, s)`),
    call: /is_causal=True/,
  },
  {
    name: 'causal, showing with the least number',
    form: causal('c = Trilu(one) {"upper": 0}\n h = Cast(c) {"to": 9}\n u = Where(h, s, -3.4028234663852886e38)'),
    call: /is_causal=True/,
  },
  {
    name: 'grouped heads beside a mask',
    form: {
      inputs: { q: [2, 4, 5, 8], k: [2, 2, 7, 8], v: [2, 2, 7, 8], m: [2, 1, 5, 7] },
      lines: `
        ku = Unsqueeze(k, [2])
        ke = Expand(ku, [2, 2, 2, 7, 8])
        kr = Reshape(ke, [2, 4, 7, 8])
        vu = Unsqueeze(v, [2])
        ve = Expand(vu, [2, 2, 2, 7, 8])
        vr = Reshape(ve, [2, 4, 7, 8])
        kt = Transpose(kr) {"perm": [0, 1, 3, 2]}
        s = MatMul(q, kt)
        u = Add(s, m)
        p = Softmax(u) {"axis": 3}
        y = MatMul(p, vr)`,
    },
    call: /repeat_interleave\(2, -3\)/,
  },
  {
    name: 'a mask chosen by the least number, and one added',
    form: {
      inputs: { q: [2, 4, 6, 8], k: [2, 4, 6, 8], v: [2, 4, 6, 8], near: ['bool', 1, 1, 6, 6], m: [2, 1, 1, 6] },
      lines: `
        kt = Transpose(k) {"perm": [0, 1, 3, 2]}
        s = MatMul(q, kt)
        t = Where(near, s, -3.4028234663852886e38)
        u = Add(t, m)
        p = Softmax(u) {"axis": 3}
        y = MatMul(p, v)`,
    },
    call: /torch\.where/,
  },
  {
    name: 'causal, in a window',
    form: causal(`${LATER}
      e = Trilu(one, -3i) {"upper": 0}
      f = Cast(e) {"to": 9}
      g = Or(h, f)
      m = Where(g, -3.4028234663852886e38, 0.0)
      u = Add(s, m)`),
    call: /attention\((?!.*is_causal)/s,
  },
];

/** Queries, keys and values as weights times data, whose gradients are those of the attention times that data. */
function weighted({ inputs, lines, ...rest }: Written): Written {
  const trained = ['q', 'k', 'v'];
  const shapeOf = (name: string) => (inputs[name] ?? []).map(Number);
  return {
    ...rest,
    inputs: Object.fromEntries(
      Object.entries(inputs).map(([name, shape]) => [trained.includes(name) ? `given_${name}` : name, shape]),
    ),
    weights: Object.fromEntries(trained.map((name) => [`${name}.weight`, shapeOf(name)])),
    lines: `${trained.map((name) => `${name} = Mul(given_${name}, ${name}.weight)`).join('\n')}\n${lines}`,
  };
}

const TRAINING: CompileOptions['training'] = {
  loss: { kind: 'mse' },
  trainable: ['*.weight'],
  optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.1 },
};

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-attention-'));
  const programs = new Map<string, Emitted>();
  let ran: ReadonlyMap<string, Ran> = new Map();
  test.before(async () => {
    for (const [index, { name, form }] of CASES.entries()) {
      const model = await savedModel(weighted(form));
      const options = { model, devices: 1, degrees: { dp: 1, tp: 1 }, training: TRAINING } as const;
      programs.set(name, await emitted(join(folder, `${index}`), STEPS, options));
    }
    for (const { name, file } of MODELS)
      for (const [plan, options] of Object.entries(PLANS)) {
        const out = join(folder, `${name} ${plan}`);
        programs.set(`${name}: ${plan}`, await emitted(out, STEPS, { ...options, model: file }));
      }
    ran = runForked([...programs.values()]);
  });
  for (const { name, call } of CASES)
    test(name, async (t) => {
      const program = programs.get(name) as Emitted;
      const text = readFileSync(join(program.folder, 'torch', 'model.py'), 'utf8');
      if (call) t.regex(text, call);
      else t.notRegex(text, CALL);
      t.is(/softmax/.test(text), call === null);
      checkRun(t, await ranHere(program), ran.get(program.folder) as Ran, { steps: STEPS, tolerance: 1e-5 });
    });

  for (const name of MODELS.flatMap((model) => Object.keys(PLANS).map((plan) => `${model.name}: ${plan}`)))
    test(name, async (t) => {
      const program = programs.get(name) as Emitted;
      const { folder: own } = program;
      const files = readdirSync(join(own, 'torch')).filter((file) => file.endsWith('.py'));
      const text = files.map((file) => readFileSync(join(own, 'torch', file), 'utf8')).join('');
      const count = (call: RegExp) => text.match(call)?.length ?? 0;
      t.true(count(/product_attention\(/g) > 0);
      t.is(count(/product_attention\(/g), count(/is_causal=True/g));
      checkRun(t, await ranHere(program), ran.get(own) as Ran, { steps: STEPS, tolerance: 1e-5 });
    });
  if (MODELS.length === 0) test.skip('models of PyTorch: the folder of shared models is absent', () => undefined);
}
