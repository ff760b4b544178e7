/**
 * @file Gradients of einsums: the gradient of an operand is the product of all others with the result's gradient, summed over
 * the letters that the operand lacks.
 *
 *     bij,jk->bik        dA = bik,jk->bij        dB = bij,bik->jk
 */
import { madeOnce } from '../remembered.js';
import { operand, result } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';

/** A term of an einsum: one letter (a factor's name) per dimension. */
interface EinsumTerm {
  readonly name: string;
  readonly letters: readonly string[];
  readonly shape: readonly number[];
}

/** Writes the gradients of all wanted operands. `gradient`: the result's gradient, times the product's scale. */
export function addEinsumGradients(
  write: OperatorGradient,
  operands: readonly (readonly string[])[],
  output: readonly string[],
  gradient = 'grad0',
): void {
  const terms = operands.map(
    (letters, index): EinsumTerm => ({ name: `in${index}`, letters, shape: operand(write.operator, index).shape }),
  );
  const whole = { name: gradient, letters: output, shape: result(write.operator, 0).shape };
  terms.forEach((target, index) => {
    if (!write.wants(index)) return;
    const others = terms.filter((_, other) => other !== index);
    addEinsumGradient(write, index, target, [whole, ...others]);
  });
}

function addEinsumGradient(
  write: OperatorGradient,
  index: number,
  target: EinsumTerm,
  terms: readonly EinsumTerm[],
): void {
  const largest = new Map<string, number>();
  for (const { letters, shape } of [target, ...terms])
    for (const [axis, letter] of letters.entries())
      largest.set(letter, Math.max(largest.get(letter) ?? 1, shape[axis] ?? 1));
  const isWhole = ({ letters, shape }: EinsumTerm, letter: string) =>
    shape[letters.indexOf(letter)] === largest.get(letter);
  const unique = [...new Set(target.letters)];
  // A letter that the operand has with size 1 alone was broadcast: it is summed over. One that only the operand has was
  // summed over in the forward: every position gets the same.
  const kept = unique.filter((letter) => isWhole(target, letter));
  const made = kept.filter((letter) => terms.some((term) => term.letters.includes(letter) && isWhole(term, letter)));
  const size = (letter: string) => (kept.includes(letter) ? (largest.get(letter) ?? 1) : 1);
  let product = addEinsum(write, terms, made);
  const missing = unique.flatMap((letter, axis) => (made.includes(letter) ? [] : [axis]));
  if (missing.length > 0) {
    product = write.add('Unsqueeze', [product], { axes: missing });
    if (missing.some((axis) => size(unique[axis] ?? '') > 1))
      product = write.add('Expand', [product], { shape: unique.map(size) });
  }
  write.become(index, addDiagonals(write, product, target, unique), operand(write.operator, index).dtype);
}

/** The product of all terms, summed down to `letters`, in their order. */
function addEinsum(write: OperatorGradient, terms: readonly EinsumTerm[], letters: readonly string[]): string {
  const names = new Map<string, string>();
  const short = (letter: string) => madeOnce(names, letter, () => ALPHABET[names.size] ?? '');
  const texts = (list: readonly string[]) => list.map(short).join('');
  const ranked = terms.filter((term) => term.letters.length > 0);
  const scalars = terms.filter((term) => term.letters.length === 0).map(({ name }) => name);
  const [first] = ranked;
  if (!first) return scalars.reduce((product, factor) => write.add('Mul', [product, factor]));
  const isSame = ranked.length === 1 && first.letters.join() === letters.join();
  const equation = `${ranked.map((term) => texts(term.letters)).join(',')}->${texts(letters)}`;
  const product = isSame
    ? first.name
    : write.add(
        'Einsum',
        ranked.map(({ name }) => name),
        { equation },
      );
  return scalars.reduce((scaled, factor) => write.add('Mul', [scaled, factor]), product);
}

/** An operand that repeats a letter was read along its diagonal: the gradient is on the diagonal, and zero elsewhere. */
function addDiagonals(
  write: OperatorGradient,
  input: string,
  { letters, shape }: EinsumTerm,
  unique: readonly string[],
): string {
  if (unique.length === letters.length) return input;
  const isRepeated = letters.map((letter, axis) => letters.indexOf(letter) < axis);
  const axes = isRepeated.flatMap((repeated, axis) => (repeated ? [axis] : []));
  let spread = write.add('Unsqueeze', [input], { axes });
  const zero = write.scalarLike(0, 0);
  for (const axis of axes) {
    const first = letters.indexOf(letters[axis] ?? '');
    const positions = [first, axis].map((place) => write.positions(shape, place));
    spread = write.add('Where', [write.add('Equal', positions), spread, zero]);
  }
  return spread;
}

const ALPHABET = [...'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'];
