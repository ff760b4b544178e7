/**
 * @file Models as ONNX Runtime's optimiser and model builder leave them, whole layers of fused operators: they import, are
 * sharded over heads and features (half the work on each of two ranks), and compute the results of ONNX Runtime.
 */
import { rmSync } from 'node:fs';
import { dirname } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { compile } from '../../../src/api/compile.js';
import type { DType } from '../../../src/ir/dtype.js';
import type { ModelProto, NodeProto, TensorProto } from '../../../src/ir/onnx/schema.js';
import { float, type Given, model, node, saved, tensor, value } from '../model-maker.js';

const [BATCH, POSITIONS, WIDTH, HEADS, INNER, WORDS] = [4, 16, 64, 4, 256, 64] as const;
const MS = { domain: 'com.microsoft' };
const fused = (
  op: string,
  inputs: readonly string[],
  outputs: readonly string[],
  attributes: Readonly<Record<string, Given>> = {},
): NodeProto => node(op, inputs, outputs, attributes, MS);

/** Collects nodes and weights of a model; values are a fixed jumble. */
class Layers {
  readonly nodes: NodeProto[] = [];
  readonly weights: TensorProto[] = [];

  weight(name: string, shape: readonly number[], dtype: DType = 'float32', from = -0.1, to = 0.1): string {
    const count = shape.reduce((product, size) => product * size, 1);
    const seed = this.weights.length + 1;
    const values = Array.from({ length: count }, (_, index) => {
      const fraction = (Math.imul(index + seed * 7919, 2654435761) >>> 0) / 2 ** 32;
      const number = from + fraction * (to - from);
      return dtype === 'float32' ? number : Math.floor(number);
    });
    this.weights.push(tensor(name, shape, values, dtype));
    return name;
  }

  finish(inputs: ModelProto['graph'], outputs: readonly string[]): ModelProto {
    const opset_import = [
      { domain: '', version: 17 },
      { domain: 'com.microsoft', version: 1 },
    ];
    const output = outputs.map((name) => ({ ...value(name, []), type: { tensor_type: { elem_type: 1 } } }));
    const graph = { ...inputs, node: this.nodes, initializer: this.weights, output };
    return model(graph, 17, { opset_import });
  }
}

/** Two layers of BERT: EmbedLayerNormalization, Attention, SkipLayerNormalization, BiasGelu. */
function bert(): ModelProto {
  const layers = new Layers();
  const one = (name: string) => layers.weight(name, [WIDTH], 'float32', 0.5, 1.5);
  const tables = [
    layers.weight('words', [WORDS, WIDTH]),
    layers.weight('positions', [POSITIONS, WIDTH]),
    layers.weight('segments', [2, WIDTH]),
  ];
  const inputs = ['ids', 'kinds', ...tables, one('g'), one('b'), 'mask'];
  layers.nodes.push(fused('EmbedLayerNormalization', inputs, ['x0', 'counted'], { epsilon: float(1e-12) }));
  for (const [index, mask] of ['counted', 'mask'].entries()) {
    const [x, own] = [`x${index}`, (name: string) => `${name}${index}`];
    const matrix = (name: string, rows: number, columns: number) => layers.weight(own(name), [rows, columns]);
    const projected = [x, matrix('qkv', WIDTH, 3 * WIDTH), layers.weight(own('qkvBias'), [3 * WIDTH]), mask];
    const skip = (branch: string, from: string, to: string, name: string): NodeProto => {
      const scales = [one(own(`${name}g`)), one(own(`${name}b`)), layers.weight(own(`${name}bias`), [WIDTH])];
      return fused('SkipLayerNormalization', [branch, from, ...scales], [to], { epsilon: float(1e-12) });
    };
    layers.nodes.push(
      fused('Attention', projected, [own('a')], { num_heads: HEADS }),
      node('MatMul', [own('a'), matrix('out', WIDTH, WIDTH)], [own('o')]),
      skip(own('o'), x, own('m'), 'first'),
      node('MatMul', [own('m'), matrix('up', WIDTH, INNER)], [own('u')]),
      fused('BiasGelu', [own('u'), layers.weight(own('upBias'), [INNER])], [own('h')]),
      node('MatMul', [own('h'), matrix('down', INNER, WIDTH)], [own('d')]),
      skip(own('d'), own('m'), `x${index + 1}`, 'second'),
    );
  }
  const ids = ['ids', 'kinds', 'mask'].map((name) => value(name, [BATCH, POSITIONS], 'int32'));
  return layers.finish({ input: ids }, ['x2']);
}

/** Two layers of a quantised Llama: MatMulNBits, GroupQueryAttention with rotary embedding, SkipSimplifiedLayerNormalization. */
function llama(): ModelProto {
  const layers = new Layers();
  const [keyHeads, head] = [2, WIDTH / HEADS] as const;
  const product = (from: string, name: string, rows: number, columns: number): string => {
    const held = [
      layers.weight(`${name}Q`, [columns, rows / 16, 8], 'uint8', 0, 256),
      layers.weight(`${name}S`, [columns, rows / 16], 'float32', 0.005, 0.02),
    ];
    layers.nodes.push(fused('MatMulNBits', [from, ...held], [name], { K: rows, N: columns, bits: 4, block_size: 16 }));
    return name;
  };
  const scale = (name: string) => layers.weight(name, [WIDTH], 'float32', 0.5, 1.5);
  const angles = ['cos', 'sin'].map((name) => layers.weight(name, [32, head / 2], 'float32', -1, 1));
  layers.weight('lengths', [BATCH], 'int32', POSITIONS - 1, POSITIONS - 0.5);
  layers.weight('total', [], 'int32', POSITIONS, POSITIONS + 0.5);
  layers.nodes.push(
    node('Gather', [layers.weight('words', [WORDS, WIDTH], 'float32', -1, 1), 'ids'], ['r0']),
    node('SimplifiedLayerNormalization', ['r0', scale('g')], ['n0'], { axis: -1, epsilon: float(1e-5), stash_type: 1 }),
  );
  for (const index of [0, 1]) {
    const own = (name: string) => `${name}${index}`;
    const normal = own('n');
    const queries = product(normal, own('q'), WIDTH, WIDTH);
    const [keys, values] = ['k', 'v'].map((name) => product(normal, own(name), WIDTH, keyHeads * head));
    const operands = [queries, keys ?? '', values ?? '', '', '', 'lengths', 'total', ...angles];
    const heads = { num_heads: HEADS, kv_num_heads: keyHeads, do_rotary: 1 };
    layers.nodes.push(fused('GroupQueryAttention', operands, [own('a')], heads));
    const skip = (from: string, branch: string, normal: string, sum: string, name: string): NodeProto =>
      fused('SkipSimplifiedLayerNormalization', [from, branch, scale(own(name))], [normal, '', '', sum], {
        epsilon: float(1e-5),
      });
    layers.nodes.push(skip(own('r'), product(own('a'), own('o'), WIDTH, WIDTH), own('m'), own('s'), 'first'));
    const gate = product(own('m'), own('gate'), WIDTH, INNER);
    const up = product(own('m'), own('up'), WIDTH, INNER);
    layers.nodes.push(
      fused('QuickGelu', [gate], [own('act')], { alpha: float(1) }),
      node('Mul', [own('act'), up], [own('h')]),
    );
    const down = product(own('h'), own('down'), INNER, WIDTH);
    layers.nodes.push(skip(own('s'), down, `n${index + 1}`, `r${index + 1}`, 'second'));
  }
  product('n2', 'logits', WIDTH, WORDS);
  return layers.finish({ input: [value('ids', [BATCH, POSITIONS], 'int64')] }, ['logits']);
}

/** Compiles over two ranks; on tp the operators called `heads…`, one of equal layers, must be sharded over heads. */
async function halved(
  t: ExecutionContext,
  content: ModelProto,
  axis: 'dp' | 'tp',
  heads: string,
  unequal: number,
): Promise<void> {
  const file = await saved(content);
  t.teardown(() => rmSync(dirname(file), { recursive: true, force: true }));
  const output = file.replace('.onnx', '.autopar');
  const result = await compile({
    ...{ model: file, output, verify: true, devices: 2, degrees: { [axis]: 2 }, axes: 'roles' },
  });
  t.true(result.verification?.passed, 'the program computes what the model does');
  const { flopsPerRank, flopsTotal } = result.plan.predicted;
  t.true(flopsPerRank < 0.55 * flopsTotal, `a rank does ${flopsPerRank / flopsTotal} of the work`);
  t.deepEqual(
    result.notes.filter((note) => note.includes('unknown')),
    [],
  );
  const attention = Object.entries(result.plan.operators).filter(([name]) => name.startsWith(heads));
  t.is(attention.length, unequal);
  for (const [name, { strategy }] of attention) t.deepEqual(strategy[axis === 'tp' ? 'h' : 'b'], [axis], name);
}

for (const axis of ['dp', 'tp'] as const) {
  test(`BERT as the optimiser fuses it, ${axis} 2`, (t) => halved(t, bert(), axis, 'Attention', 2));
  test(`a quantised Llama as the model builder writes it, ${axis} 2`, (t) =>
    halved(t, llama(), axis, 'GroupQueryAttention', 1));
}
