/**
 * @file `importModel`: from an ONNX file to a Graph with static shapes, one operator set and named layers.
 */
import { basename } from 'node:path';
import type { TrainingGraph } from '../../ir/autodiff/training-graph.js';
import { batchDimensions } from '../../ir/batch.js';
import { isFloating } from '../../ir/dtype.js';
import { AutoparError } from '../../ir/error.js';
import { type DispatchedExperts, type DispatchOptions, dispatchExperts } from '../../ir/experts/dispatch-experts.js';
import { expandExperts } from '../../ir/experts/expand-experts.js';
import { sumGathered } from '../../ir/experts/gathered-results.js';
import { sumGatheredWeights } from '../../ir/experts/gathered-weights.js';
import { splitEinsums } from '../../ir/experts/split-einsum.js';
import { stackExperts } from '../../ir/experts/stack-experts.js';
import { fingerprint } from '../../ir/fingerprint.js';
import { type ConstantTensor, elementCount, type Graph, INTERNAL_OPSET, typeOf } from '../../ir/graph.js';
import type { MultiDevice } from '../../ir/onnx/device-annotations.js';
import type { OnnxModel, SourceDimension, SourceValue } from '../../ir/onnx/model.js';
import { readOnnx } from '../../ir/onnx/reader.js';
import { constant, hasConstants, numbersOf } from '../../ir/ops/constants.js';
import { withDroppedBiases } from '../../ir/parameters/dropped-biases.js';
import { identityUses } from '../../ir/parameters/identities.js';
import { moduleNames } from '../../ir/parameters/module-names.js';
import type { ParameterEvidence } from '../../ir/parameters/parameter.js';
import { recordedUses, tracedConstants } from '../../ir/parameters/recorded.js';
import { assemble } from '../../ir/passes/assemble.js';
import { checkDims, placeKey } from '../../ir/passes/dims.js';
import { findLayers } from '../../ir/passes/find-layers.js';
import { FOLD_LIMIT } from '../../ir/passes/fold-limit.js';
import { foldedAway } from '../../ir/passes/folded-away.js';
import { inlineFunctions } from '../../ir/passes/inline-functions.js';
import { bindDimensions } from '../../ir/passes/input-dimensions.js';
import { liftMatMul } from '../../ir/passes/lift-matmul.js';
import { orderNodes } from '../../ir/passes/order.js';
import { recogniseRegions } from '../../ir/passes/recognise-regions.js';
import { resizeBatch, resizeNotes } from '../../ir/passes/resize-batch.js';
import { resolveValues } from '../../ir/passes/resolve.js';
import { checkStatedOutputs } from '../../ir/passes/stated-outputs.js';
import { weightInputs } from '../../ir/passes/weight-inputs.js';
import { attentionInPlainOperators } from '../../ir/passes/write-attention.js';
import { writeSinks } from '../../ir/passes/write-sinks.js';
import { madeOnce } from '../../ir/remembered.js';
import { evaluate } from '../../runtime/evaluate.js';
import type { PlanPass } from '../../strategy/plan.js';
import type { PlanSubject } from '../../strategy/plan-of.js';
import { checkDispatch, dispatchIn, dispatchNote, dispatchPass } from './dispatch.js';
import { batchElsewhere, notResized } from './named-batch.js';

export interface ImportOptions extends DispatchOptions {
  /** Sizes of dimensions, by name (`batch`) or by place (`ids[0]`: dimension 0 of input ids). */
  readonly dims?: Readonly<Record<string, number>>;
  /** Full shapes of inputs, by name. */
  readonly shapes?: Readonly<Record<string, readonly number[]>>;
  /** Rebuilds the graph at this batch; the file's own by default. */
  readonly globalBatch?: number;
  /** Values that graph inputs are fixed to. */
  readonly constants?: Readonly<Record<string, FixedValue>>;
  /** Whether attention, normalisations and the like become one node each (docs/using.md); they do by default. */
  readonly fusedRegions?: boolean;
  /** @deprecated older name of `fusedRegions` */
  readonly blocks?: boolean;
  /** Ranks shard its sequence: Attention is expanded into plain operators. */
  readonly sharesSequence?: boolean;
  /** Ranks shard its experts: operators that contain all experts are expanded into plain operators, and experts are stacked. */
  readonly sharesExperts?: boolean;
  /**
   * Stacks experts that are modules with weights of their own into one with a weight [experts, rows, columns], and sums over
   * experts where the weights or results of chosen ones are gathered.
   */
  readonly stacksExperts?: boolean;
  /** Globs of graph inputs that are weights without a value. */
  readonly weights?: readonly string[];
  /** Keeps operators that only training needs: Dropout, which does nothing in inference. */
  readonly forTraining?: boolean;
  /** Keeps operators on parameters, since gradients pass through them; otherwise their results are folded. */
  readonly keepsParameters?: boolean;
}

export interface ImportedModel extends PlanSubject {
  /** Notes for the user, one line each. */
  readonly notes: readonly string[];
  /** Absolute path of the file. */
  readonly file: string;
  /** Whether every weight has a value. */
  readonly weightsPresent: boolean;
  /** The device annotations that the file itself holds (ONNX IR 11 and later); null where it has none. */
  readonly multiDevice: MultiDevice | null;
  /** A note on operators that training needs and the exporter folded away; null if there is no sign of any. */
  readonly folded: string | null;
  /** The inputs that are fixed, with their values. */
  readonly constants: Readonly<Record<string, ConstantTensor>>;
  /** Evidence in the file about its weights, besides their values, to identify parameters (inspect.ts, training-form.ts). */
  readonly evidence: Pick<ParameterEvidence, 'kinds' | 'identities' | 'reasons'>;
  /** For each trained weight, the tensor of the graph that is its gradient. */
  readonly gradients?: ReadonlyMap<string, string>;
  /** For a training step: its loss, and the divisor of gradients before clipping. */
  readonly step?: Pick<TrainingGraph, 'loss' | 'divisor' | 'lossScaleSamples'>;
}

/**
 * Reads an ONNX file and converts it to the form that planning needs. Throws AutoparError for any error in the file or the
 * dimensions, and for operators that cannot be planned.
 */
export async function importModel(file: string, options: ImportOptions = {}): Promise<ImportedModel> {
  return importSource(await readOnnx(file), options);
}

/** A tensor, or a number or boolean that fills an input of known shape. */
export type FixedValue = ConstantTensor | number | boolean;

/** Options of a model's inputs. */
type InputOptions = Pick<ImportOptions, 'dims' | 'shapes' | 'constants' | 'weights'>;

/** Imports one model with options that may differ from time to time. @throws AutoparError as `importModel` */
export type ModelReader = (options: Omit<ImportOptions, keyof InputOptions>) => Promise<ImportedModel>;

/** Imports one file several times, at other batches and for other degrees: it is read and assembled once in each form. */
export function modelReader(file: string, assembling: InputOptions = {}): ModelReader {
  const known = new Map<string, Promise<AssembledModel>>();
  return async (options) => {
    checkDispatch(options);
    const { forTraining = false, keepsParameters = false } = options;
    const all = { ...options, ...assembling };
    const form = `${forTraining} ${keepsParameters}`;
    const assembled = madeOnce(known, form, async () => assembleSource(await readOnnx(file), all));
    return completed(await assembled, all);
  };
}

/** The same for a file that has been read. */
export async function importSource(source: OnnxModel, options: ImportOptions = {}): Promise<ImportedModel> {
  checkDispatch(options);
  return completed(await assembleSource(source, options), options);
}

/** A file as a graph of static shapes, at the batch that it is read at and in its own operators. */
interface AssembledModel
  extends Pick<
    ImportedModel,
    'name' | 'notes' | 'file' | 'multiDevice' | 'folded' | 'constants' | 'evidence' | 'dims'
  > {
  /** The inputs as the file states them. */
  readonly inputs: readonly SourceValue[];
  readonly graph: Graph;
}

async function assembleSource(source: OnnxModel, options: ImportOptions): Promise<AssembledModel> {
  const constants = fixedInputs(source, options.constants ?? {});
  const bound = bindDimensions(source.graph.inputs, options, source.file);
  const model: OnnxModel = { ...source, graph: { ...source.graph, inputs: bound.inputs } };
  const absent = weightInputs(model, options.weights ?? []);
  const stated = model.graph.inputs.filter(
    (input) => !model.graph.initializers.has(input.name) && !Object.hasOwn(constants, input.name),
  );
  checkDims(stated, bound.named, model.file);
  const ordered = orderNodes(model.graph, inlineFunctions(model), model.file);
  const traced = tracedConstants(model, ordered);
  const { nodes, initializers, kinds } = options.keepsParameters
    ? withDroppedBiases(model, ordered)
    : { nodes: ordered, initializers: model.graph.initializers, kinds: model.kinds };
  const resolved = await resolveValues({ ...model.graph, initializers }, nodes, {
    file: model.file,
    dims: bound.named,
    constants,
    kinds,
    absent,
    evaluate,
    domains: new Map([...model.opsets].filter(([domain]) => domain !== '')),
    forTraining: options.forTraining ?? false,
    keepsParameters: options.keepsParameters ?? false,
    statesKinds: model.kinds.size > 0,
    isComputed: (name) =>
      model.kinds.size > 0
        ? traced.get(name)?.closed === null
        : model.producer.startsWith('pytorch') && name.startsWith('onnx::'),
    isListed: (name) => traced.get(name)?.isListed === true,
    standsForParameter: (name) => {
      const found = traced.get(name);
      return found !== undefined && (found.isListed || (found.form === 'helper' && found.closed === null));
    },
  });
  const remarks = checkStatedOutputs(model.graph.outputs, resolved.outputs, model.file);
  const name = basename(model.file).replace(/\.onnx$/, '');
  const { graph: written, reasons } = await assemble(resolved, model.graph.name || name, {
    traced,
    namesParameters: model.producer.startsWith('pytorch') && model.kinds.size === 0,
    inputs: absent,
  });
  const identities = [...identityUses(model, nodes), ...recordedUses(model, nodes, traced)];
  const named = moduleNames(written, identities, kinds);
  const plain = liftMatMul(named);
  const assembled: Graph = { ...plain, batch: batchDimensions(plain) };
  return {
    inputs: source.graph.inputs,
    graph: assembled,
    name,
    dims: bound.given,
    notes: [...model.notes, ...resolved.notes, ...remarks],
    file: model.file,
    multiDevice: model.multiDevice,
    folded: foldedAway(model, nodes),
    constants,
    evidence: { kinds, identities, reasons: reasonsOf(named, reasons) },
  };
}

/** At the wanted batch, with regions and layers, and in the form that the degrees need. */
function completed(
  { inputs, graph: assembled, notes, ...read }: AssembledModel,
  options: ImportOptions,
): ImportedModel {
  const { evidence, dims } = read;
  const elsewhere = batchElsewhere(assembled, inputs);
  const resized = options.globalBatch === undefined ? assembled : resizeBatch(assembled, options.globalBatch);
  if (elsewhere !== null && resized !== assembled) throw notResized(elsewhere, options.globalBatch ?? 0);
  const attending = options.sharesSequence ? attentionInPlainOperators(resized) : resized;
  // Dispatch needs experts in the same form.
  const isShared = options.sharesExperts || options.dispatch !== undefined;
  const expanded = isShared ? splitEinsums(expandExperts(attending)) : attending;
  const isStacked = isShared || options.stacksExperts;
  const stacked = isStacked ? stackExperts(expanded, evidence.identities) : expanded;
  const summed = isStacked ? sumGathered(sumGatheredWeights(stacked)) : stacked;
  const { graph: dispatched, layers } =
    options.dispatch === undefined ? { graph: summed, layers: [] } : dispatchExperts(summed, dispatchIn(options));
  const graph = findLayers(withRegions(options) ? recogniseRegions(writeSinks(dispatched)) : dispatched);
  const weightsPresent = [...graph.weights.values()].every((weight) => weight.source.kind !== 'absent');
  return {
    ...read,
    graph,
    fingerprint: fingerprint(graph),
    passes: passesOf(
      options,
      [
        ...(expanded === attending ? [] : [{ name: 'expand-experts' }]),
        ...(stacked === expanded ? [] : [{ name: 'stack-experts' }]),
        ...(summed === stacked ? [] : [{ name: 'sum-gathered' }]),
      ],
      layers,
    ),
    globalBatch: options.globalBatch ?? null,
    notes: [
      ...notes,
      ...(elsewhere === null ? [] : [elsewhere]),
      ...(resized === assembled ? [] : [...reboundNotes(inputs, dims, assembled, resized), ...resizeNotes(graph)]),
      ...layers.map(dispatchNote),
    ],
    weightsPresent,
  };
}

function withRegions({ fusedRegions, blocks }: ImportOptions): boolean {
  return fusedRegions !== false && blocks !== false;
}

/** A note where a batch that was given as a dimension's size is not that of the graph, which was rebuilt at another. */
function reboundNotes(
  inputs: readonly SourceValue[],
  given: Readonly<Record<string, number>>,
  read: Graph,
  rebuilt: Graph,
): readonly string[] {
  const [{ input, axis } = { input: '', axis: 0 }] = read.batch;
  const dimension = inputs.find(({ name }) => name === input)?.shape?.[axis];
  const key = [dimension, placeKey(input, axis)].find((name) => typeof name === 'string' && Object.hasOwn(given, name));
  if (key === undefined || key === null) return [];
  return [
    `a step takes a batch of ${typeOf(rebuilt, input).shape[axis]} (--global-batch): ${key} ${given[key]} is the batch at ` +
      'which the model was read, before it was rebuilt',
  ];
}

function passesOf(
  options: ImportOptions,
  experts: readonly PlanPass[],
  layers: readonly DispatchedExperts[],
): readonly PlanPass[] {
  return [
    { name: 'inline-functions' },
    { name: 'opset', options: { to: INTERNAL_OPSET } },
    { name: 'fold', options: { limit: FOLD_LIMIT } },
    { name: 'normalise' },
    ...(options.globalBatch === undefined
      ? []
      : [{ name: 'resize-batch', options: { globalBatch: options.globalBatch } }]),
    ...(options.sharesSequence ? [{ name: 'write-attention' }] : []),
    ...experts,
    ...(options.dispatch === undefined ? [] : [dispatchPass(options, layers)]),
    ...(withRegions(options) ? [{ name: 'recognise-blocks' }] : []),
    { name: 'find-layers' },
  ];
}

/** @throws AutoparError `unknown-input`, `constant-mismatch` where a value is not one of its input */
function fixedInputs(
  model: OnnxModel,
  values: Readonly<Record<string, FixedValue>>,
): Readonly<Record<string, ConstantTensor>> {
  const inputs = new Map(model.graph.inputs.map((input) => [input.name, input]));
  const fixed = Object.entries(values).map(([name, value]): [string, ConstantTensor] => {
    const input = inputs.get(name);
    if (!input)
      throw new AutoparError(
        'unknown-input',
        'usage',
        `--const ${name}: the model has no input of this name`,
        { file: model.file },
        `its inputs are ${[...inputs.keys()].join(', ')}`,
      );
    const tensor = typeof value === 'object' ? value : filled(input, value);
    if (tensor && fits(input, tensor)) return [name, tensor];
    const given = typeof value === 'object' ? ` is ${value.dtype} [${value.shape.join(', ')}]` : `=${value}`;
    throw new AutoparError(
      'constant-mismatch',
      'input',
      `--const ${name}${given}, but the model wants ${input.dtype} ` +
        `[${(input.shape ?? []).map((size) => size ?? '?').join(', ')}]`,
      { file: model.file, tensor: name },
      `give ${typeof value === 'object' ? '' : 'a value of this type, or '}an array of this type and shape`,
    );
  });
  return Object.fromEntries(fixed);
}

/** A tensor of an input's type and shape with one value everywhere; null where the type lacks it, or the shape is open. */
function filled({ dtype, shape }: SourceValue, value: number | boolean): ConstantTensor | null {
  if (dtype === null || !shape?.every(isSize) || !hasConstants(dtype)) return null;
  if ((typeof value === 'boolean') !== (dtype === 'bool')) return null;
  if (!isFloating(dtype) && !Number.isSafeInteger(Number(value))) return null;
  const one = constant(dtype, [Number(value)]);
  const [held = Number.NaN] = numbersOf(one);
  const isHeld = isFloating(dtype) ? Number.isFinite(held) : held === Number(value);
  if (!isHeld || one.data.length * elementCount(shape) > MOST_BYTES) return null;
  const data = new Uint8Array(one.data.length * elementCount(shape));
  for (let at = 0; at < data.length; at += one.data.length) data.set(one.data, at);
  return { dtype, shape, data };
}

/** Bytes of an input that a number fills: what such values choose, a branch or a size, is small. */
const MOST_BYTES = 2 ** 28;

function isSize(size: SourceDimension): size is number {
  return typeof size === 'number';
}

function fits(input: SourceValue, value: ConstantTensor): boolean {
  if (input.dtype !== value.dtype) return false;
  if (!input.shape) return true;
  return (
    input.shape.length === value.shape.length &&
    input.shape.every((size, axis) => typeof size !== 'number' || size === value.shape[axis])
  );
}

/** The reasons for the roles of weights, by the names that weights have after `module-names`. */
function reasonsOf({ weights }: Graph, reasons: ReadonlyMap<string, string>): ReadonlyMap<string, string> {
  return new Map(
    [...weights].flatMap(([name, { file }]) => {
      const reason = [name, file?.name, file?.result].map((known) => reasons.get(known ?? '')).find((text) => text);
      return reason === undefined ? [] : [[name, reason] as const];
    }),
  );
}
