/**
 * @file Region rules by structure: the bodies of equal layers differ only in names, so one rule serves all of them.
 */
import type { TensorFactors } from '../factor-rule.js';
import type { Graph } from '../graph.js';
import { structureOf, typeKey } from '../structure-key.js';
import { composeRule, type FindEntry, type RegionRule } from './region-rule.js';

/** composeRule, computed once per structure. */
export function rememberedRule(find: FindEntry): (kind: string, body: Graph) => RegionRule | null {
  const known = new Map<string, Remembered | null>();
  return (kind, body) => {
    const { places, key: structure } = structureOf(
      body.nodes,
      (tensor) => typeKey(body.tensors.get(tensor) ?? null),
      body,
    );
    const key = `${kind} ${structure}`;
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

/** A rule whose tensors are identified by their positions. */
interface Remembered {
  readonly rule: RegionRule['rule'];
  readonly dims: readonly (readonly [place: number, dims: TensorFactors])[];
}

function byPlace({ dims }: RegionRule, places: ReadonlyMap<string, number>): Remembered['dims'] {
  return [...dims].map(([name, found]) => [places.get(name) as number, found] as const);
}
