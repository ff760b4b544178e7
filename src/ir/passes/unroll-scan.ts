/**
 * @file Scan: the body once per slice of its scan inputs, whose shapes give the number of slices.
 *
 *     Scan(v, x)     v₁, s₁ = body(v, x[0])   v₂, s₂ = body(v₁, x[1])   …   s = [s₁, s₂, …]
 *
 * Scan of opset 8 runs over the second dimension, for each sample of the batch and up to the sample's own length; it
 * becomes a Scan of opset 9 per sample.
 */
import { byteLength, type DType } from '../dtype.js';
import { AutoparError } from '../error.js';
import { type ConstantTensor, elementCount } from '../graph.js';
import type { SourceNode } from '../onnx/model.js';
import { numbersOf } from '../ops/constants.js';
import { numberAttribute, numbersAttribute, type Rewrite, type RewriteContext } from './rewrite.js';
import { bodyOf, nodeCount, refusedControl, type SubgraphBody } from './subgraph-body.js';
import { checkLength } from './unroll-limit.js';
import { checkBody, nameResults, plain, runIteration, stack, stackNothing } from './unroll-loops.js';

/** Before this opset Scan had a batch. */
const WITHOUT_BATCH = 9;

export const unrollScan: Rewrite = async (node, context) => {
  if (node.opset > 0 && node.opset < WITHOUT_BATCH) return perSample(node, context);
  const body = await bodyOf(node, 'body', context);
  const scans = numberAttribute(node.attributes, 'num_scan_inputs', 0);
  const initial = node.inputs.slice(0, node.inputs.length - scans);
  checkBody(body, node.inputs.length, initial.length, context);
  const inputs = node.inputs.slice(initial.length).map((name) => name ?? '');
  const axes = inputs.map((name, index) => axisOf(node, 'scan_input_axes', index, context.typeOf(name).shape.length));
  const length = commonLength(node, inputs, axes, context);
  checkLength(node, length, nodeCount(body.graph), context);
  const slices = await Promise.all(
    inputs.map((name, index) => slicesOf(node, `${body.prefix}/in.${index}`, name, axes[index] ?? 0, context)),
  );
  const bindingsOf = (iteration: number, carried: readonly (string | null)[]): readonly (string | null)[] => [
    ...carried,
    ...slices.map((all, index) => {
      const backwards = numbersAttribute(node.attributes, 'scan_input_directions')[index] === 1;
      return all[backwards ? length - 1 - iteration : iteration] ?? null;
    }),
  ];
  let carried: readonly (string | null)[] = initial;
  const scanned = body.graph.outputs.slice(initial.length).map((): string[] => []);
  for (let iteration = 0; iteration < length; iteration++) {
    const results = await runIteration(body, iteration, bindingsOf(iteration, carried), context);
    carried = results.slice(0, initial.length);
    results.slice(initial.length).forEach((name, index) => {
      scanned[index]?.push(name);
    });
  }
  nameResults(node, carried, context);
  for (const [index, names] of scanned.entries()) {
    const output = initial.length + index;
    const axis = numbersAttribute(node.attributes, 'scan_output_axes')[index] ?? 0;
    const backwards = numbersAttribute(node.attributes, 'scan_output_directions')[index] === 1;
    if (names.length > 0) await stack(node, output, backwards ? names.toReversed() : names, axis, context);
    else
      await stackNothing(
        body,
        output,
        output,
        axis,
        () => [...initial, ...nothing(body, inputs, axes, context)],
        context,
      );
  }
  return [];
};

/** The slices of a scan input along its axis, which they lack. */
async function slicesOf(
  node: SourceNode,
  base: string,
  input: string,
  axis: number,
  context: RewriteContext,
): Promise<readonly string[]> {
  const length = context.typeOf(input).shape[axis] ?? 0;
  const prefix = context.prefix(base);
  const slices = Array.from({ length }, (_, index) => `${prefix}/${index}`);
  const kept = length === 1 ? [input] : slices.map((name) => `${name}/kept`);
  const split = plain(node, 'Split', { axis, split: kept.map(() => 1) }, [input], kept);
  const squeezed = slices.map((name, index) => plain(node, 'Squeeze', { axes: [axis] }, [kept[index] ?? ''], [name]));
  if (length > 0) await context.resolve(length === 1 ? squeezed : [split, ...squeezed]);
  return slices;
}

/** Slices of zeros, for the types of results that an empty Scan would have made. */
function nothing(
  { prefix }: SubgraphBody,
  inputs: readonly string[],
  axes: readonly number[],
  context: RewriteContext,
): readonly string[] {
  return inputs.map((name, index) => {
    const { dtype, shape } = context.typeOf(name);
    return context.literal(`${prefix}/none.${index}`, zeros(dtype, shape.toSpliced(axes[index] ?? 0, 1)));
  });
}

function zeros(dtype: DType, shape: readonly number[]): ConstantTensor {
  return { dtype, shape, data: new Uint8Array(byteLength(dtype, elementCount(shape))) };
}

function commonLength(
  node: SourceNode,
  inputs: readonly string[],
  axes: readonly number[],
  context: RewriteContext,
): number {
  const lengths = inputs.map((name, index) => context.typeOf(name).shape[axes[index] ?? 0]);
  const [length] = lengths;
  if (length !== undefined && lengths.every((other) => other === length)) return length;
  throw new AutoparError(
    'shape-mismatch',
    'input',
    `node '${node.name || node.op}' (Scan) runs over inputs of ${lengths.map((size) => size ?? 'no').join(' and ')} slices`,
    { file: context.file, node: node.name || node.op },
    'all scan inputs have the same number of slices',
  );
}

function axisOf(node: SourceNode, attribute: string, index: number, rank: number): number {
  const axis = numbersAttribute(node.attributes, attribute)[index] ?? 0;
  return axis < 0 ? axis + rank : axis;
}

/** Scan of opset 8: a Scan without a batch for each sample, its outputs padded with zeros and joined. */
async function perSample(node: SourceNode, context: RewriteContext): Promise<readonly SourceNode[]> {
  const scans = numberAttribute(node.attributes, 'num_scan_inputs', 0);
  const operands = node.inputs.slice(1).map((name) => name ?? '');
  const states = operands.length - scans;
  const prefix = context.prefix(node.name || node.outputs.find((name) => name !== null) || node.op);
  const samples = await Promise.all(
    operands.map((name, index) => slicesOf(node, `${prefix}/in.${index}`, name, 0, context)),
  );
  const longest = context.typeOf(operands[states] ?? '').shape[1] ?? 0;
  const lengths = await sampleLengths(node, samples[0]?.length ?? 0, longest, context);
  const results = node.outputs.map((): string[] => []);
  for (const [sample, length] of lengths.entries()) {
    const inputs = samples.map((all, index) => ({ name: all[sample] ?? '', cut: index >= states && length < longest }));
    const cut = (index: number): string => `${prefix}/${sample}/in.${index}`;
    const shortened = inputs.flatMap(({ name, cut: isCut }, index) =>
      isCut ? [plain(node, 'Slice', { starts: [0], ends: [length], axes: [0] }, [name], [cut(index)])] : [],
    );
    const made = node.outputs.map((_, index) => `${prefix}/${sample}/out.${index}`);
    const { body, directions = [] } = node.attributes;
    const attributes = { ...(body ? { body } : {}), num_scan_inputs: scans, scan_input_directions: directions };
    const scan = plain(
      node,
      'Scan',
      attributes,
      inputs.map(({ name, cut: isCut }, index) => (isCut ? cut(index) : name)),
      made,
    );
    await context.resolve([...shortened, { ...scan, name: `${prefix}/${sample}`, opset: WITHOUT_BATCH }]);
    for (const [index, name] of made.entries()) {
      const whole = index < states || length === longest ? name : await filledUp(node, name, longest, context);
      results[index]?.push(whole);
    }
  }
  for (const [index, names] of results.entries()) await stack(node, index, names, 0, context);
  return [];
}

/** A scan output of a short sample with zeros for the slices that it lacks. */
async function filledUp(node: SourceNode, name: string, longest: number, context: RewriteContext): Promise<string> {
  const { dtype, shape } = context.typeOf(name);
  const missing = context.literal(`${name}/zeros`, zeros(dtype, [longest - (shape[0] ?? 0), ...shape.slice(1)]));
  const filled = `${name}/filled`;
  await context.resolve([plain(node, 'Concat', { axis: 0 }, [name, missing], [filled])]);
  return filled;
}

async function sampleLengths(
  node: SourceNode,
  samples: number,
  longest: number,
  context: RewriteContext,
): Promise<readonly number[]> {
  const [given] = node.inputs;
  if (!given) return Array.from({ length: samples }, () => longest);
  const value = await context.valueOf(given);
  if (value) return numbersOf(value);
  throw refusedControl(
    node,
    context,
    'runs for lengths that depend on the data, which a static plan cannot follow',
    'give the lengths with --const, or export with fixed lengths',
  );
}
