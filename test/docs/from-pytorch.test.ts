/**
 * @file Claims of docs/torch.md for users who come from PyTorch: its options exist, and the plan of modules that it shows is kept
 * in training.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { readAnnotations } from '../../src/api/index.js';
import { COMMANDS } from '../../src/cli/commands.js';
import { ROOT } from '../cli/autopar.js';

const [, PAGE = ''] =
  /^## Coming from PyTorch\n(.*?)^## /ms.exec(readFileSync(join(ROOT, 'docs/torch.md'), 'utf8')) ?? [];

test('every command and option of docs/torch.md exists', (t) => {
  const optionsOf = new Map(
    COMMANDS.map(({ name, options }) => [
      name,
      new Set(options.flatMap(({ flags }) => flags.match(/--[\w-]+/g) ?? [])),
    ]),
  );
  const all = new Set([...optionsOf.values()].flatMap((options) => [...options]));
  const shown = [...PAGE.matchAll(/`((?:autopar|--)[^`]*)`/g)].map(([, text = '']) => text);
  t.true(shown.length > 20);
  for (const text of shown) {
    const command = /^autopar (\w+)/.exec(text)?.[1];
    const known = command === undefined ? all : optionsOf.get(command);
    t.truthy(known, text);
    for (const [option] of text.matchAll(/--[a-z][\w-]*/g)) t.true(known?.has(option), `${text}: ${option}`);
  }
});

test('the plan of modules in docs/torch.md is kept in training', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'pins.yaml');
  writeFileSync(file, /```yaml\n(.*?)```/s.exec(PAGE)?.[1] ?? '');
  const { plan } = await compile({
    model: join(ROOT, 'models/llama-tiny.onnx'),
    training: { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } },
    annotations: await readAnnotations(file),
    planOnly: true,
    output: join(folder, 'd'),
  });
  // Layers that are equal are spelt out once.
  t.deepEqual(
    plan.layerClasses.map(({ instances }) => instances),
    [['model.layers.0', 'model.layers.1']],
  );
  const factors = (node: string) => Object.keys(plan.operators[node]?.strategy ?? {});
  t.deepEqual(plan.degrees.tp, 2);
  for (const product of ['q_proj', 'k_proj', 'v_proj'])
    t.deepEqual(factors(`/model/layers.0/self_attn/${product}/MatMul`), ['n']);
  for (const product of ['self_attn/o_proj', 'mlp/down_proj'])
    t.deepEqual(factors(`/model/layers.0/${product}/MatMul`), ['k']);
  for (const product of ['mlp/gate_proj', 'mlp/up_proj'])
    t.deepEqual(factors(`/model/layers.0/${product}/MatMul`), ['n']);
  t.deepEqual(factors('/model/embed_tokens/Gather'), ['v']);
  t.deepEqual(factors('/lm_head/MatMul'), ['n']);
  t.deepEqual(factors('/model/layers.0/input_layernorm/Mul_1'), ['s']);
});
