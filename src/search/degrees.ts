/**
 * @file The possible degrees: dp · sp · tp = devices, as pinned, with dp dividing the batch. sp and ep are 1 unless they are
 * given: each further axis multiplies the number of an operator's strategies.
 */
import { AutoparError } from '../ir/error.js';
import { type Graph, typeOf } from '../ir/graph.js';
import { INNER_AXES, type InnerDegrees } from '../sharding-propagation/roles.js';

/** sp and ep are left out where they are 1. */
export interface MeshDegrees extends InnerDegrees {
  readonly dp: number;
  readonly tp: number;
}

/** Degrees that the user gave. */
export type Pins = { readonly [Axis in keyof InnerDegrees]?: number | undefined };

/** Combinations that are tried, and those that cannot be. */
export interface PossibleDegrees {
  readonly tried: readonly MeshDegrees[];
  readonly rejected: readonly { readonly degrees: MeshDegrees; readonly reason: string }[];
}

/** Size of the batch dimension of a graph's inputs; undefined where no input has one. */
export function batchSize(graph: Graph): number | undefined {
  const [first] = graph.batch;
  return first ? typeOf(graph, first.input).shape[first.axis] : undefined;
}

/**
 * All combinations, dp from large to small; those that cannot be are rejected with the reason.
 * @param devices of one stage where there are several
 * @throws AutoparError (usage) for pins that are not positive whole numbers or do not divide the devices; (noPlan) for a
 * pinned dp that does not divide the batch
 */
export function degreesOf(
  devices: number,
  pins: Pins,
  batch: number | undefined,
  microBatches = 1,
  stages = 1,
): PossibleDegrees {
  checkPins(devices, pins, stages);
  if (pins.dp !== undefined && batch !== undefined && batch % pins.dp !== 0)
    throw batchError(pins.dp, { devices, pins, batch, microBatches });
  const { sp = 1, ep = 1 } = pins;
  const asked = { ...(sp > 1 ? { sp } : {}), ...(ep > 1 ? { ep } : {}) };
  const ranks = devices / sp;
  const tried: MeshDegrees[] = [];
  const rejected: { degrees: MeshDegrees; reason: string }[] = [];
  for (let tp = 1; tp <= ranks; tp++) {
    if (ranks % tp !== 0) continue;
    const degrees = { dp: ranks / tp, tp, ...asked };
    if ((pins.dp ?? degrees.dp) !== degrees.dp || (pins.tp ?? tp) !== tp) continue;
    if (batch !== undefined && batch % degrees.dp !== 0) {
      rejected.push({ degrees, reason: `dp ${degrees.dp} does not divide the batch of ${batch}` });
    } else if ((degrees.dp * sp) % ep !== 0) {
      rejected.push({ degrees, reason: expertsProblem(degrees, ep) });
    } else tried.push(degrees);
  }
  const [other] = rejected;
  if (tried.length === 0 && other && (other.degrees.dp * sp) % ep !== 0) throw expertsError(other.degrees, ep);
  if (tried.length === 0)
    throw batchError(rejected[0]?.degrees.dp ?? 1, { devices, pins, batch: batch ?? 1, microBatches });
  return { tried, rejected };
}

function checkPins(devices: number, pins: Pins, stages: number): void {
  for (const [axis, size] of Object.entries(pins)) {
    if (size === undefined) continue;
    if (Number.isInteger(size) && size >= 1) continue;
    throw new AutoparError(
      'bad-degree',
      'usage',
      `--${axis} ${size} is not a positive whole number`,
      {},
      `give the number of ranks along ${axis}, such as --${axis} 2`,
    );
  }
  const given = INNER_AXES.flatMap((axis) => {
    const size = pins[axis];
    return size === undefined ? [] : [{ axis, size }];
  });
  const product = given.reduce((result, { size }) => result * size, 1);
  const exact = pins.dp !== undefined && pins.tp !== undefined;
  if (exact ? product === devices : devices % product === 0) return;
  const text = given.map(({ axis, size }) => `${axis} ${size}`).join(' · ');
  const needed = stages * (exact ? product : Math.ceil(devices / product) * product);
  const whose = `${devices} devices${stages > 1 ? ` of each of ${stages} stages` : ''}`;
  throw new AutoparError(
    'degrees-do-not-match-devices',
    'usage',
    exact ? `${text} is ${product}, not the ${whose}` : `${text} does not divide the ${whose}`,
    {},
    `devices = pp · dp${(pins.sp ?? 1) > 1 ? ' · sp' : ''} · tp: give degrees that ` +
      `${exact ? 'multiply to' : 'divide'} them, or --devices ${needed}; with --cluster, a cluster of ${needed}`,
  );
}

function expertsProblem({ dp, sp = 1 }: MeshDegrees, ep: number): string {
  return sp > 1 ? `ep ${ep} does not divide dp ${dp} · sp ${sp} = ${dp * sp}` : `ep ${ep} does not divide dp ${dp}`;
}

function expertsError(degrees: MeshDegrees, ep: number): AutoparError {
  return new AutoparError(
    'degrees-do-not-match-devices',
    'usage',
    expertsProblem(degrees, ep),
    {},
    'experts are on ranks that are data parallel elsewhere: give an --ep that divides dp · sp, or another --dp',
  );
}

interface Sharing {
  readonly devices: number;
  readonly pins: Pins;
  readonly batch: number;
  readonly microBatches: number;
}

function batchError(dp: number, { devices, pins, batch, microBatches }: Sharing): AutoparError {
  const multiple = Math.ceil(batch / dp) * dp * microBatches;
  const part = microBatches > 1 ? `micro-batch of ${batch} (${microBatches} of them)` : `batch of ${batch}`;
  return new AutoparError(
    'dp-does-not-divide-batch',
    'noPlan',
    `dp ${dp} does not divide the ${part}`,
    {},
    `rebuild the model at another batch with --global-batch ${multiple}, or use ${otherDp(dp, devices, pins, batch)}`,
  );
}

/** The largest dp below that divides the batch, on these devices unless that is 1; a tp that was given changes with it. */
function otherDp(dp: number, devices: number, { sp = 1, ep = 1, tp }: Pins, batch: number): string {
  const ranks = devices / sp;
  const smaller = Array.from({ length: dp }, (_, index) => dp - index).filter((other) => batch % other === 0);
  const here = smaller.find((other) => ranks % other === 0 && (other * sp) % ep === 0) ?? 1;
  const [elsewhere = 1] = smaller;
  if (here === 1 && elsewhere > 1) return `--dp ${elsewhere} on fewer devices`;
  return `--dp ${here}${tp === undefined ? '' : ` --tp ${ranks / here}`}`;
}
