/**
 * @file `verify` for a training program: compares steps of the sharded program with steps of the unsharded training graph. Each
 * reference step starts from the state that the program's step started from (docs/training.md gives the reason). It compares the
 * first values of the state, and for each step the outputs, the gradient of every trained weight and the change of every state.
 *
 * Under a dynamic loss scale only outputs and state are compared if a gradient of the reference overflows: whether a sum
 * overflows depends on its order.
 */
import { type DType, isFloating } from '../../ir/dtype.js';
import { flattenRegions } from '../../ir/fused-regions/flatten-regions.js';
import { type ConstantTensor, elementCount, typeOf } from '../../ir/graph.js';
import { interruptible, listening } from '../../ir/interruption.js';
import { isStateWeight } from '../../ir/passes/state-weights.js';
import type { Program } from '../../program/program.js';
import { runProgram } from '../../runtime/run-program.js';
import type { RankResources } from '../../runtime/session.js';
import type { Arrays } from '../execution/arrays.js';
import type { ImportedModel } from '../models/import.js';
import { type Comparison, compareTensors } from './compare.js';
import { makeTensor, numberReader } from './numbers.js';
import { initialValues } from './reference.js';
import { openStep, perturbed, roundoff } from './step-reference.js';

/** The part of a step that is compared. */
export type StepPart = 'first value' | 'output' | 'gradient' | 'state' | 'inner tensor';

/** `name` of a gradient is that of its weight; `tensor` is the program's own name, where it is another. */
export interface StepComparison extends Comparison {
  readonly step: number;
  readonly part: StepPart;
  readonly tensor?: string;
}

export interface TrainingToVerify {
  readonly resources: RankResources;
  readonly directory: string;
  readonly program: Program;
  /** The model as it was planned, whose names the program has, and the same over the whole batch. */
  readonly planned: ImportedModel;
  readonly whole: ImportedModel;
  readonly inputs: Arrays;
  /** Names of inner tensors to compare too. */
  readonly tensors: readonly string[];
  readonly rtol?: number | undefined;
  readonly atol?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress: (text: string) => void;
}

/** Steps that change weights; a step whose loss scale overflows does not change them. */
const STEPS = 2;
/** A loss scale of 2^16 is 2^-24 after this many steps that overflow. */
const MOST_STEPS = 40;
const RELATIVE = 1e-5;
/**
 * Runs of the unsharded step with every value off by a unit in the last place, which measure the effect of rounding on a
 * tensor.
 */
const PROBES = 2;
/**
 * The tolerated multiple of that effect. In float32 the roundings of long sums add up. In 16 bit sums are still in float32, and
 * the rounding of tensors dominates, which the probes apply to every weight. New state is computed element by element.
 */
const MARGIN = { sums: 16, narrow: 2, elements: 4 } as const;
/** New state is rounded to its type on both sides, gradients to the type that the step computes in before they are summed. */
const ROUNDED_SIDES = 2;

const RECIPES: Readonly<Record<string, readonly DType[]>> = { fp16: ['float16'], bf16: ['bfloat16'] };

/** A tensor that is read in every step: its tensors in the program, and its name in the unsharded graph. */
interface StepTensor {
  readonly part: StepPart;
  readonly name: string;
  /** Local tensors of the program that are shards of it. */
  readonly tensors: readonly string[];
  /** Tensors that sum to it, if the program holds no shard of it. */
  readonly sumOf?: readonly string[];
  readonly reference: string;
}

/** State before and after a step of the program, with its outputs and the tensors collected during the step. */
interface ProgramStep {
  readonly outputs: Arrays;
  readonly tensors: Arrays;
  /** State by its input in the graph. */
  readonly before: Arrays;
  readonly after: Arrays;
}

/** All that was compared, and how many steps changed weights. */
export interface ComparedSteps {
  readonly comparisons: readonly StepComparison[];
  readonly steps: number;
  readonly updates: number;
}

/**
 * Runs and compares two steps; more where a dynamic loss scale overflows, until two have changed weights.
 * @throws AutoparError where the program or the unsharded graph cannot be run
 */
export async function compareSteps(task: TrainingToVerify): Promise<ComparedSteps> {
  const { whole } = task;
  const places = placesIn(task);
  const first = await initialValues(whole.graph);
  const found: StepComparison[] = [];
  const gradients = places.filter(({ part, tensors }) => part === 'gradient' && tensors.length > 0);
  const reference = await openStep(
    whole.graph,
    places.map((place) => place.reference),
    gradients.map((place) => place.reference),
  );
  const unit = unitOf(whole);
  const isDynamic = whole.training?.lossScale === 'dynamic' || whole.training?.precision === 'fp16';
  let [step, updates] = [0, 0];
  try {
    while (step < STEPS || (isDynamic && updates < STEPS && step < MOST_STEPS)) {
      step++;
      task.onProgress(`step ${step} of the program`);
      const ran = await programStep(task, places, step);
      if (step === 1) found.push(...Object.keys(first).map((name) => firstValue(name, ran.before[name], first[name])));
      task.onProgress(`step ${step} of the model`);
      const before = { ...first, ...fitting(whole, ran.before) };
      const handedIn = valuesOf(whole, gradients, ran, before);
      await interruptible(task.signal);
      const expected = await reference.run(task.inputs, before, handedIn);
      const probes: Probe[] = [];
      for (let seed = 1; seed <= PROBES; seed++) {
        await interruptible(task.signal);
        const state = perturbedState(whole, before, unit, seed);
        const results = await reference.run(perturbed(task.inputs, unit, seed), state, perturbed(handedIn, 0, seed));
        probes.push({ before: state, results });
      }
      // Which gradients are infinite, which are NaN and which are just below depends on the order of sums.
      const infinite = [expected, ...probes.map(({ results }) => results)].some((results) =>
        gradients.some((place) => !allFinite(results[place.reference])),
      );
      const isComparable = !(isDynamic && infinite);
      if (isComparable && changes(whole, ran)) updates++;
      const compared = isComparable ? places : [];
      const compare = comparer(task, { unit, step, expected, probes });
      found.push(...comparedStep(task, compared, ran, before, compare));
    }
  } finally {
    await reference.release();
  }
  return { comparisons: found, steps: step, updates };
}

/**
 * The program's gradients and new state by the names of the unsharded graph; missing state is unchanged, missing gradients are 0.
 */
function valuesOf(whole: ImportedModel, gradients: readonly StepTensor[], ran: ProgramStep, before: Arrays): Arrays {
  const values: Record<string, ConstantTensor | undefined> = {};
  for (const { input, output } of whole.graph.state) values[output] = fitting(whole, ran.after)[input] ?? before[input];
  for (const { reference, tensors } of gradients) values[reference] = ran.tensors[tensors[0] ?? ''];
  const given = Object.entries(values).flatMap(([name, value]) => (value ? [[name, value] as const] : []));
  const kept = fitting(whole, Object.fromEntries(given));
  const zeros = gradients.map(
    ({ reference }) => [reference, makeTensor(typeOf(whole.graph, reference), () => 0)] as const,
  );
  return { ...Object.fromEntries(zeros), ...kept };
}

/** The arrays that have the types and shapes of the graph's tensors with their names. */
function fitting({ graph }: ImportedModel, arrays: Arrays): Arrays {
  const fits = ([name, { dtype, shape }]: readonly [string, ConstantTensor]) => {
    const type = graph.tensors.get(name);
    return type?.dtype === dtype && type.shape.join() === shape.join();
  };
  return Object.fromEntries(Object.entries(arrays).filter(fits));
}

/** The unit roundoff of the narrowest type that the step computes in. */
function unitOf({ graph, training }: ImportedModel): number {
  const types = [...flattenRegions(graph).tensors.values()].map(({ dtype }) => dtype);
  return roundoff([...types, ...(RECIPES[training?.precision ?? ''] ?? [])]);
}

/** Weights are read in the type that matmuls compute in; moments are not. */
function perturbedState({ gradients }: ImportedModel, state: Arrays, unit: number, seed: number): Arrays {
  const of = (isTrained: boolean) =>
    Object.fromEntries(Object.entries(state).filter(([name]) => (gradients?.has(name) ?? false) === isTrained));
  return { ...perturbed(of(false), 0, seed + 101), ...perturbed(of(true), unit, seed + 202) };
}

function changes({ gradients }: ImportedModel, { before, after }: ProgramStep): boolean {
  return [...(gradients?.keys() ?? [])].some((name) => {
    const [old, now] = [before[name], after[name]];
    return old && now && Buffer.compare(old.data, now.data) !== 0;
  });
}

function placesIn({ program, planned, whole, tensors }: TrainingToVerify): readonly StepTensor[] {
  const shards = new Map<string, string[]>();
  for (const [name, { source }] of program.stages.flatMap((stage) => Object.entries(stage.tensors)))
    if (source !== undefined) shards.set(source, [...(shards.get(source) ?? []), name]);
  const makers = new Map(planned.graph.nodes.flatMap((node) => node.outputs.map((output) => [output, node] as const)));
  // If several stages read a weight, each has a part of its gradient, and the sum of the parts stays inside a segment.
  const partsOf = (gradient: string): readonly string[] => {
    const found = shards.get(gradient);
    if (found) return found.slice(0, 1);
    return (makers.get(gradient)?.inputs ?? []).flatMap((input) => (input === null ? [] : partsOf(input)));
  };
  const gradients = [...(planned.gradients ?? [])].map(([name, gradient]): StepTensor => {
    const reference = whole.gradients?.get(name) ?? gradient;
    const tensors = shards.get(gradient);
    return tensors
      ? { part: 'gradient', name, tensors, reference }
      : { part: 'gradient', name, tensors: [gradient], sumOf: partsOf(gradient), reference };
  });
  const known = new Set(gradients.map(({ reference }) => reference));
  const inner = tensors.filter((name) => whole.graph.tensors.has(name) && !known.has(name));
  return [
    ...gradients,
    ...inner.map(
      (name): StepTensor => ({ part: 'inner tensor', name, tensors: shards.get(name) ?? [], reference: name }),
    ),
  ];
}

async function programStep(task: TrainingToVerify, places: readonly StepTensor[], steps: number): Promise<ProgramStep> {
  const pairs = task.program.state ?? [];
  const read = places.flatMap(({ tensors, sumOf }) => sumOf ?? tensors);
  const collect = [...read, ...pairs.flatMap(({ from, to }) => [from, to])];
  const options = {
    program: task.program,
    steps,
    collect: [...new Set(collect)],
    ...task.resources,
    ...(task.signal ? { signal: task.signal } : {}),
  };
  const { outputs, tensors } = await listening(task.signal, () => runProgram(task.directory, task.inputs, options));
  const state = (end: 'from' | 'to') =>
    Object.fromEntries(
      pairs.flatMap((pair) => (tensors[pair[end]] ? [[pair.to, tensors[pair[end]]]] : [])) as [
        string,
        ConstantTensor,
      ][],
    );
  const sums = places.flatMap(({ tensors: [name], sumOf }) => {
    const parts = (sumOf ?? []).flatMap((part) => tensors[part] ?? []);
    return name !== undefined && sumOf && parts.length === sumOf.length && parts.length > 0
      ? [[name, sumOfTensors(parts)] as const]
      : [];
  });
  return {
    outputs,
    tensors: { ...tensors, ...Object.fromEntries(sums) },
    before: state('to'),
    after: state('from'),
  };
}

interface Probe {
  readonly before: Arrays;
  readonly results: Arrays;
}

/** Compares a value of the program with tensor `reference` of the reference; with `since`, the changes of both from it. */
type Compare = (
  place: { readonly part: StepPart; readonly name: string; readonly tensor?: string },
  actual: ConstantTensor | undefined,
  reference: string,
  since?: { readonly input: string; readonly before: ConstantTensor },
) => StepComparison;

/** A step of the reference. */
interface ReferenceStep {
  readonly unit: number;
  readonly step: number;
  readonly expected: Arrays;
  readonly probes: readonly Probe[];
}

function comparer(task: TrainingToVerify, { unit, step, expected, probes }: ReferenceStep): Compare {
  return (place, actual, reference, since) => {
    const wanted = expected[reference];
    if (!wanted) throw new Error(`${reference} is not computed by the unsharded graph`);
    if (!actual) return { ...missing(place.name, wanted), ...place, step };
    const moved = (value: ConstantTensor, before: ConstantTensor | undefined) =>
      before && isFloating(value.dtype) ? change(value, before) : value;
    const given = moved(wanted, since?.before);
    const noise = probes.map(({ before, results }) => {
      const result = results[reference];
      return result ? largestDifference(moved(result, since && before[since.input]), given) : 0;
    });
    // An integer counts what rounding may decide: the tokens of an expert. It may move as far as the probes move it.
    const isInteger = !isFloating(wanted.dtype);
    const ofSums = unit > roundoff([]) ? MARGIN.narrow : MARGIN.sums;
    const margin = place.part === 'state' ? MARGIN.elements : ofSums;
    const stored = since ? ROUNDED_SIDES * 2 * roundoff([wanted.dtype]) * largestOf(wanted) : 0;
    // A few probes may find less than one rounding of the largest of the values whose sum a gradient is.
    const rounded = place.part === 'gradient' ? ROUNDED_SIDES * unit * largestOf(wanted) : 0;
    const tolerance = {
      relative: isInteger ? 0 : (task.rtol ?? RELATIVE),
      absolute: isInteger ? Math.max(...noise) : (task.atol ?? Math.max(margin * Math.max(...noise), rounded) + stored),
    };
    const compared = compareTensors(place.name, moved(actual, since?.before), given, tolerance);
    return { ...compared, dtype: wanted.dtype, ...place, step };
  };
}

function comparedStep(
  { whole, planned }: TrainingToVerify,
  places: readonly StepTensor[],
  ran: ProgramStep,
  before: Arrays,
  compare: Compare,
): readonly StepComparison[] {
  const outputs = whole.graph.outputs.filter((name) => name in ran.outputs);
  const made = new Set(flattenRegions(whole.graph).nodes.flatMap((node) => node.outputs));
  return [
    ...outputs.map((name) => compare({ part: 'output', name }, ran.outputs[name], name)),
    ...places
      .filter(({ reference }) => made.has(reference))
      .flatMap(({ part, name, tensors, reference }) =>
        (tensors.length > 0 ? tensors : [name]).map((tensor) =>
          compare({ part, name, ...(tensor === name ? {} : { tensor }) }, ran.tensors[tensor], reference),
        ),
      ),
    ...planned.graph.state.flatMap((pair) => {
      if (isStateWeight(pair)) return [];
      const { input } = pair;
      const output = whole.graph.state.find((other) => other.input === input)?.output;
      const since = before[input];
      if (output === undefined || !since) throw new Error(`the unsharded graph has no state ${input}`);
      return [compare({ part: 'state', name: input }, ran.after[input], output, { input, before: since })];
    }),
  ];
}

function firstValue(
  name: string,
  actual: ConstantTensor | undefined,
  expected: ConstantTensor | undefined,
): StepComparison {
  if (!expected) throw new Error(`state ${name} has no first value`);
  const exact = { relative: 0, absolute: 0 };
  const compared = actual ? compareTensors(name, actual, expected, exact) : missing(name, expected);
  return { ...compared, step: 0, part: 'first value' };
}

/** The comparison for a tensor that the program does not hold. */
function missing(name: string, { dtype, shape }: ConstantTensor): Comparison {
  return compareTensors(
    name,
    { dtype, shape: [...shape, 0], data: new Uint8Array() },
    { dtype, shape, data: new Uint8Array() },
    {
      relative: 0,
      absolute: 0,
    },
  );
}

/** The sum of tensors of one type. */
function sumOfTensors(parts: readonly ConstantTensor[]): ConstantTensor {
  const readers = parts.map(numberReader);
  return makeTensor(parts[0] as ConstantTensor, (index) => readers.reduce((sum, read) => sum + read(index), 0));
}

/** now − before, in float64. */
function change(now: ConstantTensor, before: ConstantTensor): ConstantTensor {
  const [read, from] = [numberReader(now), numberReader(before)];
  return makeTensor({ dtype: 'float64', shape: now.shape }, (index) => read(index) - from(index));
}

/** Whether all numbers are finite; true for a missing tensor. */
function allFinite(tensor: ConstantTensor | undefined): boolean {
  if (!tensor) return true;
  const read = numberReader(tensor);
  for (let index = elementCount(tensor.shape) - 1; index >= 0; index--) if (!Number.isFinite(read(index))) return false;
  return true;
}

function largestOf(tensor: ConstantTensor): number {
  return largestDifference(
    tensor,
    makeTensor(tensor, () => 0),
  );
}

function largestDifference(one: ConstantTensor, other: ConstantTensor): number {
  const [left, right] = [numberReader(one), numberReader(other)];
  let largest = 0;
  for (let index = elementCount(other.shape) - 1; index >= 0; index--) {
    const difference = Math.abs(left(index) - right(index));
    if (Number.isFinite(difference)) largest = Math.max(largest, difference);
  }
  return largest;
}
