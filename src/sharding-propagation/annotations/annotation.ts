/**
 * @file Annotations as a file states them, before they meet a graph (docs/annotations.md).
 *
 *     version: 1
 *     mesh: {dp: 2, tp: 4}
 *     pins:
 *       - match: {module: 'h.*.mlp'}
 *         style: pairwise
 *         why: Megatron's pair
 */
import type { ParallelAxis } from '../roles.js';

export const ANNOTATIONS_VERSION = 1;

/** The targets of a glob: node names, tensor names, module paths (joined with dots), operator types. */
export const MATCH_KINDS = ['node', 'tensor', 'module', 'op'] as const;
export type MatchKind = (typeof MATCH_KINDS)[number];

/** As in PyTorch's tp_plan; styles.ts explains each. */
export const STYLES = ['colwise', 'rowwise', 'pairwise', 'sequence', 'replicate'] as const;
export type Style = (typeof STYLES)[number];

export const PLACES = ['device', 'host'] as const;
export type Place = (typeof PLACES)[number];

/** One notation for an operator: per operand and per result, null (or `_`) where nothing is asked. */
interface NotationSides<Notation> {
  readonly in?: readonly (Notation | null)[] | undefined;
  readonly out?: readonly (Notation | null)[] | undefined;
}

export type LayoutNotation = string | NotationSides<string>;

/** MindSpore's split counts: of a tensor, of an operator's operands, or of operands and results; or as Python text. */
export type SplitNotation =
  | string
  | readonly number[]
  | readonly (readonly number[] | string | null)[]
  | { readonly in?: SplitList; readonly out?: SplitList };
type SplitList = string | readonly (readonly number[] | string | null)[];

/** A tensor map's entry: axis of the device matrix counted from the right, -1 or 'None' for whole, an alias, or several. */
export type MapEntry = number | string | readonly (number | string)[];

export interface DeviceMatrixMap {
  readonly device_matrix: readonly number[];
  readonly alias_name?: readonly string[];
  readonly tensor_map: readonly MapEntry[];
}

/** MindSpore's layouts: of a tensor or first result, or a tensor map per operand and result over one device matrix. */
export type MapNotation =
  | string
  | DeviceMatrixMap
  | NotationSides<string | DeviceMatrixMap>
  | (Omit<DeviceMatrixMap, 'tensor_map'> & NotationSides<readonly MapEntry[]>);

/** Axes of a factor: `tp`, `(dp,tp)`, `-`, `(3 | 64:tp)`, or a list of axis names. */
export type FactorNotation = string | readonly string[];

/** One pin of the file. Keys are those of the file. */
export interface PinRecord {
  readonly match: Partial<Record<MatchKind, string>>;
  readonly layout?: LayoutNotation;
  readonly split?: SplitNotation;
  readonly map?: MapNotation;
  readonly factors?: Readonly<Record<string, FactorNotation>>;
  readonly style?: Style;
  readonly stage?: number;
  /** A chunk of the stage, where each has several. */
  readonly chunk?: number;
  readonly recompute?: boolean;
  readonly place?: Place;
  readonly priority?: number;
  readonly why?: string;
}

/** The file's contents: what `ANNOTATIONS_SCHEMA` accepts. */
export interface AnnotationRecord {
  readonly version: typeof ANNOTATIONS_VERSION;
  readonly mesh?: Partial<Record<ParallelAxis, number>>;
  readonly pins: readonly PinRecord[];
}

/** The notations for how tensors and factors are sharded. */
export const NOTATIONS = ['layout', 'split', 'map', 'factors', 'style'] as const;
export type Notation = (typeof NOTATIONS)[number];

/** A pin with its place in the file. */
export interface PinAnnotation extends PinRecord {
  /** Its number in the file, from 0. */
  readonly index: number;
  /** Lines of the pin and of its keys; null where it does not come from a file. */
  readonly line: number | null;
  readonly lines: Readonly<Partial<Record<keyof PinRecord, number>>>;
  readonly target: { readonly kind: MatchKind; readonly glob: string };
}

export interface Annotations {
  /** Null where they do not come from a file. */
  readonly file: string | null;
  /** Degrees that the file fixes. */
  readonly mesh: Partial<Record<ParallelAxis, number>>;
  /** Line of `mesh`. */
  readonly meshLine: number | null;
  readonly pins: readonly PinAnnotation[];
}
