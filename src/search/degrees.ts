/**
 * @file Which degrees are possible: dp · tp = devices, as pinned, with dp dividing the batch.
 */
import { AutoparError } from '../ir/error.js';
import { type Graph, typeOf } from '../ir/graph.js';

export interface Degrees {
  readonly dp: number;
  readonly tp: number;
}

/** Degrees that the user gave. */
export interface Pins {
  readonly dp?: number | undefined;
  readonly tp?: number | undefined;
}

/** Size of the batch dimension of a graph's inputs; undefined where no input has one. */
export function batchSize(graph: Graph): number | undefined {
  const [first] = graph.batch;
  return first ? typeOf(graph, first.input).shape[first.axis] : undefined;
}

/**
 * All combinations, dp from large to small; those that cannot be are rejected with the reason.
 * @throws AutoparError (usage) for pins that are no positive whole numbers or do not go into the devices; (noPlan) for a
 * pinned dp that does not divide the batch
 */
export function degreesOf(
  devices: number,
  pins: Pins,
  batch: number | undefined,
  microBatches = 1,
): { readonly tried: readonly Degrees[]; readonly rejected: readonly { degrees: Degrees; reason: string }[] } {
  checkPins(devices, pins);
  if (pins.dp !== undefined && batch !== undefined && batch % pins.dp !== 0)
    throw batchError(pins.dp, batch, microBatches);
  const tried: Degrees[] = [];
  const rejected: { degrees: Degrees; reason: string }[] = [];
  for (let tp = 1; tp <= devices; tp++) {
    if (devices % tp !== 0) continue;
    const degrees = { dp: devices / tp, tp };
    if ((pins.dp ?? degrees.dp) !== degrees.dp || (pins.tp ?? tp) !== tp) continue;
    if (batch !== undefined && batch % degrees.dp !== 0) {
      rejected.push({ degrees, reason: `dp ${degrees.dp} does not divide the batch of ${batch}` });
    } else tried.push(degrees);
  }
  if (tried.length === 0) throw batchError(rejected[0]?.degrees.dp ?? 1, batch ?? 1, microBatches);
  return { tried, rejected };
}

function checkPins(devices: number, pins: Pins): void {
  const given = (['dp', 'tp'] as const).flatMap((axis) => {
    const size = pins[axis];
    return size === undefined ? [] : [{ axis, size }];
  });
  for (const { axis, size } of given) {
    if (Number.isInteger(size) && size >= 1) continue;
    throw new AutoparError(
      'bad-degree',
      'usage',
      `--${axis} ${size} is not a positive whole number`,
      {},
      `give the number of ranks along ${axis}, such as --${axis} 2`,
    );
  }
  const product = given.reduce((result, { size }) => result * size, 1);
  const exact = given.length === 2;
  if (exact ? product === devices : devices % product === 0) return;
  const text = given.map(({ axis, size }) => `${axis} ${size}`).join(' · ');
  throw new AutoparError(
    'degrees-do-not-match-devices',
    'usage',
    exact ? `${text} is ${product}, but there are ${devices} devices` : `${text} does not divide ${devices} devices`,
    {},
    `devices = pp · dp · tp: leave out --devices, or give --devices ${exact ? product : Math.ceil(devices / product) * product}`,
  );
}

function batchError(dp: number, batch: number, microBatches: number): AutoparError {
  const multiple = Math.ceil(batch / dp) * dp * microBatches;
  const part = microBatches > 1 ? `micro-batch of ${batch} (${microBatches} of them)` : `batch of ${batch}`;
  return new AutoparError(
    'dp-does-not-divide-batch',
    'noPlan',
    `dp ${dp} does not divide the ${part}`,
    {},
    `rebuild the model at another batch with --global-batch ${multiple}, or use --dp ${divisorAtMost(batch, dp)}`,
  );
}

/** The largest divisor of `value` that is at most `limit`. */
function divisorAtMost(value: number, limit: number): number {
  for (let divisor = Math.min(value, limit); divisor > 1; divisor--) if (value % divisor === 0) return divisor;
  return 1;
}
