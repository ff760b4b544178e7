/**
 * @file Parameter, buffer or constant: by the exporter's statement, by the place where a value meets data, by the values
 * themselves; by a name only for single numbers, which literals are as well.
 */
import { isFloating } from '../dtype.js';
import { elementCount, type Graph, type Node, type TensorType, type Weight } from '../graph.js';
import { makersOf, readersOf } from '../makers-and-readers.js';
import type { InputKind } from '../onnx/model.js';
import { isNatural, isPlausible, type ParameterPlace } from './places.js';
import type { TracedConstant } from './recorded.js';
import type { ValueEvidence } from './value-evidence.js';

export interface RoleVerdict {
  readonly role: Weight['role'];
  /** In a few words. */
  readonly why: string;
}

/** Known facts of a value that the graph holds. */
export interface RoleFacts {
  readonly type: TensorType;
  /** The kind that the exporter states. */
  readonly kind: InputKind | null;
  /** Whether it is an initializer of the file, or one whose elements were moved; not a literal of an operator, or computed. */
  readonly isInitializer: boolean;
  /** Whether a single number of this name is a module's: literals of such a file have names of another form. */
  readonly named: boolean;
  /** Whether its name is certainly a module's, with dots: then it is a buffer if it is not a parameter. */
  readonly dotted: boolean;
  readonly traced: TracedConstant | null;
  readonly places: readonly ParameterPlace[];
  /** Operators of the graph by name. */
  readonly nodeOf: (name: string) => Node | undefined;
  readonly makerOf: (tensor: string) => Node | undefined;
  readonly readersOf: (tensor: string) => readonly Node[];
  /** Null where its values are absent. */
  readonly values: () => ValueEvidence | null;
}

const parameter = (why: string): RoleVerdict => ({ role: 'parameter', why });
const constant = (why: string): RoleVerdict => ({ role: 'constant', why });
const buffer = (why: string): RoleVerdict => ({ role: 'buffer', why });

/** The verdict on one value, with its reason. */
export function parameterRole(facts: RoleFacts): RoleVerdict {
  const { type, kind, isInitializer: held, traced, places } = facts;
  if (kind === 'parameter' || kind === 'buffer' || kind === 'constant') return { role: kind, why: STATED_BY_EXPORTER };
  if (!isFloating(type.dtype)) return constant(`${type.dtype} has no gradient`);
  if (!held) return constant(LITERAL);
  if (elementCount(type.shape) === 0) return constant('it is empty');
  if (traced !== null && traced.closed !== null) return constant(traced.closed);
  const natural = places.filter(isNatural);
  if (natural.length > 0) return naturalVerdict(facts, natural);
  const place = places.find(isPlausible);
  if (elementCount(type.shape) === 1 && !(place && (facts.named || traced?.isListed)))
    return constant('a single number, as literals are');
  const state = facts.dotted ? buffer : constant;
  if (!place) return state(placelessReason(places));
  const values = facts.values();
  if (values?.made && !traced?.isListed) return state(values.made);
  const still = values === null || values.uniform;
  if (place.use === 'scores' && still) return state('a mask: added to operands of a softmax');
  if (place.use === 'start' && still && traced) return state('the initial state of a recurrence, all elements equal');
  return parameter(`${MEETS[place.use] ?? 'operand'} ${place.op}`);
}

/** Reasons that are most often given. */
export const LITERAL = 'a literal, or computed from literals';
/** A module's own name, with dots: exporters make up names without, or with slashes. */
export const DOTTED = /^[A-Za-z_]\w*(\.\w+)+$/;
export const STATED_BY_EXPORTER = 'stated by the exporter';

function naturalVerdict(facts: RoleFacts, natural: readonly ParameterPlace[]): RoleVerdict {
  const { places } = facts;
  const [first] = natural;
  if (natural.every(({ use }) => use === 'statistics')) return buffer(`running statistics of ${first?.op}`);
  if (places.every((place) => normalisesGroups(place, facts)) && facts.values()?.uniform)
    return constant('a helper of a group normalisation, which requires a scale and a bias');
  const weight = natural.find(({ use }) => use !== 'statistics');
  return parameter(`${NOUNS[weight?.use ?? 'other'] ?? 'operand'} of ${weight?.op}`);
}

function placelessReason(places: readonly ParameterPlace[]): string {
  const standard = places.find(({ use }) => use === 'standard');
  if (standard) return 'it standardises an input of the model';
  const ops = [...new Set(places.map(({ op }) => op))];
  return ops.length > 0 ? `not a weight operand (${ops.join(', ')})` : 'no operator reads it';
}

/** Exporters write a normalisation over groups of channels as one over channels of data that is reshaped, and reshape back. */
function normalisesGroups({ node: name, op }: ParameterPlace, { nodeOf, makerOf, readersOf }: RoleFacts): boolean {
  const node = nodeOf(name);
  const [data] = node?.inputs ?? [];
  const [result] = node?.outputs ?? [];
  if (op !== 'InstanceNormalization' || !data || !result) return false;
  const readers = readersOf(result);
  return makerOf(data)?.op === 'Reshape' && readers.length > 0 && readers.every((reader) => reader.op === 'Reshape');
}

/** By the use of a place that is a weight's by nature. */
export const NOUNS: Readonly<Partial<Record<ParameterPlace['use'], string>>> = {
  lookup: 'table',
  product: 'weight',
  scale: 'scale',
  bias: 'bias',
};

/** By the use of a place where data meets it. */
const MEETS: Readonly<Partial<Record<ParameterPlace['use'], string>>> = {
  addend: 'added to data by',
  scores: 'added to scores by',
  factor: 'multiplies data in',
  part: 'becomes a part of data in',
  start: 'state at the start of',
};

/** The operators around a tensor in a graph, in the form of `RoleFacts`. */
export function neighbourLookups({ nodes }: Pick<Graph, 'nodes'>): Pick<RoleFacts, 'nodeOf' | 'makerOf' | 'readersOf'> {
  const byName = new Map(nodes.map((node) => [node.name, node]));
  const [makers, readers] = [makersOf(nodes), readersOf(nodes)];
  return {
    nodeOf: (name) => byName.get(name),
    makerOf: (tensor) => makers.get(tensor),
    readersOf: (tensor) => readers.get(tensor) ?? [],
  };
}
