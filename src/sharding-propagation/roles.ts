/**
 * @file Roles: the factors that an axis of the mesh may take, as data. Nothing else compares names of axes.
 *
 *     dp    the batch, wherever an operator has one; anything elsewhere
 *     sp    the sequence, wherever an operator has one; with `ulysses` the heads of attention, with `ring` queries and keys at
 *           once; for images the rows
 *     tp    everything but the batch, dimensions of weights first, and positions under windows; for norms the sequence where
 *           that is requested (Megatron's sequence parallelism)
 *     ep    sub-axes of dp · sp: the experts, where an operator has them; only there they are not data parallel
 *
 * An axis must take the factors of its role: an operator with a batch that dp divides has dp on it. Pins and `--axes free`
 * lift roles.
 */
import { AXIS_ORDER, type Mesh, type MeshAxis, makeMesh, STAGE_AXIS, type SubAxis } from './mesh.js';

/** The families of factors that roles distinguish. */
export type FactorFamily = 'batch' | 'sequence' | 'heads' | 'expert';

/** The places of operators that roles distinguish: between queries, keys and values, a norm with a scale, or neither. */
export type OperatorPlace = 'attention' | 'norm' | 'elsewhere';

export interface AxisRole {
  /** Families that it must take where an operator has them; in a place without an entry, those of `elsewhere`. */
  readonly takes: Readonly<Partial<Record<OperatorPlace, readonly FactorFamily[]>>>;
  /** Families that it takes padded, where it does not divide them. */
  readonly pads: readonly FactorFamily[];
  /** Families that it leaves to others, unless a heavy operator has nothing else to shard. */
  readonly leaves: readonly FactorFamily[];
  /** Whether it shards keys and queries at once, where keys can be passed round: always, or where that costs less. */
  readonly streams: 'always' | 'either' | 'never';
  /** Whether it shards a dimension of a weight matrix before all others. */
  readonly cutsWeights: boolean;
  /** Whether positions that windows make are as good. */
  readonly cutsWindows: boolean;
  /** Whether parameters are replicated over it by default: gradients are summed over it, and ZeRO shards state over it. */
  readonly isData: boolean;
}

export type Roles = Readonly<Record<string, AxisRole>>;

/**
 * How sp shards attention: queries against gathered keys and values, heads, queries against keys and values that are passed
 * round, or whichever costs less.
 */
export const SP_METHODS = ['gather', 'ulysses', 'ring', 'auto'] as const;
export type SpMethod = (typeof SP_METHODS)[number];

/** How one attention is sharded. */
export type AttentionMethod = Exclude<SpMethod, 'auto'>;

/** Number of attentions in the forward by method; one over queries and heads at once counts for both. */
export type AttentionMethods = Readonly<Partial<Record<AttentionMethod, number>>>;

/**
 * Whether tp shards norms along the sequence: always, never (nor anything else along it), or where that costs less
 * (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models").
 */
export const TP_SEQUENCES = ['on', 'off', 'auto'] as const;
export type TpSequence = (typeof TP_SEQUENCES)[number];

/** The positions of a rank of sp: a range of the model's order, or the pieces r and 2·sp − 1 − r of 2·sp. */
export const SP_ORDERS = ['contiguous', 'zigzag'] as const;
export type SpOrder = (typeof SP_ORDERS)[number];

const IN_ATTENTION: Readonly<Record<SpMethod, readonly FactorFamily[]>> = {
  gather: ['sequence'],
  ulysses: ['heads'],
  ring: ['sequence'],
  auto: ['sequence', 'heads'],
};

const STREAMS: Readonly<Record<SpMethod, AxisRole['streams']>> = {
  gather: 'never',
  ulysses: 'never',
  ring: 'always',
  auto: 'either',
};

const FEATURES: AxisRole = {
  takes: {},
  pads: [],
  leaves: ['batch'],
  streams: 'never',
  cutsWeights: true,
  cutsWindows: true,
  isData: false,
};

const OVER_TP: Readonly<Record<TpSequence, AxisRole>> = {
  on: { ...FEATURES, takes: { norm: ['sequence'] } },
  off: { ...FEATURES, leaves: ['batch', 'sequence'] },
  auto: FEATURES,
};

/** The methods by which axes shard sequences. */
export interface SequenceMethods {
  readonly spMethod?: SpMethod;
  readonly tpSequence?: TpSequence;
}

/** The table of roles, by the name of the axis. */
export function rolesOf({ spMethod = 'auto', tpSequence = 'auto' }: SequenceMethods = {}): Roles {
  return {
    dp: {
      ...FEATURES,
      takes: { elsewhere: ['batch'] },
      leaves: [],
      cutsWeights: false,
      cutsWindows: false,
      isData: true,
    },
    sp: {
      takes: { attention: IN_ATTENTION[spMethod], elsewhere: ['sequence'] },
      pads: ['sequence'],
      leaves: [],
      streams: STREAMS[spMethod],
      cutsWeights: false,
      cutsWindows: false,
      isData: true,
    },
    tp: OVER_TP[tpSequence],
    [EXPERTS]: {
      ...FEATURES,
      takes: { elsewhere: ['expert'] },
      leaves: [],
      cutsWeights: false,
      cutsWindows: false,
      isData: true,
    },
  };
}

/** The name under which sub-axes of data axes shard experts. */
export const EXPERTS = 'ep';

export type ParallelAxis = 'dp' | 'tp' | 'pp' | 'sp' | 'ep';

/** All axes that have a degree, in the order in which every report lists degrees; how ranks are nested is a mesh's own order. */
export const PARALLEL_AXES: readonly ParallelAxis[] = ['dp', 'tp', 'pp', 'sp', EXPERTS];

/** The axes that operators are sharded over, outermost first. */
export const INNER_AXES = AXIS_ORDER.filter((axis) => axis !== STAGE_AXIS);
export type InnerAxis = Exclude<(typeof AXIS_ORDER)[number], typeof STAGE_AXIS>;

/**
 * The axes that may have several ranks without a request; the others are part of a mesh only where they have several.
 */
export const SEARCHED_AXES = ['dp', 'tp'] as const satisfies readonly InnerAxis[];

/** Degrees that a report names, in one order: those above 1, and those of axes that are `always` named. */
export function namedDegrees(
  degrees: Readonly<Partial<Record<ParallelAxis, number>>>,
  always: readonly ParallelAxis[] = SEARCHED_AXES,
): readonly (readonly [ParallelAxis, number])[] {
  return PARALLEL_AXES.flatMap((axis) => {
    const degree = degrees[axis] ?? 1;
    return degree > 1 || always.includes(axis) ? [[axis, degree] as const] : [];
  });
}

/** The same as text: `dp 2 · tp 1 · pp 2`. */
export function listedDegrees(...named: Parameters<typeof namedDegrees>): string {
  return namedDegrees(...named)
    .map(([axis, degree]) => `${axis} ${degree}`)
    .join(' · ');
}

/** Degrees of the axes that operators are sharded over, and of experts. */
export interface InnerDegrees extends Readonly<Partial<Record<InnerAxis, number>>> {
  readonly ep?: number;
}

const TABLE = rolesOf();

/** The role of an axis; one that the table does not name takes features. */
export function axisRole(axis: string, roles: Roles = TABLE): AxisRole {
  return roles[axis] ?? FEATURES;
}

/** The mesh of degrees: dp and tp always, others where they have several ranks; with experts on sub-axes of the data axes. */
export function innerMesh(degrees: InnerDegrees): Mesh {
  const isThere = (axis: InnerAxis) => (SEARCHED_AXES as readonly string[]).includes(axis) || (degrees[axis] ?? 1) > 1;
  const mesh = makeMesh(INNER_AXES.filter(isThere).map((axis) => [axis, degrees[axis] ?? 1] as const));
  return withExperts(mesh, degrees.ep ?? 1);
}

/** A mesh with experts sharded over so many ranks of its data axes. */
export function withExperts(mesh: Mesh, ep: number): Mesh {
  return ep > 1 ? { ...mesh, experts: expertAxes(mesh, ep) } : mesh;
}

/**
 * The sub-axes of dp · sp that shard experts, outermost first: the innermost possible ones, so that their ranks are neighbours.
 * `ep` divides dp · sp.
 */
export function expertAxes(mesh: Mesh, ep: number): readonly SubAxis[] {
  const found: SubAxis[] = [];
  let rest = ep;
  for (const { name, size } of dataAxes(mesh)
    .flatMap(({ subAxes }) => subAxes)
    .reverse()) {
    if (rest % size !== 0) continue;
    found.push(name);
    rest /= size;
  }
  if (rest !== 1) throw new Error(`the data axes have no sub-axes for ep ${ep}`);
  return found.reverse();
}

/** Axes over which parameters are whole as a rule, outermost first: data parallelism sums gradients over them. */
export function dataAxes(mesh: Mesh): readonly MeshAxis[] {
  return mesh.axes.filter(({ name }) => name !== STAGE_AXIS && axisRole(name).isData);
}

/** Axes that take a family of factors wherever an operator has them, outermost first. */
export function axesTaking(mesh: Mesh, family: FactorFamily): readonly MeshAxis[] {
  return mesh.axes.filter(({ name }) => axisRole(name).takes.elsewhere?.includes(family));
}

/** The axis that shards weights, to which styles of modules and pins of tables refer; none on a mesh without it. */
export function weightAxis(mesh: Mesh): MeshAxis | undefined {
  return mesh.axes.find(({ name }) => Object.hasOwn(TABLE, name) && axisRole(name).cutsWeights);
}

/** Its name. */
export const WEIGHT_AXIS = 'tp' satisfies InnerAxis;

/** A part of an axis that takes a factor as one: for data axes, the part that shards experts, and the rest. */
export interface AxisPart extends MeshAxis {
  /** The axis of which it is a part. */
  readonly axis: string;
}

/** The parts of a mesh's axes in its order; those that shard experts are separate where an operator has experts. */
export function axisParts({ axes, experts = [] }: Mesh, hasExperts: boolean): readonly AxisPart[] {
  return axes.flatMap((axis): readonly AxisPart[] => {
    const onExperts = hasExperts ? axis.subAxes.filter(({ name }) => experts.includes(name)) : [];
    if (onExperts.length === 0) return [{ ...axis, axis: axis.name }];
    const rest = axis.subAxes.filter(({ name }) => !experts.includes(name));
    return [
      { name: axis.name, axis: axis.name, subAxes: rest, size: product(rest) },
      { name: EXPERTS, axis: axis.name, subAxes: onExperts, size: product(onExperts) },
    ];
  });
}

function product(subAxes: MeshAxis['subAxes']): number {
  return subAxes.reduce((all, { size }) => all * size, 1);
}
