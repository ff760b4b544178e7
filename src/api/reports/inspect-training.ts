/**
 * @file The memory of training a model: trained parameters with their groups, gradients, optimizer state, and bytes.
 */
import { completeOptimizer } from '../../ir/autodiff/optimizer-options.js';
import { byteLength, type DType } from '../../ir/dtype.js';
import { flattenRegions } from '../../ir/fused-regions/flatten-regions.js';
import { elementCount, type Graph, type TensorType, typeOf } from '../../ir/graph.js';
import { fileShape } from '../../sharding-propagation/file-form.js';
import type { ImportedModel } from '../models/import.js';
import { decayOf, trainingGraphOf } from '../models/training.js';
import type { Training } from '../requests/training-request.js';

/** Bytes of one parameter or of all parameters, on a device that holds them unsharded. */
export interface TrainingBytes {
  /** Bytes of the weights that the optimizer changes. */
  readonly weightBytes: number;
  /** Bytes of the 16-bit copies that the operators of a mixed-precision recipe read. */
  readonly copyBytes: number;
  readonly gradientBytes: number;
  /** Bytes of optimizer state, such as moments. */
  readonly stateBytes: number;
}

export interface TrainedRow extends TensorType, TrainingBytes {
  readonly name: string;
  readonly elements: number;
  /** Whether weight decay applies to it. */
  readonly decays: boolean;
  /** Names of its optimizer state. */
  readonly state: readonly string[];
}

export interface TrainingInspection {
  readonly loss: string;
  /** The input for labels or targets; null if the model computes its loss itself. */
  readonly labels: string | null;
  readonly optimizer: string;
  readonly weightDecay: number;
  readonly precision: string;
  readonly parameters: readonly TrainedRow[];
  readonly groups: readonly { readonly decays: boolean; readonly count: number; readonly elements: number }[];
  /** State that belongs to no parameter: the step count, a loss scale. */
  readonly scalars: readonly string[];
  /** Running statistics, which a step updates without a gradient. */
  readonly statistics: readonly string[];
  readonly total: TrainingBytes;
  /** Number of operators of the model, and of a training step. */
  readonly operators: { readonly forward: number; readonly step: number };
}

/** @throws AutoparError as `withTraining` */
export function inspectTraining(imported: ImportedModel, training: Training): TrainingInspection {
  const { step, form } = trainingGraphOf(imported, training);
  const { graph, loss, labels, trained } = step;
  const forward = form.graph;
  const decays = decayOf(forward, training);
  const names = new Set(trained);
  const states = new Map<string, string[]>(trained.map((name) => [name, []]));
  const [scalars, statistics]: [string[], string[]] = [[], []];
  for (const { input } of graph.state) {
    if (names.has(input)) continue;
    const owner = states.get(input.slice(0, input.lastIndexOf('/')));
    const other = typeOf(graph, input).shape.length === 0 ? scalars : statistics;
    (owner ?? other).push(input);
  }
  const copies = copiesOf(graph, names);
  const parameters = trained.map((name): TrainedRow => {
    const { dtype } = typeOf(graph, name);
    const shape = fileShape(graph, name);
    const state = states.get(name) ?? [];
    const weightBytes = bytesOf(graph, name);
    return {
      ...{ name, dtype, shape, elements: elementCount(shape), decays: decays(name), state },
      weightBytes,
      copyBytes: copies.get(name) ?? 0,
      // Gradients have the types of their weights.
      gradientBytes: weightBytes,
      stateBytes: state.reduce((sum, item) => sum + bytesOf(graph, item), 0),
    };
  });
  const { optimizer, precision = 'fp32' } = training;
  return {
    ...{ loss, labels, optimizer: optimizer.kind, precision, parameters, scalars, statistics },
    weightDecay: completeOptimizer(optimizer).weightDecay,
    groups: [true, false].map((side) => {
      const members = parameters.filter((row) => row.decays === side);
      return { decays: side, count: members.length, elements: sumOf(members, 'elements') };
    }),
    total: {
      weightBytes: sumOf(parameters, 'weightBytes'),
      copyBytes: sumOf(parameters, 'copyBytes'),
      gradientBytes: sumOf(parameters, 'gradientBytes'),
      stateBytes:
        sumOf(parameters, 'stateBytes') +
        [...scalars, ...statistics].reduce((sum, name) => sum + bytesOf(graph, name), 0),
    },
    operators: { forward: flattenRegions(forward).nodes.length, step: graph.nodes.length },
  };
}

/** Bytes of tensors that hold a parameter, or a view of it, in another type. */
function copiesOf(graph: Graph, names: ReadonlySet<string>): ReadonlyMap<string, number> {
  const bytes = new Map<string, number>();
  const origins = new Map<string, string>([...names].map((name) => [name, name]));
  for (const { inputs, outputs, phase } of graph.nodes) {
    const [from, to] = [inputs[0], outputs[0]];
    const origin = from && origins.get(from);
    if (phase !== 'forward' || inputs.length !== 1 || !from || !to || !origin) continue;
    const [before, after] = [typeOf(graph, from), typeOf(graph, to)];
    if (elementCount(before.shape) !== elementCount(after.shape)) continue;
    if (before.dtype === after.dtype) origins.set(to, origin);
    else bytes.set(origin, (bytes.get(origin) ?? 0) + bytesOf(graph, to));
  }
  return bytes;
}

function bytesOf(graph: Graph, name: string): number {
  const { dtype, shape }: { dtype: DType; shape: readonly number[] } = typeOf(graph, name);
  return byteLength(dtype, elementCount(shape));
}

function sumOf<Key extends string>(rows: readonly Readonly<Record<Key, number>>[], key: Key): number {
  return rows.reduce((sum, row) => sum + row[key], 0);
}
