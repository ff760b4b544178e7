/**
 * @file Block rules by structure: the bodies of equal layers differ in nothing but names, so the rule of one serves all.
 */
import type { TensorFactors } from '../factor-rule.js';
import type { Graph } from '../graph.js';
import { attributesKey } from '../passes/attributes-key.js';
import { type BlockRule, composeRule, type FindEntry } from './block-rule.js';

/** composeRule, done once for each structure that comes by. */
export function rememberedRule(find: FindEntry): (kind: string, body: Graph) => BlockRule | null {
  const known = new Map<string, Remembered | null>();
  return (kind, body) => {
    const places = placesOf(body);
    const key = `${kind} ${structureOf(body, places)}`;
    const found = known.get(key);
    if (found === undefined) {
      const composed = composeRule(kind, body, find);
      known.set(key, composed && { rule: composed.rule, dims: byPlace(composed, places) });
      return composed;
    }
    if (found === null) return null;
    const names = [...places.keys()];
    return { rule: found.rule, dims: new Map(found.dims.map(([place, dims]) => [names[place] as string, dims])) };
  };
}

/** A rule whose tensors are told by their places. */
interface Remembered {
  readonly rule: BlockRule['rule'];
  readonly dims: readonly (readonly [place: number, dims: TensorFactors])[];
}

function byPlace({ dims }: BlockRule, places: ReadonlyMap<string, number>): Remembered['dims'] {
  return [...dims].map(([name, found]) => [places.get(name) as number, found] as const);
}

/** Tensors in the order in which they are first mentioned. */
function placesOf({ nodes, inputs, outputs }: Graph): ReadonlyMap<string, number> {
  const places = new Map<string, number>();
  const see = (names: readonly (string | null)[]) => {
    for (const name of names) if (name !== null && !places.has(name)) places.set(name, places.size);
  };
  see(inputs);
  for (const node of nodes) {
    see(node.inputs);
    see(node.outputs);
  }
  see(outputs);
  return places;
}

/** All of a body that its rule can depend on. */
function structureOf(body: Graph, places: ReadonlyMap<string, number>): string {
  const placesIn = (names: readonly (string | null)[]) =>
    names.map((name) => (name === null ? null : places.get(name)));
  const nodes = body.nodes.map(({ domain, op, attributes, inputs, outputs }) => [
    domain,
    op,
    attributesKey(attributes),
    placesIn(inputs),
    placesIn(outputs),
  ]);
  const types = [...places.keys()].map((name) => {
    const type = body.tensors.get(name);
    return type ? [type.dtype, type.shape] : null;
  });
  return JSON.stringify([nodes, types, placesIn(body.inputs), placesIn(body.outputs)]);
}
