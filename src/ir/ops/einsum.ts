/**
 * @file Einsum: its equation is its factor rule. Letters are factors; one that the result lacks is contracted; one that
 * an operand repeats (a diagonal) stays whole.
 */
import type { OperatorEntry, OperatorView } from '../operator.js';
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
      infer: (view) => {
        const { operands, output } = equation(view);
        const sizes = new Map<string, number>();
        for (const [index, names] of operands.entries()) {
          const { shape } = operand(view, index);
          if (shape.length !== names.length) throw mismatch(view, `operand ${index} does not have the equation's rank`);
          for (const [dimension, name] of names.entries()) {
            const [size = 1, known = 1] = [shape[dimension], sizes.get(name)];
            if (size !== 1 && known !== 1 && size !== known)
              throw mismatch(view, `${name} is ${known} in one place and ${size} in another`);
            sizes.set(name, size === 1 ? known : size);
          }
        }
        return [{ dtype: operand(view, 0).dtype, shape: output.map((name) => sizes.get(name) ?? 1) }];
      },
      rule: ruleText,
      linear: (view) => presentOperands(view).map((index) => [index]),
      work: (view) => {
        const { factors } = bindRule(ruleText(view), view);
        const points = [...factors.values()].reduce((product, factor) => product * factor.size, 1);
        return { flops: 2 * Math.max(1, view.inputs.length - 1) * points };
      },
      note: 'A letter that one operand repeats (a diagonal) is not sharded.',
    }),
    (write) => {
      const { operands, output } = equation(write.view);
      addEinsumGradients(write, operands, output);
    },
  ),
];

function ruleText(view: OperatorView): string {
  const { operands, output } = equation(view);
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
function equation(view: OperatorView): { operands: string[][]; output: string[] } {
  const [left = '', right] = text(view, 'equation', '').replace(/\s/g, '').split('->');
  const terms = left.split(',');
  if (terms.length !== view.inputs.length) throw mismatch(view, `its equation has ${terms.length} operands`);
  const ellipsis = Math.max(
    0,
    ...terms.map((term, index) =>
      term.includes('...') ? operand(view, index).shape.length - term.replace('...', '').length : 0,
    ),
  );
  const spread = (term: string, width: number) =>
    (term.match(/\.\.\.|./g) ?? []).flatMap((token) =>
      token === '...' ? Array.from({ length: width }, (_, index) => `e_${ellipsis - width + index}`) : [token],
    );
  const operands = terms.map((term, index) =>
    spread(term, operand(view, index).shape.length - term.replace('...', '').length),
  );
  return { operands, output: spread(right ?? implicitOutput(left), ellipsis) };
}

function implicitOutput(left: string): string {
  const letters = left.replace(/[,.]/g, '');
  const once = [...letters].filter((letter) => letters.split(letter).length === 2).sort();
  return `${left.includes('...') ? '...' : ''}${once.join('')}`;
}
