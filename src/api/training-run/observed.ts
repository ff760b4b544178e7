/**
 * @file Observations of a step besides its loss: the gradient norm, and the first tensor that is not finite.
 */

import { AutoparError } from '../../ir/error.js';
import type { OperatorRole } from '../../ir/operator.js';
import { operatorRole } from '../../ir/ops/index.js';
import type { Program } from '../../program/program.js';
import { scalarIn } from '../../runtime/run-program.js';
import type { StepOptions, StepResult } from '../../runtime/session.js';
import type { ImportedModel } from '../models/import.js';
import { numberReader } from '../verification/numbers.js';

/** The tensors in which a program holds the gradients of its weights. */
export interface GradientPlaces {
  /** Local tensors whose squares the ranks sum. */
  readonly measured: readonly string[];
  /** For each other weight, tensors whose sum is its gradient; they are gathered and summed first. */
  readonly summed: readonly (readonly string[])[];
  /** The scalar by which all gradients are divided; null for 1. */
  readonly divisor: string | null;
}

const SUMS: ReadonlySet<OperatorRole | undefined> = new Set<OperatorRole>(['sum', 'copy']);

/** The places of the gradients; null if the program does not hold all of them. */
export function gradientPlaces(program: Program, { graph, gradients, step }: ImportedModel): GradientPlaces | null {
  const places = new Map<string, string[]>();
  const isPlain = new Set<string>();
  for (const [name, { source, layout, varying }] of program.stages.flatMap(({ tensors }) => Object.entries(tensors))) {
    if (source === undefined || varying) continue;
    places.set(source, [...(places.get(source) ?? []), name]);
    if (!layout.extents && layout.partial.length === 0) isPlain.add(name);
  }
  const makers = new Map(graph.nodes.flatMap((node) => node.outputs.map((output) => [output, node] as const)));
  // If several stages read a weight, each has a part of its gradient, and their sum stays inside a segment.
  const partsOf = (tensor: string): readonly string[] => {
    const [found] = places.get(tensor) ?? [];
    if (found !== undefined) return [found];
    const maker = makers.get(tensor);
    const parts =
      maker && SUMS.has(operatorRole(maker)) ? maker.inputs.map((input) => (input === null ? [] : partsOf(input))) : [];
    return parts.some((part) => part.length === 0) ? [] : parts.flat();
  };
  const measured: string[] = [];
  const summed: (readonly string[])[] = [];
  for (const gradient of gradients?.values() ?? []) {
    const plain = places.get(gradient)?.find((name) => isPlain.has(name));
    if (plain !== undefined) measured.push(plain);
    else {
      const parts = partsOf(gradient);
      if (parts.length === 0) return null;
      summed.push(parts);
    }
  }
  const divisor = step?.divisor == null ? null : places.get(step.divisor)?.[0];
  return divisor === undefined ? null : { measured, summed, divisor };
}

/** The options with which a step returns the values for the gradient norm. */
export function gradientOptions(places: GradientPlaces | null): StepOptions {
  if (!places) return {};
  const collect = [...new Set(places.summed.flat()), ...(places.divisor === null ? [] : [places.divisor])];
  return { measure: places.measured, collect };
}

/**
 * The global gradient norm, for the mean loss; 0 if all labels are ignored.
 * @param scale the factor by which the gradients are multiplied
 */
export function gradientNorm(places: GradientPlaces, { squares, tensors }: StepResult, scale: number): number {
  let sum = places.measured.reduce((total, name) => total + (squares[name] ?? Number.NaN), 0);
  for (const parts of places.summed) {
    const readers = parts.flatMap((name) => (tensors[name] ? [numberReader(tensors[name])] : []));
    const length = tensors[parts[0] ?? '']?.shape.reduce((product, size) => product * size, 1) ?? 0;
    for (let index = 0; index < length; index++) sum += readers.reduce((value, read) => value + read(index), 0) ** 2;
  }
  const divisor = places.divisor === null ? undefined : tensors[places.divisor];
  const counted = divisor ? scalarIn(divisor) : 1;
  return counted === 0 ? 0 : Math.sqrt(sum) / (counted * scale);
}

/** Tensors that were not finite in a successful step: masks of −∞ are not finite in every step. */
export function usualNames({ notFinite }: StepResult): ReadonlySet<string> {
  return new Set(notFinite.map(({ tensor }) => tensor));
}

/**
 * The error for a step whose loss or gradients are not finite; it names the first tensor that is not finite.
 * @param usual names of tensors that are not finite in successful steps; null before the first successful step
 */
export function notFiniteError(
  what: string,
  step: number,
  result: StepResult,
  usual: ReadonlySet<string> | null,
  program: Program,
  graph: ImportedModel['graph'],
): AutoparError {
  const unusual = result.notFinite.filter(({ tensor }) => !usual?.has(tensor));
  const first = usual ? unusual[0] : (unusual.find(({ isNan }) => isNan) ?? unusual[0]);
  const message = `the ${what} of step ${step} is not finite`;
  const hint = 'lower --learning-rate, add --clip-norm or --warmup when compiling, or look at the data of this step';
  if (!first) return new AutoparError('not-finite', 'checkFailed', message, {}, hint);
  const { tensor, label, isNan, rank } = first;
  const source = program.stages.flatMap(({ tensors }) => tensors[tensor]?.source ?? [])[0] ?? tensor;
  const node = graph.nodes.find(({ outputs }) => outputs.includes(source));
  const maker =
    label === 'input'
      ? 'an input, as the data file has it'
      : node
        ? `made by ${node.op} ${node.name}`
        : `made by ${label}`;
  return new AutoparError(
    'not-finite',
    'checkFailed',
    `${message}; the first tensor that is not is ${source} (${isNan ? 'not a number' : 'infinite'}, on rank ${rank}), ${maker}`,
    { tensor: source, ...(label === 'input' ? {} : { node: node?.name ?? label }) },
    hint,
  );
}
