/**
 * Whatever is pinned: strategies are legal, pins are kept, and propagating what came out changes nothing.
 */
import test from 'ava';
import fc from 'fast-check';
import type { Graph } from '../../../src/ir/graph.js';
import { operatorOf } from '../../../src/ir/operator-of.js';
import { entryOf } from '../../../src/ir/ops/index.js';
import { mayBePadded } from '../../../src/ir/padding.js';
import { axesSize, makeMesh, subAxes } from '../../../src/sharding-propagation/mesh.js';
import { type OperatorPin, satisfies } from '../../../src/sharding-propagation/pin.js';
import { propagate } from '../../../src/sharding-propagation/propagation/propagate.js';
import { checkStrategy, type Strategy } from '../../../src/sharding-propagation/strategy.js';
import { convGraph, llamaGraph, mlpGraph, SMALL_LLAMA } from '../../search/small-graphs.js';

const GRAPHS: readonly Graph[] = [
  mlpGraph(8, 64, 256, 2),
  llamaGraph({ ...SMALL_LLAMA, batch: 4, layers: 1 }),
  convGraph(4),
];

const source = { file: null, line: null, text: 'a pin', priority: 0, why: null };

/** A graph, a mesh and pins that each alone are legal. */
const cases = fc
  .record({
    graph: fc.constantFrom(...GRAPHS),
    sizes: fc.constantFrom([2, 2], [1, 4], [2, 3], [4, 2]),
    picks: fc.array(fc.tuple(fc.nat(1000), fc.nat(1000), fc.nat(1000), fc.nat(2)), { minLength: 0, maxLength: 4 }),
  })
  .map(({ graph, sizes, picks }) => {
    const [dp = 1, tp = 1] = sizes;
    const mesh = makeMesh([
      ['dp', dp],
      ['tp', tp],
    ]);
    const pins = picks.flatMap(([node, factor, axis, priority]): readonly OperatorPin[] => {
      const chosen = graph.nodes[node % graph.nodes.length];
      const entry = chosen && entryOf(chosen.op, chosen.domain);
      if (!chosen || !entry) return [];
      const operator = operatorOf(graph, chosen);
      const rule = entry.rule(operator);
      const names = [...rule.factors.keys()];
      const name = names[factor % names.length] ?? '';
      const over = subAxes(mesh)[axis % subAxes(mesh).length]?.name ?? '';
      const axes = { [name]: [over] };
      const isDivided = (rule.factors.get(name)?.size ?? 0) % axesSize(mesh, [over]) === 0;
      if (!isDivided && !mayBePadded(name, operator, rule, entry)) return [];
      const strategy: Strategy = { axes, partialOperands: null, pending: { kind: 'none' } };
      if (checkStrategy(rule, strategy, entry.linear(operator), mesh) !== null) return [];
      return [{ kind: 'operator', node: chosen.name, source: { ...source, priority }, axes }];
    });
    const distinct = [...new Map(pins.map((pin) => [pin.node, pin])).values()];
    return { graph, mesh, pins: distinct };
  });

test('strategies are legal, pins kept, and the outcome is a fixed point', (t) => {
  fc.assert(
    fc.property(cases, ({ graph, mesh, pins }) => {
      const found = propagate(graph, mesh, pins);
      const everything = graph.nodes.map((node): OperatorPin => {
        const entry = entryOf(node.op, node.domain);
        const strategy = found.strategies.get(node.group);
        if (!entry || !strategy) throw new Error(`no strategy for ${node.name}`);
        const operator = operatorOf(graph, node);
        const [rule, linear] = [entry.rule(operator), entry.linear(operator)];
        const problem = checkStrategy(rule, strategy, linear, mesh);
        if (problem) throw new Error(`${node.name}: ${problem}`);
        for (const pin of pins)
          if (pin.node === node.name && !satisfies(pin, strategy, rule, linear, mesh))
            throw new Error(`${node.name} does not keep ${JSON.stringify(pin.axes)}: ${JSON.stringify(strategy)}`);
        const cutting = Object.values(strategy.axes).flat();
        if (new Set(cutting).size !== cutting.length) throw new Error(`${node.name} uses an axis twice`);
        const whole = [...rule.factors.keys()].filter((name) => !strategy.pieces?.[name]);
        const axes = { ...Object.fromEntries(whole.map((name) => [name, []])), ...strategy.axes };
        return {
          kind: 'operator',
          node: node.name,
          source,
          axes,
          ...(strategy.pieces ? { pieces: strategy.pieces } : {}),
        };
      });
      const again = propagate(graph, mesh, everything);
      for (const [name, strategy] of found.strategies) {
        const now = again.strategies.get(name);
        if (JSON.stringify(sorted(now)) !== JSON.stringify(sorted(strategy)))
          throw new Error(`${name}: ${JSON.stringify(strategy)}, again ${JSON.stringify(now)}`);
      }
    }),
    { numRuns: 60 },
  );
  t.pass();
});

test('it is deterministic', (t) => {
  fc.assert(
    fc.property(cases, ({ graph, mesh, pins }) => {
      const [first, second] = [propagate(graph, mesh, pins), propagate(graph, mesh, pins)];
      return JSON.stringify([...first.strategies]) === JSON.stringify([...second.strategies]);
    }),
    { numRuns: 10 },
  );
  t.pass();
});

/** Axes and pieces in the order of their names; pending reductions are a question of layouts, not of strategies. */
function sorted(strategy: Strategy | undefined): unknown {
  const byName = (record: object = {}) => Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1));
  return [byName(strategy?.axes), byName(strategy?.pieces)];
}
