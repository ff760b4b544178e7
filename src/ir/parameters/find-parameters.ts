/**
 * @file The analysis: from a graph and the evidence of its file to parameters. It changes nothing; for inference, weights
 * stay as the file shares them, and a training graph is made from the result.
 */
import { followBatch } from '../batch.js';
import { byteLength, isFloating } from '../dtype.js';
import { AutoparError } from '../error.js';
import { matchesAny } from '../glob.js';
import { elementCount, type Graph, typeOf, type Weight } from '../graph.js';
import { nearest } from '../nearest.js';
import { reached } from '../needed.js';
import { overruled, parameterName } from './overrules.js';
import type {
  GeneratedWeight,
  Parameter,
  ParameterEvidence,
  ParameterOptions,
  Parameters,
  TieDecision,
  WeightPlace,
} from './parameter.js';
import { isNatural, isPlausible, parameterPlaces } from './places.js';
import { NOUNS, STATED_BY_EXPORTER } from './role.js';
import { isStatistics, separationOf, type Tied, tieUnits } from './ties.js';
import { type ParameterUnit, parameterUnits } from './units.js';

/**
 * The parameters, buffers and constants of a graph.
 * @throws AutoparError `unknown-parameter`, `tie-mismatch`, `bad-option` (usage) for options that do not fit the model.
 */
export function findParameters(graph: Graph, evidence: ParameterEvidence, options: ParameterOptions = {}): Parameters {
  const wanted = options.trainable ?? [];
  const names = [...graph.weights.keys()];
  const named = wanted.length === 0 ? null : parameterUnits(graph, names, evidence.identities);
  const isParameter = (name: string) => {
    const weight = graph.weights.get(name);
    const aliases = [name, ...fileNames(graph, name), ...(named?.get(name) ?? []).map((unit) => unit.name)];
    return (
      weight?.role === 'parameter' ||
      (weight !== undefined && isFloating(weight.dtype) && aliases.some((alias) => matchesAny(wanted, alias)))
    );
  };
  const units = parameterUnits(graph, names.filter(isParameter), evidence.identities);
  const tied = overruled(graph, tieUnits(graph, units, evidence), options);
  const whole = parameterUnits(
    graph,
    names.filter((name) => !isParameter(name)),
    [],
  );
  const rest = [...whole].map(([weight, parts]) => parameterOfWeight(graph, weight, parts, evidence));
  const isState = ({ members }: Tied) => members.every(({ unit }) => isStatistics(unit));
  const parameters = tied.filter((item) => !isState(item)).map((item) => parameterOf(graph, item, evidence, options));
  const statistics = tied.filter(isState).map((item): Parameter => {
    const parameter = parameterOf(graph, item, evidence, options);
    return { ...parameter, role: 'buffer', trainable: false, why: restReason(parameter, evidence) };
  });
  checkGlobs(graph, [...parameters, ...statistics, ...rest], options);
  return {
    parameters,
    buffers: [...statistics, ...rest].filter(({ role }) => role === 'buffer'),
    constants: rest.filter(({ role }) => role === 'constant'),
    generated: generatedWeights(graph),
    decisions: decisionsOf(units, tied, evidence),
  };
}

function parameterOf(graph: Graph, tied: Tied, evidence: ParameterEvidence, options: ParameterOptions): Parameter {
  const name = parameterName(tied);
  const weights = [...new Set(tied.members.map(({ unit }) => unit.weight))];
  const places = tied.members.flatMap(({ unit, isTransposed }) =>
    unit.places.map((place) => ({
      ...place,
      transposed: place.transposed !== isTransposed,
      isTransposeOfFirst: isTransposed,
    })),
  );
  const main = weightOf(graph, weights[0] ?? '');
  const aliases = tied.members.flatMap(({ unit }) => [unit.name, unit.weight, ...fileNames(graph, unit.weight)]);
  return {
    ...sizesOf(main),
    name,
    weights,
    present: main.source.kind !== 'absent',
    role: main.role,
    places,
    ...trainability(main, weights, aliases, places, () => hasRowPerSample(graph, weights, places), evidence, options),
  };
}

/**
 * Whether a value that data meets has the batch as a dimension: it is data, as the state that a recurrence begins with. A table
 * that is added may be one of positions, in a file whose first dimension is the sequence.
 */
function hasRowPerSample(graph: Graph, weights: readonly string[], places: readonly WeightPlace[]): boolean {
  if (!places.every(({ use }) => ROWS.has(use))) return false;
  const sizes = graph.batch.map(({ input, axis }) => typeOf(graph, input).shape[axis] ?? 1);
  const mayHave = weights.filter((name) =>
    weightOf(graph, name).shape.some((size) => size > 1 && sizes.includes(size)),
  );
  if (mayHave.length === 0) return false;
  const { dimensionMarks } = followBatch(graph, { digits: true });
  return mayHave.some((name) => dimensionMarks(name).some((mark) => mark !== null && mark.size > 1));
}

const ROWS: ReadonlySet<WeightPlace['use']> = new Set(['factor', 'part', 'start']);

function parameterOfWeight(
  graph: Graph,
  name: string,
  units: readonly ParameterUnit[],
  evidence: ParameterEvidence,
): Parameter {
  const weight = weightOf(graph, name);
  const places = units.flatMap((unit) => unit.places);
  return {
    ...sizesOf(weight),
    name,
    weights: [name],
    present: weight.source.kind !== 'absent',
    role: weight.role,
    places,
    trainable: false,
    why: restReason({ weights: [name], places }, evidence),
  };
}

function restReason(
  { weights, places }: Pick<Parameter, 'weights' | 'places'>,
  { reasons }: ParameterEvidence,
): string {
  const statistics = places.find(({ use }) => use === 'statistics');
  if (statistics) return `running statistics of ${statistics.op}`;
  return reasons.get(weights[0] ?? '') ?? 'made by import';
}

function sizesOf({ dtype, shape }: Weight): Pick<Parameter, 'dtype' | 'shape' | 'elements' | 'bytes'> {
  const elements = elementCount(shape);
  return { dtype, shape, elements, bytes: byteLength(dtype, elements) };
}

function weightOf(graph: Graph, name: string): Weight {
  const weight = graph.weights.get(name);
  if (!weight) throw new Error(`${name} is not a weight of graph ${graph.name}`);
  return weight;
}

function trainability(
  weight: Weight,
  weights: readonly string[],
  aliases: readonly string[],
  places: readonly WeightPlace[],
  isData: () => boolean,
  { kinds, reasons }: ParameterEvidence,
  { trainable = [], frozen = [] }: ParameterOptions,
): Pick<Parameter, 'trainable' | 'why'> {
  if (!isFloating(weight.dtype)) return { trainable: false, why: `${weight.dtype} has no gradient` };
  if (aliases.some((name) => matchesAny(trainable, name))) return { trainable: true, why: 'set by --trainable' };
  if (aliases.some((name) => matchesAny(frozen, name))) return { trainable: false, why: 'set by --frozen' };
  if (weights.some((name) => kinds.get(name) === 'parameter')) return { trainable: true, why: STATED_BY_EXPORTER };
  const place = places.find(isNatural);
  if (place) return { trainable: true, why: `${NOUNS[place.use] ?? 'operand'} of ${place.op}` };
  if (isData()) return { trainable: false, why: 'it has a row for each sample' };
  const why = weights.map((name) => reasons.get(name)).find((reason) => reason !== undefined);
  return { trainable: weight.role === 'parameter' && places.some(isPlausible), why: why ?? 'made by import' };
}

/**
 * Tensors in natural places that operators without operands make, or that are constants of the graph, where the reading
 * operator depends on the data.
 */
function generatedWeights(graph: Graph): readonly GeneratedWeight[] {
  const made = graph.nodes.flatMap((node) =>
    node.inputs.every((input) => input === null) ? node.outputs.filter((output) => output !== null) : [],
  );
  const baked = [...graph.weights].flatMap(([name, { role }]) => (role === 'constant' ? [name] : []));
  const sources = [...made, ...baked].filter((name) => {
    const { dtype, shape } = typeOf(graph, name);
    return isFloating(dtype) && elementCount(shape) > 1;
  });
  if (sources.length === 0) return [];
  const live = new Set([...reached(graph.nodes, graph.inputs).nodes].map(({ name }) => name));
  return [...parameterPlaces(graph, sources)].flatMap(([tensor, places]) => {
    const { dtype, shape } = typeOf(graph, tensor);
    return places
      .filter((place) => isNatural(place) && live.has(place.node))
      .map((place) => ({ tensor, dtype, shape, elements: elementCount(shape), place }));
  });
}

/** Decisions on ties that the file does not state, or that the user overrides. */
function decisionsOf(
  units: ReadonlyMap<string, readonly ParameterUnit[]>,
  tied: readonly Tied[],
  evidence: ParameterEvidence,
): readonly TieDecision[] {
  const together = tied.flatMap((item): readonly TieDecision[] => {
    if (item.members.length < 2) return [];
    const weights = [...new Set(item.members.map(({ unit }) => unit.weight))];
    return [{ kind: 'tied', parameters: [parameterName(item)], weights, why: item.why }];
  });
  const home = new Map(tied.flatMap((item) => item.members.map(({ unit }) => [unit.name, item] as const)));
  const apart = [...units].flatMap(([weight, own]): readonly TieDecision[] => {
    const items = [...new Set(own.flatMap(({ name }) => home.get(name) ?? []))];
    const told = items.find(({ why }) => why === UNTIED);
    if (items.length < 2) return [];
    const why = told ? UNTIED : separationOf(weight, own, evidence);
    return [{ kind: 'separated', parameters: items.map(parameterName), weights: [weight], why }];
  });
  return [...together, ...apart];
}

const UNTIED = 'set by --untie';

/** The file's names of a weight that has another name or form in the graph. */
export function fileNames({ weights }: Graph, weight: string): readonly string[] {
  const { file } = weights.get(weight) ?? {};
  return file ? [file.name, ...(file.result === null ? [] : [file.result])] : [];
}

/** A glob that fits nothing is a mistake. */
function checkGlobs(graph: Graph, all: readonly Parameter[], options: ParameterOptions): void {
  const names = all.flatMap(({ name, weights }) => [
    name,
    ...weights,
    ...weights.flatMap((weight) => fileNames(graph, weight)),
  ]);
  for (const [option, globs] of [
    ['--trainable', options.trainable ?? []],
    ['--frozen', options.frozen ?? []],
  ] as const) {
    for (const glob of globs) {
      if (names.some((name) => matchesAny([glob], name))) continue;
      const near = nearest(glob, names);
      throw new AutoparError(
        'unknown-parameter',
        'usage',
        `${option} ${glob}: no parameter has such a name`,
        {},
        near ? `did you mean ${near}?` : 'autopar inspect MODEL --parameters lists them',
      );
    }
  }
}
