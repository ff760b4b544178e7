/**
 * @file Statements about one tensor as statements about a list of them. torch's functions over lists start a kernel for many
 * tensors where the others start one for each, and starting them is most of the time of updates of small parameters on a GPU.
 *
 *     mul = gradient * number           mul = torch._foreach_mul(gradient, number)
 *     mean += mul                       torch._foreach_add_(mean, mul)
 *     y = torch.where(ok, mul, mean)    y = [torch.where(ok, mul, mean) for mul, mean in zip(mul, mean, strict=True)]
 */

/** What the names of a function stand for. */
export interface ListedNames {
  /** Lists of tensors; a statement that makes another adds it. */
  readonly lists: Set<string>;
  /** Tensors without dimensions, the same for all of a list. */
  readonly scalars: ReadonlySet<string>;
  /** Lists whose name has been given to another; a statement that does so adds it. */
  readonly rebound: Set<string>;
}

/** A statement's text with lists in the place of tensors; as it is where it reads none. */
export function listed(text: string, names: ListedNames): string {
  const { target, value } = partsOf(text);
  const own = wordsOf(value).filter((word) => names.lists.has(word));
  if (own.length === 0) return text;
  const call = overLists(value, names);
  const isOver = text !== `${target} = ${value}` && call?.given[0] === target;
  if (names.lists.has(target) && !isOver) names.rebound.add(target);
  names.lists.add(target);
  if (call === null) return `${target} = ${comprehension(value, own)}`;
  const { name, given } = call;
  return isOver
    ? `torch._foreach_${name}_(${given.join(', ')})`
    : `${target} = torch._foreach_${name}(${given.join(', ')})`;
}

/** What a statement assigns, where one that writes over a tensor reads as an assignment to it. */
function partsOf(text: string): { readonly target: string; readonly value: string } {
  const [, own, sign, other] = /^(\w+) ([-+*/])= (.+)$/.exec(text) ?? [];
  if (own !== undefined) return { target: own, value: `${own} ${sign} ${other}` };
  const [, of, method, given] = /^(\w+)\.(\w+)_\((.*)\)$/.exec(text) ?? [];
  if (of !== undefined) return { target: of, value: `torch.${method}(${of}${given ? `, ${given}` : ''})` };
  const [, target = '', value = ''] = /^(\w+) = (.+)$/.exec(text) ?? [];
  return { target, value };
}

interface ListCall {
  readonly name: string;
  readonly given: readonly string[];
}

const SIGNS: Readonly<Record<string, string>> = { '+': 'add', '-': 'sub', '*': 'mul', '/': 'div' };
const UNARY: ReadonlySet<string> = new Set('abs exp log neg reciprocal sign sqrt'.split(' '));
const BINARY: ReadonlySet<string> = new Set(['maximum', 'minimum']);
const THREE: ReadonlySet<string> = new Set(['addcdiv', 'addcmul']);

/** The function over lists that computes an expression; null where torch has none. */
function overLists(value: string, { lists, scalars }: ListedNames): ListCall | null {
  const isList = (word: string | undefined) => word !== undefined && lists.has(word);
  const isNumber = (word: string) => /^-?[\d.]+(e-?\d+)?$/.test(word);
  const [, left, sign = '', right = ''] = /^([\w.]+) ([-+*/]) ([-\w.]+)$/.exec(value) ?? [];
  if (left !== undefined) {
    const [first, other] = isList(left) || sign === '-' || sign === '/' ? [left, right] : [right, left];
    const isOne = scalars.has(other);
    if (!isList(first) || !(isList(other) || isNumber(other) || isOne)) return null;
    // There is no difference of a list and a tensor.
    if (sign === '-' && isOne) return { name: 'add', given: [first, other, 'alpha=-1'] };
    return { name: SIGNS[sign] as string, given: [first, other] };
  }
  const [, called = '', text = ''] = /^torch\.(\w+)\(([^()]*)\)$/.exec(value) ?? [];
  const given = text.split(', ');
  const [first, second, third] = given;
  const isCovered =
    (UNARY.has(called) && given.length === 1 && isList(first)) ||
    (BINARY.has(called) && isList(first) && isList(second)) ||
    (called === 'add' && isList(first) && (isList(second) || scalars.has(second ?? ''))) ||
    (called === 'lerp' && isList(first) && isList(second) && isNumber(third ?? '')) ||
    (THREE.has(called) && isList(first) && isList(second) && isList(third));
  return isCovered ? { name: called, given } : null;
}

function comprehension(value: string, lists: readonly string[]): string {
  const own = [...new Set(lists)];
  const all = own.length === 1 ? own[0] : `zip(${own.join(', ')}, strict=True)`;
  return `[${value} for ${own.join(', ')} in ${all}]`;
}

/** The names in an expression, but for those of functions and their options. */
export function wordsOf(value: string): readonly string[] {
  return [...value.matchAll(/(?<![\w.])[A-Za-z_]\w*(?![\w(=])/g)].map(([word]) => word);
}
