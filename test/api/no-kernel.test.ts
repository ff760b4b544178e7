import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { compile } from '../../src/api/compile.js';
import { runCompiled } from '../../src/api/run.js';
import { verify } from '../../src/api/verify.js';
import type { DType } from '../../src/ir/dtype.js';
import { AutoparError } from '../../src/ir/error.js';
import type { ModelProto } from '../../src/ir/onnx/schema.js';
import { complaintOf } from '../../src/runtime/no-kernel.js';
import { model, node, saved, small, value } from '../ir/model-maker.js';

const typed = (op: string, dtype: DType): ModelProto =>
  small([node('Identity', ['x'], ['h'], {}, { name: 'first' }), node(op, ['h'], ['y'], {}, { name: 'the/node' })], {
    input: [value('x', [4, 8], dtype)],
    output: [value('y', [4, 8], dtype)],
  });

const unknown = (): ModelProto =>
  model(
    {
      ...small([
        node('Neg', ['x'], ['h'], {}, { name: 'first' }),
        node('Warp', ['h'], ['y'], {}, { name: 'the/node', domain: 'my.ops' }),
      ]).graph,
    },
    18,
    {
      opset_import: [
        { domain: '', version: 18 },
        { domain: 'my.ops', version: 1 },
      ],
    },
  );

/** Models without a CPU kernel in ONNX Runtime: none for the type, or none for the operator. */
const MODELS: Readonly<Record<string, { readonly content: ModelProto; readonly says: RegExp }>> = {
  'bfloat16, which no CPU kernel takes': {
    content: typed('Tanh', 'bfloat16'),
    says: /'the\/node' \(Tanh of bfloat16\)/,
  },
  'float64, which this operator’s kernel does not take': {
    content: typed('Hardmax', 'float64'),
    says: /'the\/node' \(Hardmax of float64\)/,
  },
  'an operator of another domain': { content: unknown(), says: /'the\/node' \(my\.ops\.Warp of float32\)/ },
};

async function refused(t: ExecutionContext, done: Promise<unknown>, says: RegExp): Promise<string> {
  const error = await t.throwsAsync(done, { instanceOf: AutoparError });
  t.deepEqual([error?.code, error?.exit], ['unsupported-operator', 'backendAbsent'], error?.message);
  t.regex(error?.message ?? '', says);
  t.is(error?.where.node, 'the/node');
  t.notRegex(`${error?.message} ${error?.where.file} ${error?.hint}`, /segment|Tanh_|Hardmax_|Warp_/);
  return error?.message ?? '';
}

for (const [name, { content, says }] of Object.entries(MODELS)) {
  test(`${name}: run, verify and compile --verify name the model's node`, async (t) => {
    const file = await saved(content);
    const output = path.join(await mkdtemp(path.join(tmpdir(), 'autopar-kernel-')), 'out');
    await compile({ model: file, output, devices: 2 });
    t.regex(await refused(t, runCompiled({ directory: output }), says), /^backend cpu has no kernel/);
    t.regex(
      await refused(t, verify({ directory: output }), says),
      /^ONNX Runtime itself cannot run the unsharded model/,
    );
    await refused(t, compile({ model: file, output, devices: 2, verify: true }), says);
  });
}

test('how ONNX Runtime says that it has no kernel', (t) => {
  const says: readonly (readonly [string, readonly [string, string] | null])[] = [
    ["Could not find an implementation for Elu(22) node with name 'Elu_0'", ['Elu_0', 'Elu']],
    [
      "Type Error: Type 'tensor(bfloat16)' of input parameter (x) of operator (Atan) in node (Atan_1) is invalid.",
      ['Atan_1', 'Atan'],
    ],
    [
      'In Node, ("Warp_0", Warp, "my.ops", -1) : : , Error my.ops:Warp(-1) is not a registered function/op',
      ['Warp_0', 'Warp'],
    ],
    ['Fatal error: my.ops:Warp(-1) is not a registered function/op', ['', 'Warp']],
    [
      "running Cast node. Name:'Cast_0' Status Message: Program Cast requires f16 but the device does not support it.",
      ['Cast_0', 'Cast'],
    ],
    [
      "running ConvTranspose node. Name:'ConvTranspose_2_token_1' Status Message: Only Conv2d or Conv1d are supported.",
      ['ConvTranspose_2_token_1', 'ConvTranspose'],
    ],
    ['Protobuf parsing failed.', null],
    ["Non-zero status code returned while running Add node. Name:'Add_0' Status Message: shapes differ", null],
  ];
  for (const [reason, found] of says)
    t.deepEqual(complaintOf(reason), found && { node: found[0], op: found[1] }, reason);
});
