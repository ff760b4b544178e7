/**
 * @file `--tie a=b` and `--untie a`: the user's overrides.
 */
import { AutoparError } from '../error.js';
import type { Graph, TensorType } from '../graph.js';
import { typeOf } from '../graph.js';
import { offer } from '../nearest.js';
import type { ParameterOptions } from './parameter.js';
import { type Member, straightened, type Tied } from './ties.js';
import { scattered } from './units.js';

/**
 * The parameters as the user wants them; `untie` is applied first.
 * @throws AutoparError `unknown-parameter`, `tie-mismatch` (usage).
 */
export function overruled(graph: Graph, tied: readonly Tied[], options: ParameterOptions): readonly Tied[] {
  const untied = (options.untie ?? []).reduce((current, name) => untie(current, name), tied);
  return (options.tie ?? []).reduce((current, text) => tie(graph, current, text), untied);
}

/** The parameter's name: that of its leading unit. */
export function parameterName(tied: Tied): string {
  return tied.members[0]?.unit.name ?? '';
}

function untie(tied: readonly Tied[], name: string): readonly Tied[] {
  const found = lookUp(tied, name, `--untie ${name}`);
  const { members } = found;
  const own = members.filter(({ unit }) => unit.name === name);
  const all = own.length === 0 || name === parameterName(found);
  const why = 'set by --untie';
  if (members.length === 1) {
    const parts = members.flatMap(({ unit }) => scattered(unit));
    if (parts.length < 2)
      throw new AutoparError(
        'tie-mismatch',
        'usage',
        `--untie ${name}: the parameter has one use only`,
        { tensor: name },
        'autopar inspect MODEL --parameters lists shared parameters',
      );
    return replaced(
      tied,
      found,
      parts.map((unit) => ({ members: [{ unit, isTransposed: false }], why })),
    );
  }
  const apart: readonly (readonly Member[])[] = all
    ? members.map((member) => [member])
    : [members.filter((member) => !own.includes(member)), own];
  return replaced(
    tied,
    found,
    apart.map((part) => ({ members: straightened(part), why })),
  );
}

function tie(graph: Graph, tied: readonly Tied[], text: string): readonly Tied[] {
  const [left, right] = sidesOf(tied, text);
  const option = `--tie ${text}`;
  const [a, b] = [lookUp(tied, left, option), lookUp(tied, right, option)];
  if (a === b) return tied;
  const [aType, bType] = [typeOfTied(graph, a), typeOfTied(graph, b)];
  const same = aType.shape.join() === bType.shape.join();
  const isTransposed = !same && aType.shape.length === 2 && aType.shape.join() === [...bType.shape].reverse().join();
  if (aType.dtype !== bType.dtype || !(same || isTransposed))
    throw new AutoparError(
      'tie-mismatch',
      'usage',
      `${option}: ${left} is ${typeText(aType)} and ${right} is ${typeText(bType)}`,
      { tensor: right },
      'only parameters of one type and shape can be one, or matrices that are each other’s transpose',
    );
  const members = [
    ...a.members,
    ...b.members.map((member) => ({ ...member, isTransposed: member.isTransposed !== isTransposed })),
  ];
  return replaced(tied, a, [{ members, why: 'set by --tie' }]).filter((item) => item !== b);
}

/** Names may hold an equals sign: the text is split where both sides are names, else at the first sign. */
function sidesOf(tied: readonly Tied[], text: string): readonly [string, string] {
  const cuts = [...text.matchAll(/=/g)].map(({ index }) => [text.slice(0, index), text.slice(index + 1)] as const);
  const known = new Set(tied.flatMap(namesOf));
  const found = cuts.find(([left, right]) => known.has(left) && known.has(right)) ?? cuts[0];
  if (found && found[0] !== '' && found[1] !== '') return found;
  throw new AutoparError('bad-option', 'usage', `--tie ${text}: expected NAME=NAME`);
}

function lookUp(tied: readonly Tied[], name: string, option: string): Tied {
  const found =
    tied.find((item) => parameterName(item) === name) ??
    tied.find((item) => item.members.some(({ unit }) => unit.name === name || unit.identity === name)) ??
    tied.find((item) => item.members.some(({ unit }) => unit.weight === name));
  if (found) return found;
  throw new AutoparError(
    'unknown-parameter',
    'usage',
    `${option}: the model has no parameter '${name}'`,
    { tensor: name },
    offer(name, [...new Set(tied.flatMap(namesOf))]),
  );
}

function namesOf({ members }: Tied): readonly string[] {
  return members.flatMap(({ unit }) => [unit.name, ...(unit.identity ? [unit.identity] : []), unit.weight]);
}

function typeOfTied(graph: Graph, { members }: Tied): TensorType {
  return typeOf(graph, members[0]?.unit.weight ?? '');
}

function replaced(tied: readonly Tied[], old: Tied, by: readonly Tied[]): readonly Tied[] {
  return tied.flatMap((item) => (item === old ? by : [item]));
}

function typeText({ dtype, shape }: TensorType): string {
  return `${dtype} [${shape.join(', ')}]`;
}
