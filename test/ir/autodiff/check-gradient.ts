/**
 * @file Gradients held against finite differences of the forward operator in ONNX Runtime.
 *
 * The scalar is L = Σ grad · out with random result gradients. Each of its derivatives is the five-point difference
 * (4 D(h/2) − D(h)) / 3 of two central ones, in float64 where the runtime has the operator so. Where D(h) and D(h/2) differ
 * by much there is a kink near by (a Relu at 0): that element is left out, and too many of them are an error of the sample.
 */
import { isFloating } from '../../../src/ir/dtype.js';
import type { Attributes, AttributeValue } from '../../../src/ir/graph.js';
import type { DifferentiatedOperator, Gradient } from '../../../src/ir/operator.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { makeRun, type Values } from '../ops/one-node.js';
import type { Case } from '../ops/sample.js';
import {
  differentiatedOf,
  type GradientOptions,
  gradientOf,
  named,
  operandsOf,
  resultGradientsOf,
  retyped,
  runGradient,
} from './sample-gradient.js';

const run = makeRun();

/**
 * Checks the registry's gradient of the sample's operator, and returns the worst relative error (norm-wise) of an operand's
 * gradient. It runs in the sample's own dtype, and in float64 too where ONNX Runtime has all its operators so.
 * @throws Error saying what is wrong: a node that breaks the contract of `Gradient`, or a gradient that is off.
 */
export async function checkGradient(sample: Case, options: GradientOptions = {}): Promise<number> {
  const seed = options.seed ?? 1;
  const operator = differentiatedOf(sample, options);
  if (!operator.wanted.includes(true)) throw new Error(`${sample.op}: no operand's gradient is wanted`);
  if (!operator.given.includes(true)) throw new Error(`${sample.op}: no result has a gradient`);
  checkEachAlone(operator, options.gradient);
  const operands = operandsOf(sample, seed);
  const gradients = resultGradientsOf(operator, seed);
  const fine = inFloat64(sample, operator);
  const coarse = forwardOf(sample, operator);
  const forward = (await forwardIn64(fine, operator, coarse, operands)) ?? coarse;
  const slopes = await differences(forward, operands, gradients, operator);
  const half = operator.inputs.some((type, index) => operator.wanted[index] && type?.dtype.endsWith('float16'));
  const tolerance = options.tolerance ?? (half ? 2e-2 : forward.fine ? 1e-4 : 2e-3);
  const worst = await compare(sample, options, slopes, tolerance);
  const worstIn64 = forward.fine ? await compareIn64(fine, options, slopes, options.tolerance ?? 1e-6) : 0;
  return Math.max(worst, worstIn64);
}

/** A forward operator as a function of its operands. */
interface Forward {
  readonly sample: Case;
  /** Whether operands and results are float64. */
  readonly fine: boolean;
  readonly results: (operands: readonly (Values | null)[]) => Promise<readonly (Values | null)[]>;
}

function forwardOf(sample: Case, operator: Pick<DifferentiatedOperator, 'outputs'>, fine = false): Forward {
  const results: Forward['results'] = (operands) =>
    run(
      sample,
      operands.map((value, index) => as(value, sample.inputs[index]?.dtype)),
      operator.outputs,
    );
  return { sample, fine, results };
}

/**
 * The operator in float64; null where ONNX Runtime has none, where some result or the arithmetic inside is coarse all the same
 * (functions that are written out in float32, kernels that convert), and where it then is another operator.
 */
async function forwardIn64(
  sample: Case,
  { wanted }: DifferentiatedOperator,
  coarse: Forward,
  operands: readonly (Values | null)[],
): Promise<Forward | null> {
  try {
    const operator = differentiatedOf(sample, {});
    if (operator.outputs.some((type) => type && isFloating(type.dtype) && type.dtype !== 'float64')) return null;
    const forward = forwardOf(sample, operator, true);
    const base = await forward.results(operands);
    const expected = await coarse.results(operands);
    if (base.some((value, at) => value && expected[at] && deviation(value, expected[at]) > 1e-2)) return null;
    for (const [index, operand] of operands.entries())
      if (operand && wanted[index] && !(await isLinearUpClose(forward, operands, base, index, operand))) return null;
    return forward;
  } catch {
    return null;
  }
}

/** Whether a step of 2e-6 changes the results by twice as much as one of 1e-6: in float32 rounding hides it. */
async function isLinearUpClose(
  forward: Forward,
  operands: readonly (Values | null)[],
  base: readonly (Values | null)[],
  index: number,
  operand: Values,
): Promise<boolean> {
  const direction: Probe = new Map(operand.data.map((_, at) => [at, signAt(at, 0)] as const));
  const changes = async (step: number) => {
    const results = await forward.results(
      operands.map((value, at) => (at === index ? moved(value, direction, step) : value)),
    );
    return results.flatMap(
      (value, at) => value?.data.map((number, place) => difference(number, base[at]?.data[place])) ?? [],
    );
  };
  const [one, two] = [await changes(1e-6), await changes(2e-6)];
  return norm(two.map((value, at) => value - 2 * (one[at] ?? 0))) <= 1e-3 * norm(one) + 1e-12;
}

/** Finite differences of one operand: the probed elements and their slopes, without elements at a kink. */
interface Slopes {
  readonly probes: readonly Probe[];
  readonly values: readonly number[];
}

/** A direction in an operand's space: position → amount. */
type Probe = ReadonlyMap<number, number>;

/** Small operands are probed element by element; larger ones by some elements, and by random directions over all. */
const ALL_UP_TO = 64;
const ELEMENTS = 40;
const DIRECTIONS = 8;

async function differences(
  forward: Forward,
  operands: readonly (Values | null)[],
  gradients: readonly (Values | null)[],
  operator: DifferentiatedOperator,
): Promise<readonly (Slopes | null)[]> {
  const base = await forward.results(operands);
  // Σ grad · (out − base): only what changes is summed, so that nothing is lost to cancellation.
  const change = async (index: number, probe: Probe, step: number): Promise<number> => {
    const results = await forward.results(
      operands.map((value, at) => (at === index ? moved(value, probe, step) : value)),
    );
    return gradients.reduce((sum, gradient, at) => sum + weighted(gradient, results[at], base[at]), 0);
  };
  const found: (Slopes | null)[] = [];
  for (const [index, operand] of operands.entries()) {
    if (!operand || !operator.wanted[index]) {
      found.push(null);
      continue;
    }
    const width = (forward.sample.inputs[index]?.high ?? 1) - (forward.sample.inputs[index]?.low ?? -1);
    const step = (forward.fine ? 1e-4 : 1e-2) * Math.min(Math.max(width, 0.1), 2);
    const central = async (probe: Probe, by: number) =>
      ((await change(index, probe, by)) - (await change(index, probe, -by))) / (2 * by);
    const pairs: { readonly probe: Probe; readonly wide: number; readonly near: number }[] = [];
    for (const probe of probesOf(operand.data.length))
      pairs.push({ probe, wide: await central(probe, step), near: await central(probe, step / 2) });
    const scale = norm(pairs.map(({ near }) => near)) / Math.sqrt(Math.max(1, pairs.length));
    const smooth = pairs.filter(({ wide, near }) => Math.abs(wide - near) <= 0.05 * scale + 1e-3);
    if (smooth.length * 2 < pairs.length)
      throw new Error(
        `${forward.sample.op}: operand ${index} lies at kinks (${pairs.length - smooth.length} of ${pairs.length})`,
      );
    const values = smooth.map(({ wide, near }) => (4 * near - wide) / 3);
    found.push({ probes: smooth.map(({ probe }) => probe), values });
  }
  return found;
}

function probesOf(count: number): readonly Probe[] {
  const elements = count <= ALL_UP_TO ? count : ELEMENTS;
  const single = Array.from(
    { length: elements },
    (_, at): Probe => new Map([[Math.floor((at * count) / elements), 1]]),
  );
  if (count <= ALL_UP_TO) return single;
  const directions = Array.from({ length: DIRECTIONS }, (_, seed): Probe => {
    return new Map(Array.from({ length: count }, (_, at) => [at, signAt(at, seed) / Math.sqrt(count)] as const));
  });
  return [...single, ...directions];
}

/** A sign that looks drawn. */
function signAt(at: number, seed: number): number {
  return Math.sin((at + 1) * (seed + 1.7) * 12.9898) > 0 ? 1 : -1;
}

/** ‖a − b‖ over ‖b‖ and a little. */
function deviation(a: Values, b: Values): number {
  return norm(a.data.map((value, at) => difference(value, b.data[at]))) / (norm(b.data.filter(Number.isFinite)) + 1e-6);
}

/** Runs the gradient in the sample's dtype and compares; returns the worst error. */
async function compare(
  sample: Case,
  options: GradientOptions,
  slopes: readonly (Slopes | null)[],
  tolerance: number,
): Promise<number> {
  const { seed = 1, gradient } = options;
  const operator = differentiatedOf(sample, options);
  const operands = operandsOf(sample, seed).map((value, index) => as(value, operator.inputs[index]?.dtype));
  const given = resultGradientsOf(operator, seed).map((value, index) => as(value, operator.outputs[index]?.dtype));
  const results = await run(sample, operands, operator.outputs);
  const made = await runGradient(operator, gradientOf(operator, gradient), named(operands, results, given), run);
  const size = norm(given.flatMap((value) => value?.data ?? []));
  return slopes.reduce((worst, expected, index) => {
    const own = made[index];
    if (!expected || !own) return worst;
    const error = relativeError(own, expected, size);
    if (!(error <= tolerance))
      throw new Error(
        `gradient of ${sample.op} in ${own.dtype}, d${index}: off by ${error.toExponential(2)}, ` +
          `allowed ${tolerance.toExponential(0)}: ${examples(own, expected)}`,
      );
    return Math.max(worst, error);
  }, 0);
}

/** As `compare`, in float64; 0 where ONNX Runtime lacks an operator of the gradient. */
async function compareIn64(...parts: Parameters<typeof compare>): Promise<number> {
  try {
    return await compare(...parts);
  } catch (error) {
    if (
      error instanceof Error &&
      /NOT_IMPLEMENTED|Could not find an implementation|tensor\(double\)' of .* is invalid/.test(error.message)
    )
      return 0;
    throw error;
  }
}

/** Norm of the difference over the norm of what is expected; below a thousandth of what went in, over that. */
function relativeError(made: Values, { probes, values }: Slopes, size: number): number {
  const errors = probes.map((probe, at) => along(made, probe) - (values[at] ?? 0));
  return norm(errors) / Math.max(norm(values), 1e-3 * size, Number.MIN_VALUE);
}

function along(made: Values, probe: Probe): number {
  return [...probe].reduce((sum, [at, amount]) => sum + amount * (made.data[at] ?? Number.NaN), 0);
}

/** The three places that are furthest off. */
function examples(made: Values, { probes, values }: Slopes): string {
  return probes
    .map((probe, at) => ({
      place: probe.size === 1 ? `[${[...probe.keys()]}]` : 'a direction',
      got: along(made, probe),
      expected: values[at] ?? 0,
    }))
    .sort((a, b) => Math.abs(b.got - b.expected) - Math.abs(a.got - a.expected))
    .slice(0, 3)
    .map(({ place, got, expected }) => `${place} is ${got.toPrecision(5)}, differences say ${expected.toPrecision(5)}`)
    .join('; ');
}

/** Whatever single gradient is asked for, the nodes keep to the contract. */
function checkEachAlone(operator: DifferentiatedOperator, gradient: Gradient | undefined): void {
  const alone = (flags: readonly boolean[]) =>
    flags.flatMap((flag, index) => (flag ? [flags.map((_, other) => other === index)] : []));
  for (const wanted of alone(operator.wanted))
    for (const given of alone(operator.given)) gradientOf({ ...operator, wanted, given }, gradient);
}

function moved(value: Values | null, probe: Probe, step: number): Values | null {
  return value && { ...value, data: value.data.map((number, at) => number + (probe.get(at) ?? 0) * step) };
}

function weighted(gradient: Values | null, value: Values | null | undefined, base: Values | null | undefined): number {
  if (!gradient || !value || !base) return 0;
  return gradient.data.reduce((sum, weight, at) => sum + weight * difference(value.data[at], base.data[at]), 0);
}

/** The difference; zero for infinities that stay (a masked score). */
function difference(value = Number.NaN, base = Number.NaN): number {
  return value === base ? 0 : value - base;
}

function norm(values: readonly number[]): number {
  return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
}

function as(value: Values | null, dtype: Values['dtype'] | undefined): Values | null {
  return value && dtype ? { ...value, dtype } : value;
}

/** The sample in float64, its constants included. */
function inFloat64(sample: Case, operator: DifferentiatedOperator): Case {
  if (!operator.inputs.some((type) => type && isFloating(type.dtype))) return sample;
  const wide = (value: AttributeValue): AttributeValue =>
    typeof value === 'object' && 'dtype' in value && isFloating(value.dtype)
      ? constant('float64', numbersOf(value), value.shape)
      : value;
  const attributes: Attributes = Object.fromEntries(
    Object.entries(sample.attributes).map(([name, value]) => [name, wide(value)]),
  );
  return { ...retyped(sample, 'float64'), attributes };
}
