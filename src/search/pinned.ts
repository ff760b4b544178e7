/**
 * @file Pins for the search: a demand on a tensor becomes one on its producer's result, on the feeding of an input, or on every
 * reader of a weight. All pins are then filters on candidates.
 */
import { AutoparError } from '../ir/error.js';
import type { Graph } from '../ir/graph.js';
import { appendTo } from '../ir/group-by.js';
import { makersOf, readersOf } from '../ir/makers-and-readers.js';
import { type Layout, mergedLayout, normalise } from '../sharding-propagation/layout.js';
import { type Mesh, type SubAxis, subAxes } from '../sharding-propagation/mesh.js';
import { type LayoutDemand, meets, type OperatorPin, type Pin, type PinSource } from '../sharding-propagation/pin.js';

export interface SearchPins {
  /** By node name. */
  readonly operators: ReadonlyMap<string, readonly OperatorPin[]>;
  readonly inputs: ReadonlyMap<string, readonly PinnedInput[]>;
}

export interface PinnedInput {
  readonly demand: LayoutDemand;
  readonly source: PinSource;
}

export const NO_PINS: SearchPins = { operators: new Map(), inputs: new Map() };

/** Pins by the operators and inputs that they bind. Pins for stages and recomputation bind no strategy. */
export function searchPins(graph: Graph, pins: readonly Pin[]): SearchPins {
  if (pins.length === 0) return NO_PINS;
  const operators = new Map<string, OperatorPin[]>();
  const inputs = new Map<string, PinnedInput[]>();
  const makers = makersOf(graph.nodes);
  const readers = readersOf(graph.nodes);
  const at = (names: readonly (string | null)[], tensor: string, demand: LayoutDemand) =>
    names.map((name) => (name === tensor ? demand : null));
  for (const pin of pins) {
    if (pin.kind === 'operator') appendTo(operators, pin.node, pin);
    if (pin.kind !== 'tensor') continue;
    const { tensor, demand, source } = pin;
    const maker = makers.get(tensor);
    if (maker) {
      const results = at(maker.outputs, tensor, demand);
      appendTo(operators, maker.name, { kind: 'operator', node: maker.name, source, results });
    } else if (graph.weights.has(tensor)) {
      for (const reader of readers.get(tensor) ?? []) {
        const operands = at(reader.inputs, tensor, demand);
        appendTo(operators, reader.name, { kind: 'operator', node: reader.name, source, operands });
      }
    } else appendTo(inputs, tensor, { demand, source });
  }
  return { operators, inputs };
}

/** The content of pins, without their sources: operators of equal structure under equal pins share their candidates. */
export function pinsKey(pins: readonly OperatorPin[]): string {
  return JSON.stringify(pins.map(({ kind: _kind, node: _node, source: _source, ...asked }) => asked));
}

/** The layouts that a pinned input may be fed in: those of its readers that fit, else one made of the pin. */
export function pinnedInputLayouts(
  input: string,
  shape: readonly number[],
  asked: readonly Layout[],
  pins: readonly PinnedInput[],
  mesh: Mesh,
): readonly Layout[] {
  const fitting = asked.filter((layout) => pins.every(({ demand }) => meets(demand, layout, mesh)));
  if (fitting.length > 0) return fitting;
  const [first] = pins;
  const made = first && layoutOfDemand(first.demand, shape, mesh);
  if (made && pins.every(({ demand }) => meets(demand, made, mesh))) return [made];
  throw unsatisfiable(
    `input ${input}`,
    pins.map(({ source }) => source),
    'no layout of it on this mesh satisfies them',
  );
}

/** The error for pins that nothing can satisfy; `reason` is a clause. */
export function unsatisfiable(what: string, sources: readonly PinSource[], reason: string): AutoparError {
  const [first] = sources;
  return new AutoparError(
    'pin-cannot-be-kept',
    'noPlan',
    `${sources.map(({ text }) => text).join(' and ')}: ${what} cannot satisfy this: ${reason}`,
    {
      ...(first?.file ? { file: first.file } : {}),
      ...(first?.line ? { line: first.line } : {}),
    },
    'Pin a layout that the rule allows, or pin less and let the search complete the rest.',
  );
}

/** A layout with so many parts per dimension, sub-axes taken in the mesh's order; null where they do not multiply to it. */
function layoutOfDemand(demand: LayoutDemand, shape: readonly number[], mesh: Mesh): Layout | null {
  if (demand.kind === 'layout') return mergedLayout(demand.layout, mesh);
  const free = [...subAxes(mesh)];
  const dims: { readonly size: number; readonly axes: readonly SubAxis[] }[][] = [];
  for (const [axis, size] of shape.entries()) {
    const axes: SubAxis[] = [];
    let rest = demand.counts[axis] ?? 1;
    while (rest > 1) {
      const index = free.findIndex((sub) => rest % sub.size === 0);
      const [taken] = index < 0 ? [] : free.splice(index, 1);
      if (!taken) return null;
      axes.push(taken.name);
      rest /= taken.size;
    }
    if (size % (demand.counts[axis] ?? 1) !== 0) return null;
    dims.push([{ size, axes }]);
  }
  return normalise(dims, [], mesh);
}
