import test from 'ava';
import { programOf } from '../../src/codegen/program-of.js';
import { orderLists } from '../../src/partition/order.js';
import { initialTensors } from '../../src/partition/order-phase.js';
import type { OrderedInstruction } from '../../src/partition/ordered-list.js';
import { partition } from '../../src/partition/partition.js';
import type { ComputeNode, ShardedGraph, ShardedTensor } from '../../src/partition/sharded-graph.js';
import { makeResharder } from '../../src/sharding-propagation/resharding.js';
import { megatron, mlp } from '../partition/mlp.js';

function inOrder(graph: ShardedGraph): readonly OrderedInstruction[] {
  return orderLists(graph).flatMap(({ instructions }) => instructions);
}

function sharded() {
  const assignment = megatron();
  return partition(
    mlp(),
    assignment,
    makeResharder(assignment.mesh, () => 1),
  );
}

test('segments end at layers and at collectives; every start has one wait', (t) => {
  const instructions = inOrder(sharded());
  t.deepEqual(
    instructions.map((instruction) =>
      instruction.kind === 'segment' ? instruction.nodes.map((node) => node.op).join('+') : instruction.kind,
    ),
    ['MatMul+Relu', 'MatMul', 'start', 'wait'],
  );
});

test('nothing is read before it is there', (t) => {
  const graph = sharded();
  const there = new Set(initialTensors(graph));
  for (const instruction of inOrder(graph)) {
    if (instruction.kind === 'segment') {
      for (const node of instruction.nodes) {
        for (const input of node.inputs) t.true(input === null || there.has(input));
        for (const output of node.outputs) if (output !== null) there.add(output);
      }
    } else if (instruction.kind === 'start') t.true(there.has(instruction.node.input));
    else if (instruction.kind === 'wait') there.add(instruction.node.output);
  }
  t.true(there.has('y'));
});

test('operators on weights alone run directly before their first reader', (t) => {
  const graph = sharded();
  const w2 = graph.tensors.get('w2') as ShardedTensor;
  const made = (input: string, output: string): ComputeNode => ({
    ...(graph.nodes.find((node) => node.kind === 'compute' && node.inputs.includes('w2')) as ComputeNode),
    op: 'Neg',
    inputs: [input],
    outputs: [output],
  });
  const reading = graph.nodes.map((node) =>
    node.kind === 'compute' && node.inputs.includes('w2')
      ? { ...node, inputs: node.inputs.map((name) => (name === 'w2' ? 'once' : name)) }
      : node,
  );
  const nodes = [made('w2', 'once'), ...reading];
  const tensors = new Map([...graph.tensors, ['once', w2]] as const);
  t.deepEqual(
    inOrder({ ...graph, nodes, tensors }).map((instruction) =>
      instruction.kind === 'segment' ? instruction.nodes.map(({ outputs }) => outputs[0]) : instruction.kind,
    ),
    [['h', 'a'], ['once', 'y/t0'], 'start', 'wait'],
  );
});

test('a graph with a cycle is an internal error, not a hang', (t) => {
  const graph = sharded();
  const nodes = graph.nodes.map((node) =>
    node.kind === 'compute' && node.op === 'Relu' ? { ...node, inputs: ['y'] } : node,
  );
  t.throws(() => inOrder({ ...graph, nodes }), { message: /cycle/ });
});

test('the program names groups by axes and frees what nobody reads any more', (t) => {
  const { program, segments } = programOf([{ graph: mlp(), sharded: sharded() }], { name: 'mlp', fingerprint: 'f' });
  const stage = program.stages[0];
  t.is(segments.size, 2);
  t.deepEqual(Object.keys(stage?.weights ?? {}), ['w1', 'w2']);
  t.is(stage?.weights['w1']?.file, 'weights/tp-{k}.safetensors');
  const freed = stage?.phases['forward']?.flatMap((instruction) =>
    instruction.kind === 'free' ? instruction.tensors : [],
  );
  t.deepEqual([...(freed ?? [])].sort(), ['a', 'x', 'y/t0']);
  t.false(JSON.stringify(program).includes('"ranks"'));
});
