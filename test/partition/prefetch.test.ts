/**
 * @file Gathers of weights that begin early never keep anything waiting: in random graphs with collectives in random buckets,
 * every node runs once, behind its operands, and the collectives of a bucket begin one
 * after the other.
 */
import test from 'ava';
import fc from 'fast-check';
import type { DType } from '../../src/ir/dtype.js';
import { inBuckets } from '../../src/partition/buckets.js';
import { orderLists } from '../../src/partition/order.js';
import { readsOf, resultsOf, type ShardedGraph, type ShardedNode } from '../../src/partition/sharded-graph.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import { draws } from '../selection.js';

const WEIGHTS = 4;

/** Layers in a row, each of which reads what some gathers, or local operators on gathered or stored weights, make. */
const drawnGraphs = fc
  .record({
    layers: fc.array(
      fc.record({
        name: fc.boolean(),
        gathers: fc.array(fc.record({ weight: fc.nat(WEIGHTS - 1), isTransposed: fc.boolean() }), { maxLength: 3 }),
        readsEarlier: fc.nat(100),
        isBackward: fc.boolean(),
      }),
      { minLength: 1, maxLength: 8 },
    ),
    bucketMembers: fc.integer({ min: 1, max: 8 }),
  })
  .map(({ layers, bucketMembers }): ShardedGraph => {
    const nodes: ShardedNode[] = [];
    const gathered: string[] = [];
    const states = ['x'];
    let isBackward = false;
    for (const [index, layer] of layers.entries()) {
      isBackward ||= layer.isBackward;
      const phase = isBackward ? 'backward-input' : 'forward';
      const common = { layer: layer.name ? `layer ${index}` : null, phase } as const;
      const compute = (inputs: readonly string[], output: string) =>
        nodes.push({
          ...{ ...common, kind: 'compute', name: output, origin: output, op: 'Add', domain: '', attributes: {} },
          ...{ flops: 0, bytes: 0, inputs, outputs: [output] },
        });
      const own = layer.gathers.map(({ weight, isTransposed }, number) => {
        const [input, output] = [isTransposed ? `t${index}.${number}` : `w${weight}`, `g${index}.${number}`];
        if (isTransposed) compute([`w${weight}`], input);
        const collective = { kind: 'all-gather', outer: 1, inner: 1 } as const;
        nodes.push({
          ...common,
          kind: 'communicate',
          name: output,
          origin: output,
          collective,
          axes: [],
          input,
          output,
        });
        return output;
      });
      gathered.push(...own);
      const earlier = gathered[layer.readsEarlier];
      compute([states.at(-1) as string, ...own, ...(earlier === undefined ? [] : [earlier])], `s${index}`);
      states.push(`s${index}`);
    }
    const names = new Set(['x', ...nodes.flatMap((node) => [...readsOf(node), ...resultsOf(node)])]);
    const dtype: DType = 'float32';
    const tensor = { dtype, shape: [2], localShape: [2], layout: { dims: [[{ size: 2, axes: [] }]], partial: [] } };
    return inBuckets(
      {
        mesh: makeMesh([]),
        nodes,
        tensors: new Map([...names].map((name) => [name, { name, ...tensor }])),
        coordinates: [],
        weights: Array.from({ length: WEIGHTS }, (_, index) => ({ tensor: `w${index}`, weight: `w${index}` })),
        constants: new Map(),
        inputs: [{ tensor: 'x', input: 'x' }],
        outputs: [{ tensor: states.at(-1) as string, output: 'y' }],
        state: [],
      },
      { bucketMembers },
    );
  });

test('every node runs once, behind its operands; buckets begin whole', (t) => {
  let ahead = 0;
  fc.assert(
    fc.property(drawnGraphs, (graph) => {
      const there = new Set(['x', ...graph.weights.map(({ tensor }) => tensor)]);
      const run: ShardedNode[] = [];
      const isReady = (node: ShardedNode) => readsOf(node).every((name) => there.has(name));
      let last: number | undefined;
      const closed = new Set<number>();
      let computesSince = new Map<string, boolean>();
      for (const instruction of orderLists(graph).flatMap(({ instructions }) => instructions)) {
        const bucket = instruction.kind === 'start' ? instruction.node.bucket?.id : undefined;
        if (last !== undefined && bucket !== last) closed.add(last);
        if (bucket !== undefined && closed.has(bucket)) return false;
        last = bucket;
        if (instruction.kind === 'segment') {
          computesSince = new Map([...computesSince.keys()].map((name) => [name, true]));
          for (const node of instruction.nodes) {
            if (!isReady(node)) return false;
            run.push(node);
            for (const name of resultsOf(node)) there.add(name);
          }
        } else if (instruction.kind === 'start') {
          if (!isReady(instruction.node)) return false;
          run.push(instruction.node);
          computesSince.set(instruction.node.output, false);
        } else if (instruction.kind === 'wait') {
          there.add(instruction.node.output);
          if (computesSince.get(instruction.node.output)) ahead++;
        }
      }
      return run.length === graph.nodes.length && new Set(run).size === run.length;
    }),
    { numRuns: draws(2000) },
  );
  t.true(ahead > 0, 'some gathers travel while something computes');
});
