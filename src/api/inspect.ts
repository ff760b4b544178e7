/**
 * @file inspect: reports how autopar understands a model, without planning it. Weights are read only if their values matter:
 * to find weights that are copies of each other.
 */
import { stat } from 'node:fs/promises';
import { dimensionRoles, type InputDimension, type OutputDimension } from '../ir/dimension-roles.js';
import type { DType } from '../ir/dtype.js';
import { fileTensorOf, type Graph, typeOf } from '../ir/graph.js';
import { interruptible } from '../ir/interruption.js';
import type { OnnxModel } from '../ir/onnx/model.js';
import { readOnnx } from '../ir/onnx/reader.js';
import { findParameters } from '../ir/parameters/find-parameters.js';
import { type FoldedParameter, foldedParameters } from '../ir/parameters/folded.js';
import type { Parameter, ParameterOptions, Parameters } from '../ir/parameters/parameter.js';
import { sameValues } from '../ir/parameters/same-values.js';
import { inlineFunctions } from '../ir/passes/inline-functions.js';
import { orderNodes } from '../ir/passes/order.js';
import { withoutUndefined } from '../ir/without-undefined.js';
import { lettersOf, stageUnits } from '../search/pipeline/units.js';
import { importAssuming, type OpenDimension } from './models/assumed-dimensions.js';
import type { ImportOptions } from './models/import.js';
import { type ModelChoice, modelOf } from './models/model-choice.js';
import { importedFor } from './models/training-form.js';
import type { WriteModelOptions, WrittenModel } from './models/write-model.js';
import {
  type LayerRow,
  layerRows,
  type OperatorRow,
  operatorRows,
  type RegionRow,
  type ReplicatedRow,
  regionRows,
  replicatedRows,
  workOf,
} from './reports/inspect-operators.js';
import { inspectTraining, type TrainingInspection } from './reports/inspect-training.js';
import type { Training } from './requests/training-request.js';

export interface InspectOptions extends ImportOptions, ParameterOptions, ModelChoice, WriteModelOptions {
  /** Also reports the memory of this training. */
  readonly training?: Training;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

/** An input or output with the roles of its dimensions. */
export interface DescribedTensor<Dimension> {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly dimensions: readonly Dimension[];
}

export interface Inspection extends WrittenModel {
  /** Only if requested. */
  readonly training?: TrainingInspection;
  readonly name: string;
  readonly file: {
    /** The path as it was given. */
    readonly path: string;
    readonly bytes: number;
    readonly producer: string;
    readonly irVersion: number;
    /** Version by domain; '' is ONNX's own. */
    readonly opsets: Readonly<Record<string, number>>;
    /** Model-local functions, which are inlined. */
    readonly functions: number;
    /** Number of operators in the file, without those of functions. */
    readonly operators: number;
  };
  readonly fingerprint: string;
  /** Sizes of named dimensions, both bound and assumed ones. */
  readonly dims: Readonly<Record<string, number>>;
  /** Dimensions that are not bound. */
  readonly open: readonly OpenDimension[];
  readonly batch: number | null;
  readonly inputs: readonly DescribedTensor<InputDimension>[];
  readonly outputs: readonly DescribedTensor<OutputDimension>[];
  readonly parameters: Parameters;
  /** Parameters of the file that were folded and are no longer in any weight of the graph. */
  readonly folded: readonly FoldedParameter[];
  readonly operators: readonly OperatorRow[];
  readonly layers: readonly LayerRow[];
  /** The units of which pipeline stages consist, in order, in the notation of `--stages`; and the meaning of each letter. */
  readonly units: { readonly layout: string; readonly kinds: readonly UnitRow[] };
  readonly fusedRegions: readonly RegionRow[];
  /** @deprecated older name of `fusedRegions` */
  readonly blocks: readonly RegionRow[];
  readonly replicated: readonly ReplicatedRow[];
  /** Floating-point operations of one step. */
  readonly totalFlops: number;
  /** Bytes that operators read and write in one step. */
  readonly totalBytes: number;
  readonly notes: readonly string[];
}

/**
 * Reads, imports and describes a model. Dimensions that are not bound get assumed sizes, which the result lists.
 * @throws AutoparError for a model that cannot be imported, and for names that the model does not have.
 */
export async function inspect(options: InspectOptions): Promise<Inspection> {
  const progress = options.onProgress ?? (() => undefined);
  progress('importing');
  const file = await modelOf(options, options.globalBatch);
  const model = await readOnnx(file);
  const { imported, open } = await importAssuming(model, importOptions(options));
  await interruptible(options.signal);
  const { graph } = imported;
  progress('comparing weights');
  const source = orderNodes(model.graph, inlineFunctions(model), model.file);
  const evidence = { ...imported.evidence, values: sameValues(graph.weights) };
  const parameters = findParameters(graph, evidence, options);
  await interruptible(options.signal);
  progress('following dimensions');
  const roles = dimensionRoles(graph);
  const work = workOf(graph);
  const operators = operatorRows(graph, work);
  const regions = regionRows(graph);
  return {
    name: imported.name,
    file: await fileFacts(model, file),
    fingerprint: imported.fingerprint,
    dims: imported.dims,
    open,
    batch: batchOf(graph),
    inputs: graph.inputs.map((name) => described(graph, name, roles.inputs)),
    outputs: graph.outputs.map((name) => described(graph, name, roles.outputs)),
    parameters: inFile(parameters, graph),
    folded: foldedParameters(model, source, graph),
    operators,
    layers: layerRows(graph, work),
    units: unitRows(graph),
    fusedRegions: regions,
    blocks: regions,
    replicated: replicatedRows(graph, work),
    totalFlops: operators.reduce((sum, { flops }) => sum + flops, 0),
    totalBytes: operators.reduce((sum, { bytes }) => sum + bytes, 0),
    notes: imported.folded === null ? imported.notes : [...imported.notes, imported.folded],
    ...(options.training ? { training: inspectTraining(imported, options.training) } : {}),
  };
}

/** The units with one letter. */
interface UnitRow {
  readonly letter: string;
  readonly count: number;
  /** Name of the first unit. */
  readonly name: string;
  readonly operators: number;
}

function unitRows(graph: Graph): Inspection['units'] {
  const units = stageUnits(graph, 1);
  const letters = [...new Set(units.map(({ letter }) => letter))];
  const kinds = letters.flatMap((letter) => {
    const own = units.filter((unit) => unit.letter === letter);
    return own
      .slice(0, 1)
      .map(({ name, operators }) => ({ letter, count: own.length, name, operators: operators.length }));
  });
  return { layout: lettersOf(units), kinds };
}

/** The parameters with weights by their names and shapes in the file, and whether they are transposed relative to the file. */
function inFile(found: Parameters, graph: Graph): Parameters {
  const stored = (weight: string): string => fileTensorOf(graph, weight)?.name ?? weight;
  const each = (parameter: Parameter): Parameter => ({
    ...parameter,
    weights: parameter.weights.map(stored),
    shape: fileTensorOf(graph, parameter.weights[0] ?? null)?.shape ?? parameter.shape,
    places: parameter.places.map((place) => {
      const exchanged = fileTensorOf(graph, place.weight)?.dims.join() === '1,0';
      return { ...place, weight: stored(place.weight), transposed: place.transposed !== exchanged };
    }),
  });
  return {
    ...found,
    parameters: found.parameters.map(each),
    buffers: found.buffers.map(each),
    constants: found.constants.map(each),
    decisions: found.decisions.map((decision) => ({ ...decision, weights: decision.weights.map(stored) })),
  };
}

function importOptions({ dims, shapes, globalBatch, constants, weights, training }: InspectOptions): ImportOptions {
  return {
    ...withoutUndefined({ dims, shapes, globalBatch, constants, weights }),
    ...importedFor(training),
  };
}

async function fileFacts(model: OnnxModel, path: string): Promise<Inspection['file']> {
  return {
    path,
    bytes: (await stat(model.file)).size,
    producer: model.producer,
    irVersion: model.irVersion,
    opsets: Object.fromEntries(model.opsets),
    functions: model.functions.size,
    operators: model.graph.nodes.length,
  };
}

function batchOf(graph: Graph): number | null {
  const [first] = graph.batch;
  return first ? (typeOf(graph, first.input).shape[first.axis] ?? null) : null;
}

function described<Dimension extends { readonly tensor: string }>(
  graph: Graph,
  name: string,
  dimensions: readonly Dimension[],
): DescribedTensor<Dimension> {
  return { name, ...typeOf(graph, name), dimensions: dimensions.filter(({ tensor }) => tensor === name) };
}
