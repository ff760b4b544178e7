/**
 * @file The notations for tensors, as demands on them: layout text, split counts, device matrix with tensor map. Each operand and
 * result of an operator is a tensor; those that are not mentioned are free.
 */
import type { AutoparError } from '../../ir/error.js';
import { deviceCount, type Mesh, subAxes } from '../mesh.js';
import type { LayoutDemand, PinSource } from '../pin.js';
import type {
  DeviceMatrixMap,
  LayoutNotation,
  MapEntry,
  MapNotation,
  PinAnnotation,
  SplitNotation,
} from './annotation.js';
import { demandOfMap, mapOfText } from './device-matrix.js';
import { type DemandSubject, demandOfLayout } from './layout-demand.js';
import { doesNotFit, meshText } from './pin-error.js';
import { type TupleValue, tupleValues } from './tuple-text.js';

/** An operator's operands and results; null where an optional one is left out. */
export interface Subjects {
  readonly operands: readonly (DemandSubject | null)[];
  readonly results: readonly (DemandSubject | null)[];
}

export interface SideDemands {
  readonly operands: readonly (LayoutDemand | null)[];
  readonly results: readonly (LayoutDemand | null)[];
}

type TensorNotations = Pick<PinAnnotation, 'layout' | 'split' | 'map'>;

/** The demands of a pin on one tensor, one per notation. @throws AutoparError `pin-does-not-fit` */
export function tensorDemands(
  pin: TensorNotations,
  tensor: DemandSubject,
  mesh: Mesh,
  source: PinSource,
): readonly LayoutDemand[] {
  const { layout, split, map } = pin;
  const asked: LayoutDemand[] = [];
  if (layout !== undefined) {
    if (typeof layout !== 'string') throw forOperators('layout', source);
    asked.push(demandOfLayout(layout, tensor, mesh, source));
  }
  if (split !== undefined) {
    const counts = typeof split === 'string' ? countsOfText(split, source) : split;
    if (!isCounts(counts)) throw forOperators('split', source);
    asked.push(demandOfSplit(counts, tensor, mesh, source));
  }
  if (map !== undefined) {
    const whole = typeof map === 'string' ? readMapText(map, source) : map;
    if (!('tensor_map' in whole)) throw forOperators('map', source);
    asked.push(demandOfMap(whole, tensor, mesh, source));
  }
  return asked;
}

/** The demands of a pin on an operator's tensors, one record per notation. @throws AutoparError `pin-does-not-fit` */
export function operatorDemands(
  pin: TensorNotations,
  subjects: Subjects,
  mesh: Mesh,
  source: PinSource,
): readonly SideDemands[] {
  const asked: SideDemands[] = [];
  const both = <Item>(
    notation: {
      readonly in?: readonly (Item | null)[] | undefined;
      readonly out?: readonly (Item | null)[] | undefined;
    },
    demand: (item: Item, subject: DemandSubject) => LayoutDemand | null,
  ): void => {
    const side = (items: readonly (Item | null)[] | undefined, of: readonly (DemandSubject | null)[], word: string) =>
      matched(items ?? [], of, word, source).map(({ item, subject }) =>
        item === null || subject === null ? null : demand(item, subject),
      );
    asked.push({
      operands: side(notation.in, subjects.operands, 'operand'),
      results: side(notation.out, subjects.results, 'result'),
    });
  };
  if (pin.layout !== undefined)
    both(layoutSides(pin.layout), (text, subject) =>
      text.trim() === '_' ? null : demandOfLayout(text, subject, mesh, source),
    );
  if (pin.split !== undefined)
    both(splitSides(pin.split, source), (counts, subject) => demandOfSplit(counts, subject, mesh, source));
  if (pin.map !== undefined) both(mapSides(pin.map, source), (map, subject) => demandOfMap(map, subject, mesh, source));
  return asked;
}

/** Split counts, after a check that axes of the mesh multiply to them and that the tensor can be split so. */
function demandOfSplit(counts: readonly number[], tensor: DemandSubject, mesh: Mesh, source: PinSource): LayoutDemand {
  const { shape, says } = tensor;
  const written = `(${counts.join(', ')})`;
  if (counts.length !== shape.length)
    throw doesNotFit(
      source,
      `${written} has ${counts.length} counts, ${says} [${shape.join(', ')}] has ${shape.length} dimensions`,
      'give one count per dimension, 1 if it is not sharded',
    );
  const wrong = counts.find((count) => !Number.isInteger(count) || count < 1);
  if (wrong !== undefined)
    throw doesNotFit(
      source,
      `${written} holds ${wrong}, which is not a number of parts`,
      'give positive whole numbers',
    );
  checkRealisable(counts, written, mesh, source);
  for (const [dimension, count] of counts.entries()) {
    const size = shape[dimension] ?? 1;
    if (count <= size) continue;
    throw doesNotFit(
      source,
      `${written} cuts dimension ${dimension} of ${says} [${shape.join(', ')}] into ${count} parts, and it has ${size} elements`,
      'cut it into no more parts than it has elements',
    );
  }
  return { kind: 'split', counts };
}

/** Refuses counts that no choice of sub-axes gives: sub-axes are primes, so each count takes its prime factors. */
function checkRealisable(counts: readonly number[], written: string, mesh: Mesh, source: PinSource): void {
  const devices = deviceCount(mesh);
  const parts = counts.reduce((product, count) => product * count, 1);
  if (parts > devices)
    throw doesNotFit(
      source,
      `${written} makes ${parts} parts, more than the ${devices} devices`,
      'the counts of a tensor may not multiply to more than the devices',
    );
  const free = subAxes(mesh).map(({ size }) => size);
  for (const count of counts) {
    let rest = count;
    while (rest > 1) {
      const taken = free.findIndex((prime) => rest % prime === 0);
      if (taken < 0)
        throw doesNotFit(
          source,
          `${written} requests ${count} parts, and no unused axes of the mesh (${meshText(mesh)}) multiply to ${count}`,
          'choose counts that are products of the mesh’s axes, each used once',
        );
      rest /= free.splice(taken, 1)[0] ?? 1;
    }
  }
}

function layoutSides(layout: LayoutNotation): Exclude<LayoutNotation, string> {
  return typeof layout === 'string' ? { out: [layout] } : layout;
}

type Counts = readonly number[];

function splitSides(
  split: SplitNotation,
  source: PinSource,
): { readonly in?: readonly (Counts | null)[] | undefined; readonly out?: readonly (Counts | null)[] | undefined } {
  const listOf = (given: string | readonly (Counts | string | null)[] | undefined) => {
    if (given === undefined) return undefined;
    const items = typeof given === 'string' ? countsOfText(given, source) : given;
    if (!Array.isArray(items)) throw perTensor(source);
    return items.map((item): Counts | null => {
      const counts = typeof item === 'string' ? countsOfText(item, source) : item;
      if (counts === null) return null;
      if (!isCounts(counts)) throw perTensor(source);
      return counts;
    });
  };
  if (typeof split === 'string') return { in: listOf(split) };
  if (!('length' in split)) return { in: listOf(split.in), out: listOf(split.out) };
  if (isCounts(split) && split.length > 0) throw perTensor(source);
  return { in: listOf(split as readonly (Counts | string | null)[]) };
}

function isCounts(value: unknown): value is Counts {
  return Array.isArray(value) && value.every((item) => typeof item === 'number');
}

/** `((4,1),(1,2))` or `(4,1)`. */
function countsOfText(text: string, source: PinSource): Counts | readonly (Counts | null)[] | null {
  if (text.trim() === '_') return null;
  const values = tupleValues(text);
  const [value] = values ?? [];
  const valid = (item: TupleValue | undefined): boolean =>
    Array.isArray(item) && item.every((inner) => typeof inner === 'number');
  if (
    values?.length === 1 &&
    (valid(value) || (Array.isArray(value) && value.every((item) => item === null || valid(item))))
  )
    return value as Counts | readonly (Counts | null)[];
  throw doesNotFit(
    source,
    `'${text}' cannot be read as split counts`,
    'write a tuple per tensor, such as ((4,1),(1,2)), with _ for an unpinned one',
  );
}

type Maps = readonly (DeviceMatrixMap | null)[];

function mapSides(
  map: MapNotation,
  source: PinSource,
): { readonly in?: Maps | undefined; readonly out?: Maps | undefined } {
  const whole = typeof map === 'string' ? readMapText(map, source) : map;
  if ('tensor_map' in whole) return { out: [whole] };
  const shared = 'device_matrix' in whole ? { device_matrix: whole.device_matrix, alias_name: whole.alias_name } : null;
  const side = (items: readonly unknown[] | undefined): Maps | undefined =>
    items?.map((item): DeviceMatrixMap | null => {
      if (item === null) return null;
      if (typeof item === 'string') return readMapText(item, source);
      if (!Array.isArray(item)) return item as DeviceMatrixMap;
      if (!shared) throw doesNotFit(source, 'its tensor maps have no device matrix', 'add the key device_matrix');
      const { device_matrix, alias_name } = shared;
      return { device_matrix, ...(alias_name ? { alias_name } : {}), tensor_map: item as readonly MapEntry[] };
    });
  return { in: side(whole.in), out: side(whole.out) };
}

function readMapText(text: string, source: PinSource): DeviceMatrixMap {
  const map = mapOfText(text);
  if (map) return map;
  throw doesNotFit(
    source,
    `'${text}' cannot be read as a layout of MindSpore's`,
    'write Layout((4, 2), ("dp", "mp"))("dp", "mp"), or {device_matrix, tensor_map}',
  );
}

/** Items beside the tensors they are about. Fewer than there are tensors leave the rest free. */
function matched<Item>(
  items: readonly (Item | null)[],
  subjects: readonly (DemandSubject | null)[],
  word: string,
  source: PinSource,
): readonly { readonly item: Item | null; readonly subject: DemandSubject | null }[] {
  if (items.length > subjects.length)
    throw doesNotFit(
      source,
      `it names ${items.length} ${word}s, and the operator has ${subjects.length}`,
      `give at most one entry per ${word}`,
    );
  return items.map((item, index) => {
    const subject = subjects[index] ?? null;
    if (item !== null && subject === null)
      throw doesNotFit(source, `it names ${word} ${index}, which is absent from the operator`, 'put null in its place');
    return { item, subject };
  });
}

function forOperators(notation: string, source: PinSource): AutoparError {
  return doesNotFit(
    source,
    `its ${notation} lists several tensors, and the pin matches single tensors`,
    'give one entry, or match the operator by node',
  );
}

function perTensor(source: PinSource): AutoparError {
  return doesNotFit(
    source,
    'its split gives one list of counts, where an operator needs one per operand',
    'write [[4, 1], [1, 2]], or {in: [...], out: [...]}',
  );
}
