/**
 * @file The statements of one operator: its torch function, or those of the operators that it stands for.
 */
import type { ConstantTensor, TensorType } from '../../ir/graph.js';
import { entryOf } from '../../ir/ops/index.js';
import { operandNames, resultNames } from '../../ir/written-names.js';
import type { Statement } from './body.js';
import { torchOperatorOf } from './operators/index.js';
import { dtypeText, numbersText, type TorchNode } from './operators/operator.js';
import { identifier, snakeCase } from './python.js';

/** The name that a result gets, made of a base; null for one that is not used. */
export type ResultNaming = ((base: string) => string) | null;

/** An operator in its torch function, else the operators of its expansion in theirs; null where one of them has none. */
export function expressionStatements(
  node: TorchNode & { readonly domain: string },
  targets: readonly ResultNaming[],
  local: (base: string) => string,
  comment: string,
  within: readonly string[] = [],
): readonly Statement[] | null {
  const entry = torchOperatorOf(node.op, node.domain);
  const text = entry?.text(node) ?? null;
  // An operator may stand for a plainer form of itself, and that for no other.
  const isInside = within.filter((op) => op === node.op).length > 1;
  if (!entry || text === null) return isInside ? null : expandedStatements(node, targets, local, comment, within);
  const names = targets.map((target, index) => target?.(baseOf(text, node, index)) ?? '_');
  return [{ text: `${names.join(', ')} = ${text}`, comment }];
}

/**
 * The expansion of an operator. The expansion on a shard is that of the whole operator: dimensions that the expansion mixes are
 * sharded only where the graph has the expansion in place of the operator.
 */
function expandedStatements(
  node: TorchNode & { readonly domain: string },
  targets: readonly ResultNaming[],
  local: (base: string) => string,
  comment: string,
  within: readonly string[],
): readonly Statement[] | null {
  const { op, domain, attributes, inputs, outputs } = node;
  const expansion = entryOf(op, domain)?.expansion;
  if (!expansion) return null;
  const whole = { name: op, op, domain, attributes, inputs, outputs, outputCount: outputs.length };
  const { nodes, constants } = expansion(whole);
  const types = new Map<string, TensorType>();
  const texts = new Map<string, string>();
  for (const [index, name] of operandNames(inputs).entries()) {
    const type = inputs[index];
    if (type) types.set(name, type);
    texts.set(name, node.operands[index] ?? 'None');
  }
  for (const [name, value] of Object.entries(constants)) {
    types.set(name, value);
    texts.set(name, constantText(value));
  }
  const results = resultNames(targets);
  const statements: Statement[] = [];
  for (const inner of nodes) {
    const own = inner.inputs.map((name) => (name === null ? null : (types.get(name) ?? null)));
    const { domain: from = '', attributes: given = {} } = inner;
    const operator = { op: inner.op, domain: from, attributes: given, inputs: own, outputs: [] };
    const made = entryOf(inner.op, from)?.infer({ ...operator, name: op, outputCount: inner.outputs.length });
    if (!made) return null;
    for (const [index, name] of inner.outputs.entries()) types.set(name, made[index] as TensorType);
    const operands = inner.inputs.map((name) => (name === null ? null : (texts.get(name) ?? null)));
    const into = inner.outputs.map((name): ResultNaming => {
      const target = targets[results.indexOf(name)];
      return (base) => {
        const text = target ? target(base) : local(base);
        texts.set(name, text);
        return text;
      };
    });
    const isLast = inner.outputs.includes(results[0] ?? '');
    const written = expressionStatements({ ...operator, outputs: made, operands }, into, local, isLast ? comment : '', [
      ...within,
      op,
    ]);
    if (written === null) return null;
    statements.push(...written);
  }
  return results.every((name, index) => !targets[index] || texts.has(name)) ? statements : null;
}

function constantText(value: ConstantTensor): string {
  const values = numbersText(value);
  const dtype = dtypeText(value.dtype);
  if (value.shape.length === 0) return `torch.tensor(${values[0]}, dtype=${dtype})`;
  const list = `torch.tensor([${values.join(', ')}], dtype=${dtype})`;
  return value.shape.length === 1 ? list : `${list}.reshape(${value.shape.join(', ')})`;
}

/** A result is named as the function that makes it, else as the operator. */
function baseOf(text: string, { op, outputs }: TorchNode, index: number): string {
  const called = /^(?:torch|F)\.([a-z]\w*)\(/.exec(text)?.[1];
  const base = called ? identifier(called) : op === 'MatMul' ? 'matmul' : snakeCase(op);
  return index === 0 || outputs.length === 1 ? base : `${base}_${'bcdefgh'[index - 1] ?? index}`;
}
