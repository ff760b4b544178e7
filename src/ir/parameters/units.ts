/**
 * @file Units: the smallest parts that can be parameters of their own. The places of one weight are grouped by their module
 * and by the Identity that an exporter read them through; a module that is called twice, or by a loop, is one.
 */
import type { Graph } from '../graph.js';
import { moduleText, withoutIterations } from '../onnx/module-path.js';
import { entryOf } from '../ops/index.js';
import type { IdentityUse } from './identities.js';
import type { WeightPlace } from './parameter.js';
import { isNatural, type ParameterPlace, parameterPlaces } from './places.js';

export interface ParameterUnit {
  readonly weight: string;
  /** The name of the parameter if the unit is one. Unique. */
  readonly name: string;
  /** The name that an Identity gives it; null without one. */
  readonly identity: string | null;
  readonly places: readonly WeightPlace[];
}

/** Names that exporters make up: `onnx::MatMul_242`, `val_228`, `permute`, `/b/Constant_output_0`. */
const MADE_UP = /^(onnx::|\/)|::|^(val|t|Identity|Constant)_\d+$|^(transpose|permute)(_\d+)?$/;

/** Whether a name is an exporter's own, and not a module's. */
export function isMadeUp(name: string): boolean {
  return MADE_UP.test(name);
}

/** The units of the weights given, in the order of the weights, then of the graph. */
export function parameterUnits(
  graph: Graph,
  weights: readonly string[],
  identities: readonly IdentityUse[],
): ReadonlyMap<string, readonly ParameterUnit[]> {
  const identityOf = identityFinder(identities);
  const places = parameterPlaces(graph, weights);
  const namer = new Namer();
  // Names that the file gives come first, so that one that is made up never takes one of them.
  const partsByWeight = weights.map((weight) => partsOf(weight, places.get(weight) ?? [], identityOf));
  const parts = partsByWeight.flat();
  const leading = new Set(partsByWeight.map(([first]) => first));
  const owners = ownersOf(parts.filter((part) => leading.has(part)));
  const named = new Map(
    [...parts]
      .sort((left, right) => rankOf(left, leading) - rankOf(right, leading))
      .map((part) => [part, namer.unique(nameOf(part, leading.has(part), owners))] as const),
  );
  const units = new Map<string, ParameterUnit[]>(weights.map((weight) => [weight, []]));
  for (const part of parts) units.get(part.weight)?.push({ ...part, name: named.get(part) ?? part.weight });
  return units;
}

/** The unit's places as units of their own. */
export function scattered(unit: ParameterUnit): readonly ParameterUnit[] {
  return unit.places.map((place, index) => ({
    ...unit,
    name: index === 0 ? unit.name : `${unit.name}.${index + 1}`,
    places: [place],
  }));
}

type UnitPart = Omit<ParameterUnit, 'name'>;

function partsOf(
  weight: string,
  places: readonly ParameterPlace[],
  identityOf: (weight: string, place: ParameterPlace) => string | null,
): readonly UnitPart[] {
  const parts = new Map<string, { identity: string | null; places: WeightPlace[] }>();
  const modules = new Set(places.map(({ module }) => moduleText(withoutIterations(module))));
  for (const place of places) {
    const identity = identityOf(weight, place);
    // TorchScript transposes a matrix for every call of its module, and passes all but one on by an Identity.
    const home = identity === null || isMadeUp(identity) ? calledModule(place, modules) : `= ${identity}`;
    // Running statistics are not parameters, whatever they share a value with in the file.
    const key = isStatistics(place) ? `${home} ${place.operand}` : home;
    const part = parts.get(key);
    if (part) part.places.push({ ...place, weight, isTransposeOfFirst: false });
    else parts.set(key, { identity, places: [{ ...place, weight, isTransposeOfFirst: false }] });
  }
  if (parts.size === 0) return [{ weight, identity: null, places: [] }];
  const found = [...parts.values()].map((part) => ({ weight, ...part }));
  // The places that the file's own name serves lead.
  return found.sort((left, right) => ownRank(left, weight) - ownRank(right, weight));
}

/** TorchScript numbers the calls of a module: /tower/0, /tower_1/0 are one where one weight serves both. */
function calledModule({ node, module }: ParameterPlace, modules: ReadonlySet<string>): string {
  const called = withoutIterations(module);
  const first = moduleText(called.map((step) => step.replace(/_\d+$/, '')));
  return node.startsWith('/') && modules.has(first) ? first : moduleText(called);
}

function isStatistics({ use }: ParameterPlace): boolean {
  return use === 'statistics';
}

function ownRank(part: UnitPart, weight: string): number {
  if (part.identity !== null) return 2;
  if (part.places.some(isStatistics)) return 1;
  return part.places.some((place) => weight.startsWith(`${moduleText(place.module)}.`)) ? 0 : 1;
}

function rankOf(part: UnitPart, leading: ReadonlySet<UnitPart | undefined>): number {
  if (leading.has(part) && !MADE_UP.test(part.weight)) return 0;
  if (part.identity !== null && !MADE_UP.test(part.identity)) return 1;
  // A table that a module multiplies by its matrix is not the module's weight.
  return part.places.some(isNatural) ? 2 : 3;
}

/**
 * By module as TorchScript calls it: the module that the names of its parameters give it, where that has more steps. The path of
 * a call lacks modules whose children another module calls: decoder.fc of model.decoder.fc.
 */
function ownersOf(parts: readonly UnitPart[]): ReadonlyMap<string, string> {
  const owners = new Map<string, string>();
  for (const { weight, places } of parts) {
    const [place] = places;
    const owner = weight.split('.').slice(0, -1);
    const called = place ? moduleText(place.module).split('.') : [];
    if (MADE_UP.test(weight) || owner.length <= called.length || owner.at(-1) !== called.at(-1)) continue;
    let found = 0;
    for (const step of owner) if (step === called[found]) found++;
    if (found === called.length) owners.set(called.join('.'), owner.join('.'));
  }
  return owners;
}

function nameOf(part: UnitPart, leads: boolean, owners: ReadonlyMap<string, string>): string {
  const { weight, identity, places } = part;
  if (identity !== null && !MADE_UP.test(identity)) return identity;
  const [place] = places;
  const module = place ? moduleText(place.module) : '';
  const ownName = !MADE_UP.test(weight) && !(place && isStatistics(place) && !leads);
  if (ownName && (leads || module === '')) return weight;
  if (module === '' || !place) return weight;
  return `${ownName ? module : (owners.get(module) ?? module)}.${ownName ? restOf(weight, place) : kindOf(place)}`;
}

/** The part of a name besides the layer: e.layers.0.attn.out.weight in layer e.layers.1 → attn.out.weight. */
function restOf(weight: string, place: ParameterPlace): string {
  const steps = weight.split('.');
  const module = moduleText(place.module).split('.');
  const own = steps.slice(0, module.length);
  const stem = (step: string | undefined) => step?.replace(/\d+$/, '');
  const sameModule = own.length === module.length && own.every((step, index) => stem(step) === stem(module[index]));
  return sameModule && steps.length > module.length ? steps.slice(module.length).join('.') : (steps.at(-1) ?? weight);
}

function kindOf(place: ParameterPlace): string {
  if (place.use === 'bias' || place.use === 'addend') return 'bias';
  if (place.use !== 'statistics') return 'weight';
  const form = entryOf(place.op, '')?.training;
  const running = form?.kind === 'batch-statistics' ? form.running : [];
  return running.find(({ operand }) => operand === place.operand)?.name ?? 'statistics';
}

/** Which Identity an operator of the graph reads a weight through; import extends the file's names of operators. */
function identityFinder(identities: readonly IdentityUse[]): (weight: string, place: ParameterPlace) => string | null {
  const byUse = new Map(identities.map((use) => [JSON.stringify([use.weight, use.node]), use.name]));
  if (byUse.size === 0) return () => null;
  return (weight, { node, through }) => {
    for (const name of [node, ...through]) {
      for (let end = name.length; end > 0; end = name.lastIndexOf('/', end - 1)) {
        const found = byUse.get(JSON.stringify([weight, name.slice(0, end)]));
        if (found !== undefined) return found;
      }
    }
    return null;
  };
}

class Namer {
  private readonly taken = new Set<string>();

  unique(base: string): string {
    let name = base;
    for (let ordinal = 2; this.taken.has(name); ordinal++) name = `${base}.${ordinal}`;
    this.taken.add(name);
    return name;
  }
}
