/**
 * @file A MindSpore strategy checkpoint as pins on a model: split counts of operators by key, layouts of parameters by name.
 *
 * Keys and names are those of keys.ts for the model at hand. Where no operator has the key, one whose first parameter has
 * the name after the underscore is taken, if there is just one: MindSpore's primitive may be another than ours.
 */
import { AutoparError } from '../../ir/error.js';
import { type Graph, type Node, storedIn } from '../../ir/graph.js';
import { offer } from '../../ir/nearest.js';
import { isConversion } from '../../ir/ops/index.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import type { AnnotationRecord, PinRecord } from '../../sharding-propagation/annotations/annotation.js';
import { fileShape } from '../../sharding-propagation/file-form.js';
import { layoutText } from '../../sharding-propagation/layout-text.js';
import { deviceCount, type Mesh } from '../../sharding-propagation/mesh.js';
import { stagePlaces } from '../chunks.js';
import { exactly, pinDocument } from '../pin-document.js';
import { layoutOfDevices, splitCounts } from './device-matrix.js';
import { type KeyedStrategy, type MindSporeStrategy, parameterOf, stageDevices } from './document.js';
import { firstParameters, strategyKeys } from './keys.js';

export interface ImportedPins {
  readonly pins: AnnotationRecord;
  /** Contents of the file that do not fit the model or the mesh, a line each. */
  readonly notes: readonly string[];
}

export interface PinOptions {
  /** The devices of one stage; a checkpoint for another number is refused. */
  readonly mesh: Mesh;
  /** All devices, of all stages, where they are known: a checkpoint for another number is refused. */
  readonly devices?: number | undefined;
  /** Names the checkpoint in errors. */
  readonly file: string;
}

/**
 * The pins of a checkpoint on a graph.
 * @throws AutoparError `strategy-mismatch` (input) for another number of devices, for split counts of another rank than
 *   the operator's, and where nothing in the file is of this model
 */
export function mindSporePins(document: MindSporeStrategy, graph: Graph, options: PinOptions): ImportedPins {
  const { mesh, file } = options;
  checkDevices(document, options);
  const notes: string[] = [];
  const named = matchKeys(document, graph, notes, file);
  const stages = stageCount(document);
  const placeOf = places(document, graph, named, notes);
  const operators = graph.nodes.flatMap((node): readonly PinRecord[] => {
    const strategy = named.get(node);
    if (!strategy) return [];
    checkSplits(node, strategy, graph, file);
    return [{ match: { node: exactly(node.name) }, split: perOperand(node, strategy), ...placeOf(node) }];
  });
  const parameters = parameterPins(document, graph, mesh, named, notes);
  if (operators.length + parameters.length === 0) throw nothingMatches(document, graph, file);
  return { pins: pinDocument(mesh, [...operators, ...parameters], hasAllStages(document) ? stages : 1), notes };
}

function checkDevices(document: MindSporeStrategy, { mesh, devices: all, file }: PinOptions): void {
  const { devices, differs } = stageDevices(document);
  if (differs !== undefined) throw mismatch(file, `contradicts itself: ${differs}`);
  const here = deviceCount(mesh);
  const stages = stageCount(document);
  if (all !== undefined && all !== (devices ?? here) * stages)
    throw mismatch(file, `is for ${(devices ?? here) * stages} devices, there are ${all}`, 'plan for as many devices');
  if (devices === null || devices === here) return;
  throw mismatch(
    file,
    `is for ${devices} devices in a stage, the mesh has ${here} ` +
      `(${mesh.axes.map(({ name, size }) => `${name} ${size}`).join(' · ')})`,
    `give degrees that multiply to ${devices}`,
  );
}

/** Whether the graph has every parameter of a checkpoint. */
export function namesParameters({ parameters }: MindSporeStrategy, graph: Graph): boolean {
  return [...parameters.keys()].every((name) => parameterIn(graph, name) !== null);
}

/** The tensor of a parameter, whose name may have its stage in front; null where the graph lacks it. */
function parameterIn(graph: Graph, name: string): string | null {
  const { parameter } = parameterOf(name);
  return [name, parameter].find((tensor) => storedIn(graph, tensor)) ?? null;
}

/** Stages of the pipeline, as far as a file of some of them shows. */
function stageCount({ operators }: MindSporeStrategy): number {
  return [...operators.values()].reduce((most, { stage }) => Math.max(most, stage + 1), 1);
}

/** Stage and chunk of a pin, by operator: nothing without a pipeline, and where the order of the stages cannot be planned. */
function places(
  document: MindSporeStrategy,
  graph: Graph,
  named: ReadonlyMap<Node, KeyedStrategy>,
  notes: string[],
): (node: Node) => Pick<PinRecord, 'stage' | 'chunk'> {
  if (stageCount(document) === 1) return () => ({});
  const stages = new Map([...named].map(([node, { stage }]) => [node, stage]));
  if (!hasAllStages(document)) return (node) => withoutUndefined({ stage: stages.get(node) });
  return stagePlaces(graph, stages, notes);
}

function hasAllStages(document: MindSporeStrategy): boolean {
  return new Set([...document.operators.values()].map(({ stage }) => stage)).size === stageCount(document);
}

function matchKeys(
  document: MindSporeStrategy,
  graph: Graph,
  notes: string[],
  file: string,
): ReadonlyMap<Node, KeyedStrategy> {
  const keys = strategyKeys(graph);
  const byKey = new Map([...keys].map(([node, key]) => [key, node]));
  const readers = readersByParameter(graph);
  const found = new Map<Node, KeyedStrategy>();
  const strangers: string[] = [];
  for (const [key, strategy] of document.operators) {
    const node = byKey.get(key) ?? onlyReader(key, readers);
    if (!node) strangers.push(key);
    else if (found.has(node))
      throw mismatch(file, `has two contradicting entries for operator ${node.name}: ${key} and another key`);
    else found.set(node, strategy);
  }
  if (strangers.length > 0 && found.size > 0) notes.push(`no operator for ${listed(strangers)}`);
  return found;
}

function readersByParameter(graph: Graph): ReadonlyMap<string, readonly Node[]> {
  const readers = new Map<string, Node[]>();
  const firstParameter = firstParameters(graph);
  for (const node of graph.nodes) {
    const first = isConversion(node) ? null : firstParameter(node);
    if (first !== null) readers.set(first, [...(readers.get(first) ?? []), node]);
  }
  return readers;
}

function onlyReader(key: string, readers: ReadonlyMap<string, readonly Node[]>): Node | undefined {
  // The cast of a parameter is not what reads it.
  if (key.startsWith('Cast_')) return undefined;
  const [only, ...others] = readers.get(key.slice(key.indexOf('_') + 1)) ?? [];
  return others.length === 0 ? only : undefined;
}

function checkSplits(node: Node, { splits }: KeyedStrategy, graph: Graph, file: string): void {
  const operands = node.inputs.filter((input) => input !== null);
  if (splits.length !== operands.length) {
    throw mismatch(
      file,
      `splits ${splits.length} operands of operator ${node.name}, which has ${operands.length}`,
      undefined,
      node.name,
    );
  }
  splits.forEach((counts, index) => {
    const shape = fileShape(graph, operands[index] ?? '');
    if (counts.length !== shape.length) {
      throw mismatch(
        file,
        `splits operand ${index} of operator ${node.name} as (${counts.join(', ')}), its shape is [${shape.join(', ')}]`,
        undefined,
        node.name,
      );
    }
  });
}

/** Counts at the operands' places: MindSpore has none for optional operands that are left out. */
function perOperand(node: Node, { splits }: KeyedStrategy): readonly (readonly number[] | null)[] {
  let next = 0;
  return node.inputs.map((input) => (input === null ? null : (splits[next++] ?? null)));
}

/**
 * Layouts of parameters. MindSpore keeps one layout of each, and reshards for operators that want another: where an
 * operator's split counts are others, they decide.
 */
function parameterPins(
  document: MindSporeStrategy,
  graph: Graph,
  mesh: Mesh,
  named: ReadonlyMap<Node, KeyedStrategy>,
  notes: string[],
): readonly PinRecord[] {
  const asked = splitsByTensor(named);
  const strangers: string[] = [];
  const spread: string[] = [];
  const pins: PinRecord[] = [];
  for (const [name, stated] of document.parameters) {
    const tensor = parameterIn(graph, name);
    if (tensor === null) {
      strangers.push(name);
      continue;
    }
    if (stated.optimizerShardSize > 1) {
      spread.push(name);
      continue;
    }
    const layout = layoutOfDevices(stated, fileShape(graph, tensor), mesh);
    const other =
      layout && (asked.get(tensor) ?? []).find(({ counts }) => counts.join() !== splitCounts(layout, mesh).join());
    if (other)
      notes.push(
        `parameter ${tensor} has another layout at its reader ${other.node}; the operators' split counts decide`,
      );
    else if (layout) pins.push({ match: { tensor: exactly(tensor) }, layout: layoutText(layout, mesh) });
    else {
      const map = stated.tensorMap
        .map((axes) => (axes.length === 1 ? `${axes[0]}` : `(${axes.join(', ')})`))
        .join(', ');
      const cut = `device matrix (${stated.deviceMatrix.join(', ')}) with tensor map (${map})`;
      const shape = fileShape(graph, tensor).join(', ');
      notes.push(`parameter ${tensor}: ${cut} cannot shard [${shape}] on this mesh; not pinned`);
    }
  }
  if (spread.length > 0)
    notes.push(
      `at rest, ${spread.length} parameters are in shards of the optimizer, which are not pinned: compile with --zero 3`,
    );
  if (strangers.length > 0 && pins.length > 0) notes.push(`no parameter for ${listed(strangers)}`);
  return pins;
}

/** Split counts of each tensor, by the operators that read it. */
function splitsByTensor(
  named: ReadonlyMap<Node, KeyedStrategy>,
): ReadonlyMap<string, readonly { readonly node: string; readonly counts: readonly number[] }[]> {
  const asked = new Map<string, { readonly node: string; readonly counts: readonly number[] }[]>();
  for (const [node, strategy] of named) {
    for (const [operand, counts] of perOperand(node, strategy).entries()) {
      const tensor = node.inputs[operand];
      if (tensor && counts) asked.set(tensor, [...(asked.get(tensor) ?? []), { node: node.name, counts }]);
    }
  }
  return asked;
}

function nothingMatches(document: MindSporeStrategy, graph: Graph, file: string): AutoparError {
  const [key] = document.operators.keys();
  const [parameter] = document.parameters.keys();
  const hint =
    parameter === undefined
      ? offer(key ?? '', [...strategyKeys(graph).values()])
      : offer(parameterOf(parameter).parameter, [...graph.weights.keys(), ...(graph.initial?.keys() ?? [])]);
  return mismatch(
    file,
    `belongs to another model: none of its ${document.operators.size} operators and ${document.parameters.size} ` +
      `parameters is in this one (${listed([key, parameter].filter((name) => name !== undefined))})`,
    hint,
  );
}

function listed(names: readonly string[]): string {
  const shown = names.slice(0, 5).join(', ');
  return names.length > 5 ? `${shown} and ${names.length - 5} more` : shown;
}

function mismatch(file: string, what: string, hint?: string, node?: string): AutoparError {
  return new AutoparError(
    'strategy-mismatch',
    'input',
    `the strategy checkpoint ${what}`,
    { file, ...(node === undefined ? {} : { node }) },
    hint ?? 'give the checkpoint that was made for this model; for one of a plan with --sp, give --sp as well',
  );
}
