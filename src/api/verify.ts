/**
 * @file verify: compares the sharded program with the unsharded model, element by element; for training programs it compares
 * training steps of both.
 */
import { AutoparError } from '../ir/error.js';
import { flattenRegions } from '../ir/fused-regions/flatten-regions.js';
import type { ConstantTensor, Graph } from '../ir/graph.js';
import { listening } from '../ir/interruption.js';
import { operatorFamily } from '../ir/ops/index.js';
import type { Program } from '../program/program.js';
import { runOnnx } from '../runtime/reference.js';
import { type RunOptions, runProgram } from '../runtime/run-program.js';
import { type RankResources, resourcesOf } from '../runtime/session.js';
import { stagedGraph } from '../strategy/staged-graph.js';
import type { Arrays } from './execution/arrays.js';
import { randomInputs, readInputs } from './execution/inputs.js';
import { checkValues, labelBounds } from './execution/labels.js';
import { compiledModel, readRunnable } from './models/compiled-model.js';
import { dropsTokens } from './models/dispatch.js';
import type { ImportedModel } from './models/import.js';
import { loweredOfPlan } from './models/inference-precision.js';
import { withRandomWeights } from './models/random-weights.js';
import type { CompiledParts } from './output/folder.js';
import { type Comparison, compareTensors, defaultTolerance, type TieTest } from './verification/compare.js';
import { numberReader } from './verification/numbers.js';
import { isQuantised, ownDifferences } from './verification/own-difference.js';
import { runGraph } from './verification/reference.js';
import { compareSteps, type StepComparison, type StepPart } from './verification/verify-training.js';

export interface VerifyOptions extends RankResources {
  /** The folder that compile wrote. */
  readonly directory: string;
  /** The model file; by default the path from which it was compiled. */
  readonly model?: string;
  readonly inputs?: string;
  readonly seed?: number;
  /** Compare all tensors between segments, besides the outputs. */
  readonly tensors?: boolean;
  /** Relative and absolute tolerance; by default they depend on the dtype. */
  readonly rtol?: number;
  readonly atol?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

export interface VerifyResult {
  readonly passed: boolean;
  readonly outputs: readonly Comparison[];
  readonly tensors: readonly Comparison[];
  /** For training programs: the gradient of every trained weight, by step. */
  readonly gradients?: readonly StepComparison[];
  /** For training programs: the initial value of every state tensor, and its change by step. */
  readonly state?: readonly StepComparison[];
  /** For training programs: number of steps that were compared, and number of steps that changed weights. */
  readonly steps?: { readonly taken: number; readonly updates: number };
  /** The reference of the comparison. */
  readonly reference: 'the model file in ONNX Runtime' | 'the unsharded graph in ONNX Runtime';
  /**
   * For outputs of a quantised model that differ: ONNX Runtime's results without its optimisations compared with those with them.
   */
  readonly unoptimised?: readonly Comparison[];
}

/**
 * Runs model and program on the same inputs and compares. The model runs first: if ONNX Runtime cannot run it, it cannot run its
 * program either.
 * @throws AutoparError if the folder, the model or the inputs cannot be used; a difference is a result, not an error.
 */
export async function verify(options: VerifyOptions): Promise<VerifyResult> {
  return verifyCompiled(options, await openCompiled(options.directory, options));
}

/** The same for a program whose model is already imported; `directory` holds the program. */
export async function verifyCompiled(options: VerifyOptions, compiled: CompiledFolder): Promise<VerifyResult> {
  const progress = options.onProgress ?? (() => undefined);
  const { imported, file, constants, program } = compiled;
  const inputs = options.inputs
    ? await readInputs(options.inputs, program.inputs)
    : randomInputs(imported.graph, options.seed ?? 0, labelBounds(imported.training));
  checkValues(inputs, program.inputs, imported.training ?? null, options.inputs);
  const crossing = options.tensors ? crossingTensors(program, imported.graph) : [];
  if (imported.training) return verifyTraining(options, compiled, inputs, crossing);
  progress('running the model');
  const orderings = orderedOutputs(imported.graph);
  const fromFile = file === null ? null : await runFile(file, { ...constants, ...inputs });
  // Import adds outputs, such as the number of tokens of each expert.
  const added = fromFile ? imported.graph.outputs.filter((name) => !(name in fromFile)) : [];
  const ordered = [...orderings.values()].map(({ values }) => values);
  const extra = [...new Set([...crossing, ...ordered, ...added])];
  const fromGraph = fromFile && extra.length === 0 ? {} : await runGraph(imported.graph, inputs, extra);
  const expected = { ...fromGraph, ...fromFile };
  progress('running the program');
  const runtime: RunOptions = {
    program,
    steps: 1,
    warmup: 0,
    collect: crossing,
    ...resourcesOf(options),
    ...(options.signal ? { signal: options.signal } : {}),
  };
  const result = await listening(options.signal, () => runProgram(options.directory, inputs, runtime));
  const computedIn = new Set([...flattenRegions(imported.graph).tensors.values()].map((type) => type.dtype));
  const compare = (name: string, actual: Arrays, reference: Arrays): Comparison => {
    const [a, b] = [actual[name], reference[name]];
    if (!a || !b) throw new Error(`${name} was not computed by ${a ? 'the model' : 'the program'}`);
    const fallback = defaultTolerance(b.dtype, computedIn);
    const tolerance = { relative: options.rtol ?? fallback.relative, absolute: options.atol ?? fallback.absolute };
    return compareTensors(name, a, b, tolerance, tieTest(a, b, orderings.get(name), fromGraph));
  };
  // State that a training step keeps for the next one is not an output of the program.
  const given = imported.graph.outputs.filter((name) => name in result.outputs);
  const outputs = given.map((name) => compare(name, result.outputs, expected));
  const tensors = crossing.map((name) => compare(name, result.tensors, fromGraph));
  const failed = outputs.filter(({ passed }) => !passed).map(({ name }) => name);
  const unoptimised =
    failed.length === 0 || !isQuantised(imported.graph)
      ? null
      : fromFile
        ? await ownDifferences(failed, { file, graph: imported.graph }, { ...constants, ...inputs }, fromFile)
        : await ownDifferences(failed, { file: null, graph: imported.graph }, inputs, fromGraph);
  return {
    passed: [...outputs, ...tensors].every((entry) => entry.passed),
    outputs,
    tensors,
    reference: fromFile ? 'the model file in ONNX Runtime' : 'the unsharded graph in ONNX Runtime',
    ...(unoptimised ? { unoptimised } : {}),
  };
}

/** Compares two steps of a training program with two steps of the unsharded training graph. */
async function verifyTraining(
  options: VerifyOptions,
  { imported: whole, planned, program }: CompiledFolder,
  inputs: Arrays,
  tensors: readonly string[],
): Promise<VerifyResult> {
  const { directory, rtol, atol, signal, onProgress = () => undefined } = options;
  const resources = resourcesOf(options);
  const task = { directory, program, planned, whole, inputs, tensors, rtol, atol, resources, signal, onProgress };
  const { comparisons, steps, updates } = await compareSteps(task);
  const of = (...parts: readonly StepPart[]) => comparisons.filter(({ part }) => parts.includes(part));
  return {
    passed: comparisons.every(({ passed }) => passed),
    outputs: of('output'),
    tensors: of('inner tensor'),
    gradients: of('gradient'),
    state: of('first value', 'state'),
    steps: { taken: steps, updates },
    reference: 'the unsharded graph in ONNX Runtime',
  };
}

/** The results of the model file; null if ONNX Runtime cannot load it (an operator set newer than it supports). */
async function runFile(file: string, inputs: Arrays): Promise<Arrays | null> {
  try {
    return await runOnnx(file, inputs);
  } catch (error) {
    if (error instanceof AutoparError && error.code === 'backend-absent') throw error;
    return null;
  }
}

/** A compiled folder with its model, checked against each other. */
export interface CompiledFolder {
  /** The model with the global batch. */
  readonly imported: ImportedModel;
  /** The model as it was planned: of one micro-batch if a step has several; for a pipeline, the graph that is cut into stages. */
  readonly planned: ImportedModel;
  /** The model file, if ONNX Runtime can run it unchanged; otherwise null. */
  readonly file: string | null;
  /** Values to which inputs were fixed. */
  readonly constants: Arrays;
  readonly program: Program;
}

interface OpenOptions {
  /** The model file; by default the path from which it was compiled. */
  readonly model?: string;
  readonly signal?: AbortSignal;
  /** Whether random weights are generated again. */
  readonly withValues?: boolean;
  /** The contents of the folder, if it has been read already. */
  readonly parts?: CompiledParts;
}

/**
 * Reads a compiled folder and imports its model again.
 * @throws AutoparError `model-changed` if the model is not the one that was compiled.
 */
export async function openCompiled(
  directory: string,
  { model, signal, withValues = true, parts }: OpenOptions = {},
): Promise<CompiledFolder> {
  const { source, plan, program } = parts ?? (await readRunnable(directory, model));
  const found = await compiledModel(directory, source, plan, model);
  const { file, constants } = found;
  const filled = async (imported: ImportedModel) =>
    withValues && source.randomWeights !== null
      ? await withRandomWeights(imported, source.randomWeights, signal)
      : imported;
  const planned = await filled(found.planned);
  const { graph } = stagedGraph(plan, planned.graph);
  const whole = found.whole === found.planned ? planned : await filled(found.whole);
  const runnable =
    source.globalBatch === null &&
    source.randomWeights === null &&
    !source.training &&
    !loweredOfPlan(plan) &&
    !dropsTokens(plan.passes);
  return {
    imported: whole,
    planned: { ...planned, graph },
    file: runnable && whole.weightsPresent ? file : null,
    constants,
    program,
  };
}

/** Tensors of the unsharded graph that are passed between segments, without graph outputs. */
function crossingTensors(program: Program, graph: Graph): readonly string[] {
  const outputs = new Set([...graph.outputs, ...graph.inputs]);
  const names = program.stages.flatMap((stage) => Object.entries(stage.tensors));
  return names.flatMap(([name, type]) =>
    type.source === name && type.layout.partial.length === 0 && !outputs.has(name) ? [name] : [],
  );
}

/** The ordering of an output that holds positions, chosen by comparing `values` along `axis`. */
interface Ordering {
  readonly values: string;
  readonly axis: number;
}

/** Graph outputs of operators of the family `sort` or of ArgMax-like reductions, with the values that they order. */
function orderedOutputs(graph: Graph): ReadonlyMap<string, Ordering> {
  const result = new Map<string, Ordering>();
  const computed = new Set(graph.nodes.flatMap((node) => node.outputs));
  for (const node of graph.nodes) {
    const values = node.inputs[0];
    if (operatorFamily(node) !== 'sort' || !values || !computed.has(values)) continue;
    const axis = node.attributes['axis'];
    const rank = graph.tensors.get(values)?.shape.length ?? 0;
    const position = typeof axis === 'number' ? axis : -1;
    for (const output of node.outputs) {
      if (output !== null && graph.outputs.includes(output)) {
        result.set(output, { values, axis: position < 0 ? position + rank : position });
      }
    }
  }
  return result;
}

/** Two positions are a tie if the values at them are equal within the tolerance of their dtype. */
function tieTest(
  actual: ConstantTensor,
  expected: ConstantTensor,
  ordering: Ordering | undefined,
  values: Arrays,
): TieTest {
  const source = ordering && values[ordering.values];
  if (!ordering || !source || expected.dtype !== 'int64') return () => false;
  const [readActual, readExpected, readValue] = [numberReader(actual), numberReader(expected), numberReader(source)];
  const inner = (shape: readonly number[]) =>
    shape.slice(ordering.axis + 1).reduce((product, size) => product * size, 1);
  const length = source.shape[ordering.axis] ?? 1;
  const kept = expected.shape.length === source.shape.length ? (expected.shape[ordering.axis] ?? 1) : 1;
  const stride = inner(source.shape);
  const tolerance = defaultTolerance(source.dtype);
  return (index) => {
    const row = Math.floor(index / (kept * stride));
    const column = index % stride;
    const at = (position: number) => readValue((row * length + position) * stride + column);
    const [a, b] = [at(readActual(index)), at(readExpected(index))];
    return Math.abs(a - b) <= tolerance.absolute + tolerance.relative * Math.abs(b);
  };
}
