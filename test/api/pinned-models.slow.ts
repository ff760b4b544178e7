/**
 * @file Pins that a person would write on models of PyTorch's exporters: the column and row pair of an MLP, the embedding's
 * vocabulary, the heads of an attention. Each completes to a program that verifies, and costs no more than what propagation
 * makes of the same pins. And what the search itself chose, pinned, gives the same plan again.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { importModel } from '../../src/api/models/import.js';
import { plan } from '../../src/api/plan.js';
import { annotationsOf, type PinRecord } from '../../src/api/requests/annotations.js';
import type { Graph, Node } from '../../src/ir/graph.js';
import { operatorOf } from '../../src/ir/operator-of.js';
import { ruleOf } from '../../src/ir/ops/index.js';
import { placePlan } from '../../src/strategy/placed-operators.js';
import { planPins } from '../../src/strategy/plan-pins.js';
import { missing } from '../missing.js';
import { ABSENT, dimsOf, sharedCases } from './shared-models.js';

const CASES = sharedCases();

if (missing(CASES.length === 0, `pins on ${ABSENT}`) !== null) test.skip(`pins on ${ABSENT}`, () => undefined);

for (const item of CASES) {
  const { name, file } = item;
  test.serial(name, async (t) => {
    const free = await importModel(file, { dims: await dimsOf(item) });
    const pins = [...pairPins(free.graph), ...vocabularyPins(free.graph), ...headPins(free.graph)];
    const automatic = await plan(free, { devices: 4 });
    const own = annotationsOf(planPins(placePlan(automatic.plan, free.graph)));
    const again = await plan(free, { devices: 4, annotations: own });
    t.is(again.found.costNanoseconds, automatic.found.costNanoseconds, 'its own choices, pinned, cost the same');
    for (const [node, { axes }] of automatic.found.assignment.strategies)
      t.deepEqual(again.found.assignment.strategies.get(node)?.axes, axes, `${node}: its own choice`);
    t.log(
      pins.map(({ match, factors }) => `${match.node}: ${JSON.stringify(factors)}`).join(' · ') || 'nothing to pin',
    );
    if (pins.length === 0) return;
    const annotations = annotationsOf({
      version: 1,
      pins: pins.map((pin) => ({ ...pin, match: { node: exact(pin) } })),
    });
    const options = { devices: 2, annotations };
    const searched = await plan(free, options);
    const propagated = await plan(free, { ...options, complete: 'propagate' });
    t.true(searched.found.costNanoseconds <= propagated.found.costNanoseconds);
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const { dims } = free;
    for (const complete of ['search', 'propagate'] as const) {
      const output = join(folder, complete);
      const compiled = await compile({ ...options, model: file, dims, output, complete, verify: true });
      t.true(compiled.verification?.passed, `${complete}: the program computes what the model computes`);
    }
    const { strategies } = searched.found.assignment;
    for (const { match, factors } of pins)
      for (const [factor, axes] of Object.entries(factors ?? {}))
        t.is(strategies.get(match.node ?? '')?.axes[factor]?.join(), axes as string, `${match.node}: ${factor}`);
  });
}

type NamedPin = PinRecord & { readonly match: { readonly node?: string } };

/** Characters that globs treat in their own way are taken for themselves. */
function exact({ match }: NamedPin): string {
  return (match.node ?? '').replace(/[*?[\]{}\\]/g, '\\$&');
}

/** The first two consecutive matmuls with weights: columns, then rows. */
function pairPins(graph: Graph): readonly NamedPin[] {
  const products = graph.nodes.filter((node) => node.op === 'MatMul' && graph.weights.has(node.inputs[1] ?? ''));
  const makers = new Map(graph.nodes.flatMap((node) => node.outputs.map((output) => [output, node] as const)));
  const comesFrom = (node: Node): Node | undefined => {
    let current = makers.get(node.inputs[0] ?? '');
    while (current && ['Add', 'Relu', 'Gelu'].includes(current.op)) current = makers.get(current.inputs[0] ?? '');
    return current;
  };
  for (const second of products) {
    const first = comesFrom(second);
    if (!first || !products.includes(first)) continue;
    if (sizeOf(graph, first, 'n') % 2 !== 0) continue;
    return [pin(first, { n: 'tp' }), pin(second, { k: 'tp' })];
  }
  return [];
}

function vocabularyPins(graph: Graph): readonly NamedPin[] {
  const lookup = graph.nodes.find(
    (node) => node.op === 'Gather' && graph.weights.has(node.inputs[0] ?? '') && sizeOf(graph, node, 'v') > 2,
  );
  return lookup ? [pin(lookup, { v: 'tp' })] : [];
}

function headPins(graph: Graph): readonly NamedPin[] {
  const attention = graph.nodes.find((node) => node.op === 'Attention' && sizeOf(graph, node, 'h') % 2 === 0);
  return attention ? [pin(attention, { h: 'tp' })] : [];
}

function pin(node: Node, factors: Readonly<Record<string, string>>): NamedPin {
  return { match: { node: node.name }, factors };
}

/** Size of a factor of a node; 1 where it has none of that name. */
function sizeOf(graph: Graph, node: Node, factor: string): number {
  return ruleOf(operatorOf(graph, node)).factors.get(factor)?.size ?? 1;
}
