/**
 * @file Sequences: exporters write `split(x)[1]` as SplitToSequence and SequenceAt. With constant indices they are plain
 * tensors again: the sequence is followed by name and disappears.
 */
import { AutoparError } from '../error.js';
import { resultOf } from '../fused-regions/matching.js';
import type { SourceNode } from '../onnx/model.js';
import { constant, numbersOf } from '../ops/constants.js';
import { optionalRewrites } from './optionals.js';
import { numberAttribute, type Rewrite, type RewriteContext } from './rewrite.js';
import { countUnrolled } from './unroll-limit.js';

/** Rewrites by operator, those of optionals included, which may hold sequences. */
export const sequenceRewrites: Readonly<Record<string, Rewrite>> = {
  ...optionalRewrites,
  Identity: (node, context) => {
    const input = operandOf(node, 0);
    if (context.elementsOf(input) === null && !context.isAbsent(input)) return null;
    context.alias(resultOf(node), input);
    return [];
  },
  SequenceConstruct: (node, context) => {
    context.sequence(
      resultOf(node),
      node.inputs.filter((name) => name !== null),
    );
    return [];
  },
  SequenceEmpty: (node, context) => {
    context.sequence(resultOf(node), []);
    return [];
  },
  SplitToSequence: async (node, context) => {
    const input = operandOf(node, 0);
    const { shape } = context.typeOf(input);
    const axis = positive(numberAttribute(node.attributes, 'axis', 0), shape.length);
    const total = shape[axis] ?? 1;
    const keeps =
      node.inputs[1] !== null && node.inputs[1] !== undefined
        ? true
        : numberAttribute(node.attributes, 'keepdims', 1) !== 0;
    const sizes = await splitSizes(node, total, context);
    const parts = sizes.map((_, index) => `${resultOf(node)}/${index}`);
    context.sequence(resultOf(node), parts);
    if (parts.length === 0) return [];
    const split: SourceNode = {
      ...node,
      op: 'Split',
      attributes: { axis, split: sizes },
      inputs: [input],
      outputs: keeps ? parts : parts.map((part) => `${part}/kept`),
    };
    if (keeps) return [split];
    return [
      split,
      ...parts.map((part, index) => ({
        ...node,
        name: `${node.name}/${index}`,
        op: 'Squeeze',
        attributes: { axes: [axis] },
        inputs: [`${part}/kept`],
        outputs: [part],
      })),
    ];
  },
  SequenceAt: async (node, context) => {
    const elements = elementsOf(node, context);
    const index = await indexOf(node, 1, elements.length, context);
    context.alias(resultOf(node), elements[index] ?? '');
    return [];
  },
  SequenceInsert: async (node, context) => {
    const elements = elementsOf(node, context);
    const { length } = elements;
    // A new element may also come after the last one.
    const index = node.inputs[2] ? await indexOf(node, 2, length, context, length + 1) : length;
    context.sequence(resultOf(node), elements.toSpliced(index, 0, operandOf(node, 1)));
    return [];
  },
  SequenceErase: async (node, context) => {
    const elements = elementsOf(node, context);
    const { length } = elements;
    if (length === 0) throw outside(node, 'the last element', length, context);
    const index = node.inputs[1] ? await indexOf(node, 1, length, context) : length - 1;
    context.sequence(resultOf(node), elements.toSpliced(index, 1));
    return [];
  },
  SequenceLength: (node, context) => {
    context.alias(
      resultOf(node),
      context.literal(resultOf(node), constant('int64', [elementsOf(node, context).length])),
    );
    return [];
  },
  ConcatFromSequence: (node, context) => {
    const elements = elementsOf(node, context);
    if (elements.length === 0) throw outside(node, 'the first element', 0, context);
    const stacks = numberAttribute(node.attributes, 'new_axis', 0) !== 0;
    const axis = numberAttribute(node.attributes, 'axis', 0);
    if (!stacks) return [{ ...node, op: 'Concat', attributes: { axis }, inputs: elements }];
    const raised = elements.map((_, index) => `${resultOf(node)}/${index}`);
    return [
      ...elements.map((element, index) => ({
        ...node,
        name: `${node.name}/${index}`,
        op: 'Unsqueeze',
        attributes: { axes: [axis] },
        inputs: [element],
        outputs: [raised[index] ?? ''],
      })),
      { ...node, op: 'Concat', attributes: { axis }, inputs: raised },
    ];
  },
};

async function splitSizes(node: SourceNode, total: number, context: RewriteContext): Promise<readonly number[]> {
  const given = node.inputs[1];
  if (!given) {
    countUnrolled(node, total, `splits into ${total} tensors`, context);
    return Array.from({ length: total }, () => 1);
  }
  const value = await context.valueOf(given);
  if (!value) throw dependent(node, context);
  const sizes = numbersOf(value);
  if (value.shape.length > 0) return sizes;
  const size = sizes[0] ?? 1;
  if (!(size > 0)) throw outside(node, `parts of ${size}`, total, context);
  countUnrolled(node, total / size, `splits into ${Math.ceil(total / size)} tensors`, context);
  return Array.from({ length: Math.ceil(total / size) }, (_, index) => Math.min(size, total - index * size));
}

/** A position in a sequence of `length`: negative ones count from the end. `positions` are allowed, all elements by default. */
async function indexOf(
  node: SourceNode,
  operand: number,
  length: number,
  context: RewriteContext,
  positions = length,
): Promise<number> {
  const value = await context.valueOf(operandOf(node, operand));
  if (!value) throw dependent(node, context);
  const given = numbersOf(value)[0] ?? 0;
  const index = positive(given, length);
  if (index < 0 || index >= positions) throw outside(node, `element ${given}`, length, context);
  return index;
}

function outside(node: SourceNode, what: string, length: number, context: RewriteContext): AutoparError {
  return new AutoparError(
    'sequence-index',
    'input',
    `node '${node.name || node.op}' (${node.op}) reads ${what} of a sequence of ${length}`,
    { file: context.file, node: node.name },
  );
}

function elementsOf(node: SourceNode, context: RewriteContext): readonly string[] {
  const elements = context.elementsOf(operandOf(node, 0));
  if (!elements)
    throw new AutoparError('not-a-sequence', 'input', `node '${node.name || node.op}' (${node.op}) needs a sequence`, {
      file: context.file,
      node: node.name,
    });
  return elements;
}

function dependent(node: SourceNode, context: RewriteContext): AutoparError {
  return new AutoparError(
    'data-dependent-shape',
    'input',
    `node '${node.name || node.op}' (${node.op}) picks from a sequence by a value that depends on the data`,
    { file: context.file, node: node.name },
    'make the index or the sizes constants',
  );
}

function operandOf(node: SourceNode, index: number): string {
  return node.inputs[index] ?? '';
}

function positive(index: number, length: number): number {
  return index < 0 ? index + length : index;
}
