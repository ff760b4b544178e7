/**
 * @file Einsum: its equation is its factor rule. Letters are factors; one that the result lacks is contracted; one that
 * an operand repeats (a diagonal) stays whole.
 */
import type { Operator, OperatorEntry } from '../operator.js';
import { bindRule } from '../rule-text.js';
import { addEinsumGradients } from './einsum-gradient.js';
import { entry, presentOperands } from './entry.js';
import { mismatch, operand, text } from './operands.js';
import { differentiable } from './operator-gradient.js';

export const einsumEntries: readonly OperatorEntry[] = [
  differentiable(
    entry({
      op: 'Einsum',
      family: 'contraction',
      infer: (operator) => {
        const { operands, output } = equation(operator);
        const sizes = new Map<string, number>();
        for (const [index, names] of operands.entries()) {
          const { shape } = operand(operator, index);
          if (shape.length !== names.length)
            throw mismatch(operator, `operand ${index} does not have the equation's rank`);
          for (const [dimension, name] of names.entries()) {
            const [size = 1, known = 1] = [shape[dimension], sizes.get(name)];
            if (size !== 1 && known !== 1 && size !== known)
              throw mismatch(operator, `${name} is ${known} in one place and ${size} in another`);
            sizes.set(name, size === 1 ? known : size);
          }
        }
        return [{ dtype: operand(operator, 0).dtype, shape: output.map((name) => sizes.get(name) ?? 1) }];
      },
      rule: ruleText,
      linear: (operator) => presentOperands(operator).map((index) => [index]),
      work: (operator) => {
        const { factors } = bindRule(ruleText(operator), operator);
        const points = [...factors.values()].reduce((product, factor) => product * factor.size, 1);
        return { flops: 2 * Math.max(1, operator.inputs.length - 1) * points };
      },
      note: 'A letter that one operand repeats (a diagonal) is not sharded.',
    }),
    (write) => {
      const { operands, output } = equation(write.operator);
      addEinsumGradients(write, operands, output);
    },
  ),
];

function ruleText(operator: Operator): string {
  const { operands, output } = equation(operator);
  const mark = (name: string) => {
    if (operands.some((names) => names.filter((other) => other === name).length > 1)) return `${name}!`;
    return output.includes(name) ? name : `${name}+`;
  };
  return `${operands.map((names) => names.map(mark).join(' ')).join(', ')} -> ${output.map(mark).join(' ')}`;
}

/**
 * Factor names per operand and of the result. An ellipsis becomes e0, e1, …; without `->` the result has the letters that occur
 * once.
 */
function equation(operator: Operator): { operands: string[][]; output: string[] } {
  const [left = '', right] = text(operator, 'equation', '').replace(/\s/g, '').split('->');
  const terms = left.split(',');
  if (terms.length !== operator.inputs.length) throw mismatch(operator, `its equation has ${terms.length} operands`);
  const ellipsis = Math.max(
    0,
    ...terms.map((term, index) =>
      term.includes('...') ? operand(operator, index).shape.length - term.replace('...', '').length : 0,
    ),
  );
  const spread = (term: string, width: number) =>
    (term.match(/\.\.\.|./g) ?? []).flatMap((token) =>
      token === '...' ? Array.from({ length: width }, (_, index) => `e_${ellipsis - width + index}`) : [token],
    );
  const operands = terms.map((term, index) =>
    spread(term, operand(operator, index).shape.length - term.replace('...', '').length),
  );
  return { operands, output: spread(right ?? implicitOutput(left), ellipsis) };
}

function implicitOutput(left: string): string {
  const letters = left.replace(/[,.]/g, '');
  const once = [...letters].filter((letter) => letters.split(letter).length === 2).sort();
  return `${left.includes('...') ? '...' : ''}${once.join('')}`;
}
