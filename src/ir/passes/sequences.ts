/**
 * @file Sequences: exporters write `split(x)[1]` as SplitToSequence and SequenceAt. With constant indices they are plain
 * tensors again: the sequence is followed by name and disappears.
 */
import { AutoparError } from '../error.js';
import type { SourceNode } from '../onnx/model.js';
import { constant, numbersOf } from '../ops/constants.js';
import { numberAttribute, type Rewrite, type RewriteContext } from './rewrite.js';

/** Rewrites by operator. */
export const sequenceRewrites: Readonly<Record<string, Rewrite>> = {
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
    const index = positive(await indexOf(node, 1, context), elements.length);
    const element = elements[index];
    if (element === undefined)
      throw new AutoparError(
        'sequence-index',
        'input',
        `node '${node.name || node.op}' reads element ${index} of a sequence of ${elements.length}`,
        { file: context.file, node: node.name },
      );
    context.alias(resultOf(node), element);
    return [];
  },
  SequenceInsert: async (node, context) => {
    const elements = elementsOf(node, context);
    const index = node.inputs[2] ? positive(await indexOf(node, 2, context), elements.length) : elements.length;
    context.sequence(resultOf(node), elements.toSpliced(index, 0, operandOf(node, 1)));
    return [];
  },
  SequenceErase: async (node, context) => {
    const elements = elementsOf(node, context);
    const index = node.inputs[1] ? positive(await indexOf(node, 1, context), elements.length) : elements.length - 1;
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
  if (!given) return Array.from({ length: total }, () => 1);
  const value = await context.valueOf(given);
  if (!value) throw dependent(node, context);
  const sizes = numbersOf(value);
  if (value.shape.length > 0) return sizes;
  const size = sizes[0] ?? 1;
  return Array.from({ length: Math.ceil(total / size) }, (_, index) => Math.min(size, total - index * size));
}

async function indexOf(node: SourceNode, operand: number, context: RewriteContext): Promise<number> {
  const value = await context.valueOf(operandOf(node, operand));
  if (!value) throw dependent(node, context);
  return numbersOf(value)[0] ?? 0;
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

function resultOf(node: SourceNode): string {
  return node.outputs[0] ?? '';
}

function operandOf(node: SourceNode, index: number): string {
  return node.inputs[index] ?? '';
}

function positive(index: number, length: number): number {
  return index < 0 ? index + length : index;
}
