/**
 * @file Operators of which some results are not read: whatever expands or differentiates them leaves no operator and no
 * collective that makes nothing.
 */
import test from 'ava';
import { importModel } from '../../src/api/models/import.js';
import { withTraining } from '../../src/api/models/training.js';
import { plan } from '../../src/api/plan.js';
import { programOf } from '../../src/codegen/program-of.js';
import { needed } from '../../src/ir/needed.js';
import type { NodeProto, TensorProto, ValueInfoProto } from '../../src/ir/onnx/schema.js';
import { checkSharded } from '../../src/partition/check.js';
import { onlyStage } from '../../src/partition/lower-stages.js';
import { readsOf, resultsOf } from '../../src/partition/sharded-graph.js';
import { checkProgram } from '../../src/program/check-program.js';
import { model, node, ramp, saved, value } from '../ir/model-maker.js';

interface Case {
  readonly nodes: readonly NodeProto[];
  readonly weights: readonly TensorProto[];
  readonly inputs: readonly ValueInfoProto[];
  readonly outputs: readonly ValueInfoProto[];
}

/** A recurrent operator of so many time steps; its last state is scaled, so that it is not an output itself. */
function recurrent(op: 'RNN' | 'GRU' | 'LSTM', gates: number, steps: number, read: 'Y' | 'Y_h'): Case {
  const [batch, width, hidden] = [4, 6, 8];
  return {
    nodes: [
      node(op, ['x', 'W', 'R'], op === 'LSTM' ? ['Y', 'Y_h', 'Y_c'] : ['Y', 'Y_h'], { hidden_size: hidden }),
      node('Mul', [read, 'scale'], ['y']),
    ],
    weights: [ramp('W', [1, gates * hidden, width]), ramp('R', [1, gates * hidden, hidden]), ramp('scale', [hidden])],
    inputs: [value('x', [steps, batch, width])],
    outputs: [value('y', read === 'Y' ? [steps, 1, batch, hidden] : [1, batch, hidden])],
  };
}

/** A matmul whose result is split; one part is read. */
const SPLIT: Case = {
  nodes: [
    node('MatMul', ['x', 'W'], ['all']),
    node('Split', ['all'], ['first', 'second', 'third'], { axis: 1, num_outputs: 3 }),
    node('Softmax', ['second'], ['y'], { axis: 1 }),
  ],
  weights: [ramp('W', [6, 24])],
  inputs: [value('x', [4, 6])],
  outputs: [value('y', [4, 8])],
};

/** The statistics of a normalisation are results too. */
const NORMALISED: Case = {
  nodes: [
    node('LayerNormalization', ['x', 'scale'], ['n', 'mean', 'deviation'], { axis: -1 }),
    node('MatMul', ['n', 'W'], ['y']),
  ],
  weights: [ramp('scale', [6]), ramp('W', [6, 8])],
  inputs: [value('x', [4, 6])],
  outputs: [value('y', [4, 8])],
};

const CASES: Readonly<Record<string, Case>> = {
  'GRU, one step': recurrent('GRU', 3, 1, 'Y_h'),
  'GRU, all steps': recurrent('GRU', 3, 2, 'Y'),
  'LSTM, one step': recurrent('LSTM', 4, 1, 'Y_h'),
  'LSTM, all steps': recurrent('LSTM', 4, 2, 'Y'),
  'RNN, last step': recurrent('RNN', 1, 2, 'Y_h'),
  split: SPLIT,
  normalised: NORMALISED,
};

for (const [name, { nodes, weights, inputs, outputs }] of Object.entries(CASES)) {
  test(`everything that is lowered makes something that is read: ${name}`, async (t) => {
    const file = await saved(model({ node: nodes, initializer: weights, input: inputs, output: outputs }));
    const forward = await importModel(file, {});
    const trained = withTraining(forward, { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 } });
    for (const imported of [forward, trained])
      for (const axes of ['roles', 'free'] as const) {
        const { found } = await plan(imported, { devices: 2, degrees: { dp: 1, tp: 2 }, axes });
        const sharded = onlyStage(found.lowered);
        t.deepEqual(checkSharded(sharded), []);
        const ends = sharded.outputs.map(({ tensor }) => tensor);
        t.is(needed(sharded.nodes, ends, readsOf, resultsOf).length, sharded.nodes.length);
        const { program } = programOf([{ graph: imported.graph, sharded }], { name, fingerprint: 'f' });
        t.is(checkProgram(program), null);
      }
  });
}

test('a node of which nothing is read is a finding', async (t) => {
  const { nodes, weights, inputs, outputs } = NORMALISED;
  const file = await saved(model({ node: nodes, initializer: weights, input: inputs, output: outputs }));
  const { found } = await plan(await importModel(file, {}), { devices: 2, degrees: { dp: 1, tp: 2 } });
  const sharded = onlyStage(found.lowered);
  const [first] = sharded.nodes;
  if (first?.kind !== 'compute') throw new Error('no operator');
  const outputsOfCopy = first.outputs.map((output) => (output === null ? null : `${output}/copy`));
  const tensors = new Map(sharded.tensors);
  for (const [index, output] of first.outputs.entries()) {
    const type = tensors.get(output ?? '');
    if (type) tensors.set(outputsOfCopy[index] ?? '', type);
  }
  const copy = { ...first, name: 'copy', outputs: outputsOfCopy };
  t.deepEqual(checkSharded({ ...sharded, nodes: [...sharded.nodes, copy], tensors }), [
    { node: 'copy', problem: 'nothing reads a result of copy' },
  ]);
});

test('a segment without outputs is refused', async (t) => {
  const { nodes, weights, inputs, outputs } = SPLIT;
  const file = await saved(model({ node: nodes, initializer: weights, input: inputs, output: outputs }));
  const imported = await importModel(file, {});
  const { found } = await plan(imported, { devices: 1 });
  const sharded = onlyStage(found.lowered);
  const { program } = programOf([{ graph: imported.graph, sharded }], { name: 'split', fingerprint: 'f' });
  const [stage] = program.stages;
  if (!stage) throw new Error('no stage');
  const phases = Object.fromEntries(
    Object.entries(stage.phases).map(([phase, list]) => [
      phase,
      list.map((instruction) => (instruction.kind === 'compute' ? { ...instruction, outputs: [] } : instruction)),
    ]),
  );
  t.regex(checkProgram({ ...program, stages: [{ ...stage, phases }] }) ?? '', /segment \w+ has no outputs/);
});
