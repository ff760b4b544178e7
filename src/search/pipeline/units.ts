/**
 * @file The units of which stages consist: the repeated layers of a model, and the operators before, between and after them, in
 * an order in which every unit reads from earlier ones only. Each kind has a letter, so that a layout of stages is written as
 *
 *     E t*3 | t*2 | t*3 H
 */

import { type Graph, isBackward, type Node } from '../../ir/graph.js';
import { appendTo } from '../../ir/group-by.js';
import { needed } from '../../ir/needed.js';
import { isConversion } from '../../ir/ops/index.js';
import { madeOnce } from '../../ir/remembered.js';

/** Operators that stay on one stage. */
export interface StageUnit {
  /**
   * Equal for units of one kind: `t`, `u`, … for layers, `E` and `H` for operators before and after them, `M` for those between,
   * `o` for a single operator.
   */
  readonly letter: string;
  /** The layer, or the first operator. */
  readonly name: string;
  /** Forward operators, in the graph's order. */
  readonly operators: readonly string[];
}

/**
 * The units of a graph's forward operators, in order; a model has the same ones whether it is trained or not. Operators that
 * training adds after the model for its loss belong to the last one.
 * @param least how many units are needed: where the layers make fewer, every operator is a unit
 */
export function stageUnits(graph: Graph, least: number): readonly StageUnit[] {
  const forward = graph.nodes.filter(({ phase }) => phase === 'forward');
  const own = ownOperators(graph, forward);
  const byLayers = layerUnits(own);
  const units = byLayers.some(isLayer) && byLayers.length >= least ? byLayers : operatorUnits(own);
  const kept = new Set(own);
  const added = forward.filter((node) => !kept.has(node)).map(({ name }) => name);
  return units.map((unit, index) =>
    index === units.length - 1 ? { ...unit, operators: [...unit.operators, ...added] } : unit,
  );
}

/** Operators that lead to an output of the model. A loss that was added is a training graph's first output. */
function ownOperators({ nodes, outputs }: Graph, forward: readonly Node[]): readonly Node[] {
  const [, ...ofModel] = outputs;
  if (ofModel.length === 0 || !nodes.some(({ phase }) => isBackward(phase))) return forward;
  return needed(forward, ofModel);
}

/** The letters of units, equal ones in a row as `t*3`. */
export function lettersOf(units: readonly StageUnit[]): string {
  const rows: { readonly letter: string; count: number }[] = [];
  for (const { letter } of units) {
    const last = rows.at(-1);
    if (last?.letter === letter) last.count++;
    else rows.push({ letter, count: 1 });
  }
  return rows.map(({ letter, count }) => (count === 1 ? letter : `${letter}*${count}`)).join(' ');
}

/** The units of a model whose layers alone are known: what is before them, the layers by class, and what is behind. */
export function unitsOfLayers(order: readonly number[]): readonly StageUnit[] {
  const unit = (letter: string, name: string): StageUnit => ({ letter, name, operators: [] });
  const layers = order.map((kind, layer) => unit(LAYERS[kind] ?? BETWEEN, `layer ${layer}`));
  return [unit(BEFORE, 'before the layers'), ...layers, unit(BEHIND, 'behind the layers')];
}

const LAYERS = 'tuvwxyzabcdefghijklmnpqrs';
const BEFORE = 'E';
const BETWEEN = 'M';
const BEHIND = 'H';
const OPERATOR = 'o';

function isLayer({ letter }: StageUnit): boolean {
  return LAYERS.includes(letter);
}

function operatorUnits(forward: readonly Node[]): readonly StageUnit[] {
  const units: { readonly letter: string; readonly name: string; readonly operators: string[] }[] = [];
  const made = new Set<string | null>();
  let waiting: string[] = [];
  for (const node of forward) {
    const { name, inputs, outputs } = node;
    const last = units.at(-1);
    // A conversion joins the unit that it reads from, or else the next one.
    if (isConversion(node) && !(last && inputs.some((input) => made.has(input)))) {
      waiting.push(name);
      continue;
    }
    if (last && isConversion(node)) last.operators.push(name);
    else {
      units.push({ letter: OPERATOR, name, operators: [...waiting, name] });
      made.clear();
      waiting = [];
    }
    for (const output of outputs) made.add(output);
  }
  units.at(-1)?.operators.push(...waiting);
  return units;
}

function layerUnits(forward: readonly Node[]): readonly StageUnit[] {
  const layers = [...new Set(forward.flatMap(({ layer }) => (layer === null ? [] : [layer])))];
  const groups = new Map<string, Node[]>();
  const seen = new Set<string>();
  const early = readEarly(forward);
  for (const node of forward) {
    if (node.layer !== null) seen.add(node.layer);
    // Operators outside of layers form one group between the beginnings of two layers.
    const before = early.has(node) ? [...groups.keys()].findLast((key) => key.startsWith(OUTSIDE)) : undefined;
    const key = node.layer === null ? (before ?? `${OUTSIDE} ${seen.size}`) : `layer ${node.layer}`;
    appendTo(groups, key, node);
  }
  const kinds = new Map<string, string>();
  return inOrder([...groups.values()]).map((nodes): StageUnit => {
    const operators = nodes.map(({ name }) => name);
    const [first] = nodes as [Node];
    const own = new Set(nodes.map(({ layer }) => layer));
    if (own.size === 1 && first.layer !== null) {
      const kind = nodes.flatMap((node) => (isConversion(node) ? [] : [`${node.domain}:${node.op}`])).join();
      const letter = madeOnce(kinds, kind, () => LAYERS[kinds.size] ?? BETWEEN);
      return { letter, name: first.layer, operators };
    }
    const isBefore = own.size === 1 && forward.indexOf(first) < forward.findIndex(({ layer }) => layer !== null);
    const last = layers.at(-1);
    const isBehind = own.size === 1 && forward.findLastIndex(({ layer }) => layer === last) < forward.indexOf(first);
    return { letter: isBefore ? BEFORE : isBehind ? BEHIND : BETWEEN, name: first.name, operators };
  });
}

const OUTSIDE = 'outside';

/**
 * Operators outside of layers that read from no layer and come after the beginning of one that reads them, such as a mask of all
 * layers: they could also come before it.
 */
function readEarly(forward: readonly Node[]): ReadonlySet<Node> {
  const begins = new Map<string, number>();
  for (const [index, { layer }] of forward.entries())
    if (layer !== null && !begins.has(layer)) begins.set(layer, index);
  // By tensor: the beginning of the first layer that reads it, directly or through operators outside of layers.
  const read = new Map<string | null, number>();
  const early = new Set<Node>();
  for (let index = forward.length - 1; index >= 0; index--) {
    const node = forward[index] as Node;
    const { layer, inputs, outputs } = node;
    const begin =
      layer === null
        ? Math.min(...outputs.map((name) => read.get(name) ?? Number.POSITIVE_INFINITY))
        : (begins.get(layer) ?? index);
    for (const name of inputs) read.set(name, Math.min(begin, read.get(name) ?? Number.POSITIVE_INFINITY));
    if (layer === null && begin < index) early.add(node);
  }
  const ofLayers = new Set<string | null>();
  for (const node of forward) {
    if (node.layer === null && !node.inputs.some((name) => name !== null && ofLayers.has(name))) continue;
    for (const name of node.outputs) ofLayers.add(name);
    early.delete(node);
  }
  return early;
}

/** Merges groups that read from one another in both directions. */
function inOrder(groups: readonly (readonly Node[])[]): readonly (readonly Node[])[] {
  const place = new Map<string, number>();
  for (const [index, nodes] of groups.entries())
    for (const { outputs } of nodes) for (const name of outputs) if (name !== null) place.set(name, index);
  // By group: the first group with which it is joined.
  const joinedTo = groups.map((_, index) => index);
  for (const [index, nodes] of groups.entries()) {
    for (const name of nodes.flatMap(({ inputs }) => inputs)) {
      const maker = name === null ? undefined : place.get(name);
      if (maker === undefined || maker <= index) continue;
      for (let later = index; later <= maker; later++)
        joinedTo[later] = Math.min(joinedTo[later] as number, joinedTo[index] as number);
    }
  }
  const joined: Node[][] = [];
  for (const [index, nodes] of groups.entries()) {
    if (joinedTo[index] === index || joined.length === 0) joined.push([...nodes]);
    else joined.at(-1)?.push(...nodes);
  }
  return joined;
}
