/**
 * @file `npm run bench:collective-fit -- FILE.csv…`: the error of predicted against measured collectives, series by series
 * (columns hw, gpus, nodes, collective, algo, bytes, time_us), and the constants that fit these files best: a search
 * from the constants of the source, which should end where it began. `alone` is the error of the formula without a
 * loss for small messages, with its launch and latencies fitted too.
 */
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { parseCluster } from '../src/cost-model/cluster.js';
import { type CollectiveKind, collectiveSeconds } from '../src/cost-model/collective-price.js';
import { type DeviceSpec, profileOf } from '../src/cost-model/device.js';
import { evenPlace, type GroupPlace } from '../src/cost-model/group-place.js';
import { type ClusterLevel, FITTED_FILL } from '../src/cost-model/levels.js';
import { readCsv } from './published/csv.js';

interface Point {
  readonly series: string;
  readonly kind: CollectiveKind;
  readonly bytes: number;
  readonly seconds: number;
  readonly levels: readonly ClusterLevel[];
  readonly device: DeviceSpec;
  readonly place: GroupPlace;
  /** Measurements that NCCL's tuner spoilt are predicted, but not fitted. */
  readonly fitted: boolean;
}

/** Constants to fit: seconds, except for the power. */
interface Constants {
  readonly launch: number;
  readonly nodeRound: number;
  readonly networkRound: number;
  readonly nodeFill: number;
  readonly networkFill: number;
  readonly power: number;
}

/** The point of a row, or why there is none. */
function pointOf(row: Readonly<Record<string, string>>): Point | string {
  const { hw = '', algo = '', collective = '' } = row;
  const found = HARDWARE_NAMES.find(([name]) => name.test(hw));
  if (!found) return 'hardware that the catalogue does not know';
  if (/^IB SHARP/.test(algo)) return 'sums made by the network';
  const [, id, network] = found;
  const ranks = Number(row['gpus']);
  const nodes = /NVL72/.test(hw) ? 1 : Number(row['nodes']);
  const { device, levels } = parseCluster(`${nodes}x${ranks / nodes}:${id}`, undefined);
  const ring = /^ring/i.test(algo);
  return {
    series: `${hw}, ${ranks} ranks, ${collective}${ring ? ', ring' : ''}`,
    kind: collective.replaceAll('_', '-') as CollectiveKind,
    bytes: Number(row['bytes']),
    seconds: Number(row['time_us']) / 1e6,
    levels: levels.map((level) => ({
      ...level,
      ...(ring ? { reducingBandwidth: 0 } : {}),
      ...(level.relayed && network !== undefined ? { bandwidth: network * 0.96 } : {}),
    })),
    device,
    place: evenPlace(levels.map(({ size }) => size)),
    fitted: collective === 'all_reduce' && FITTED.test(hw) && !(/EFAv4/.test(hw) && Number(row['bytes']) < 4e6),
  };
}

/** Names in the measurements, the catalogue's device, and the network bandwidth per device where it differs. */
const HARDWARE_NAMES: readonly (readonly [RegExp, string, number?])[] = [
  [/^2x400Gb RDMA/, 'h100-sxm-80', 1e11 / 8],
  [/^2x200Gb RDMA/, 'h100-sxm-80', 5e10 / 8],
  [/^400Gb RDMA single/, 'h100-sxm-80', 5e10 / 8],
  [/^200Gb RDMA single/, 'h100-sxm-80', 2.5e10 / 8],
  [/^100GbE/, 'h100-sxm-80', 1.25e10 / 8],
  [/A100/, 'a100-sxm-80'],
  [/H200/, 'h200-sxm-141'],
  [/GB200/, 'gb200-nvl72'],
  [/B200/, 'b200-sxm-180'],
  [/H100/, 'h100-sxm-80'],
  [/V100/, 'v100-sxm2-32'],
  [/MI300X/, 'mi300x-192'],
  [/^PCIe Gen4/, 'a100-pcie-80'],
  [/^PCIe Gen5$/, 'h100-pcie-80'],
];

/** Measured by nccl-tests and the like over many sizes. */
const FITTED = /^(A100-SXM|H200-SXM|B200-SXM|DGX H100 8x400Gb IB$|H100 cluster)/;

function predict(point: Point, constants: Constants): number {
  const levels = point.levels.map((level) => ({
    ...level,
    latencySeconds: level.relayed ? constants.networkRound : constants.nodeRound,
    fill: { seconds: level.relayed ? constants.networkFill : constants.nodeFill, power: constants.power },
  }));
  const launch = constants.launch - profileOf(point.device).collectiveSeconds;
  return launch + collectiveSeconds(point.kind, point.bytes, point.place, { levels, device: point.device });
}

/** Mean squared logarithm of predicted over measured: twice too long is as bad as twice too short. */
function loss(constants: Constants, members: readonly Point[]): number {
  const logs = members.map((point) => Math.log(Math.max(1e-9, predict(point, constants)) / point.seconds) ** 2);
  return logs.reduce((sum, value) => sum + value, 0) / logs.length;
}

function errors(members: readonly Point[], constants: Constants) {
  const relative = members.map((point) => predict(point, constants) / point.seconds - 1);
  const mean = (list: readonly number[]) => list.reduce((sum, value) => sum + value, 0) / list.length;
  return { meanError: mean(relative.map(Math.abs)), bias: mean(relative) };
}

/** Pattern search: each constant a little up or down for as long as that helps, in ever smaller steps. */
function search(from: Constants, rate: (constants: Constants) => number): Constants {
  let found = from;
  let least = rate(from);
  for (let step = 0.3; step > 0.003; step /= 2) {
    for (let moved = true; moved; ) {
      moved = false;
      for (const name of Object.keys(from) as (keyof Constants)[]) {
        for (const factor of [1 + step, 1 / (1 + step)]) {
          const value = found[name] * factor;
          const next = { ...found, [name]: name === 'power' ? Math.min(1, value) : value };
          const rated = rate(next);
          if (rated < least * (1 - 1e-6)) {
            [found, least, moved] = [next, rated, true];
          }
        }
      }
    }
  }
  return found;
}

function line(
  name: string,
  row: { readonly points: number; readonly meanError: number; readonly bias: number; readonly alone: number },
) {
  const figures = [row.meanError, row.bias, row.alone].map((value) => percent(value).padStart(7)).join(' ');
  return `${name.slice(0, 58).padEnd(58)} ${String(row.points).padStart(6)} ${figures}`;
}

function percent(value: number): string {
  return `${(100 * value).toFixed(1)} %`;
}

const { positionals, values } = parseArgs({ allowPositionals: true, options: { json: { type: 'boolean' } } });
if (positionals.length === 0) {
  console.error('usage: npm run bench:collective-fit -- FILE.csv…');
  process.exit(2);
}

const rows = positionals.flatMap((file) => readCsv(readFileSync(file, 'utf8')));
const read = rows.map(pointOf);
const points = read.filter((row): row is Point => typeof row !== 'string');
const skipped = read.filter((row): row is string => typeof row === 'string');

const source: Constants = {
  launch: profileOf(parseCluster('h100-sxm-80', undefined).device).collectiveSeconds,
  nodeRound: parseCluster('h100-sxm-80', undefined).device.scaleUp.latencySeconds,
  networkRound: parseCluster('h100-sxm-80', undefined).device.scaleOut.latencySeconds,
  nodeFill: FITTED_FILL.node.seconds,
  networkFill: FITTED_FILL.network.seconds,
  power: FITTED_FILL.node.power,
};
const fittedPoints = points.filter(({ fitted }) => fitted);
const best = search(source, (constants) => loss(constants, fittedPoints));
const without = { ...source, nodeFill: 0, networkFill: 0 };
const alone = search(without, (constants) => loss(constants, fittedPoints));

const report = [...new Set(points.map(({ series }) => series))].map((series) => {
  const members = points.filter((point) => point.series === series);
  return {
    series,
    points: members.length,
    ...errors(members, source),
    alone: errors(members, alone).meanError,
  };
});
const whole = { points: points.length, ...errors(points, source), alone: errors(points, alone).meanError };
const fit = {
  points: fittedPoints.length,
  ...errors(fittedPoints, source),
  best: errors(fittedPoints, best).meanError,
};

if (values.json) {
  console.log(
    JSON.stringify({ schema: 'autopar-bench-collective-fit-v1', series: report, whole, fit, source, best }, null, 2),
  );
} else {
  console.log(`${'series'.padEnd(58)} points    MAPE    bias   alone`);
  for (const row of report) console.log(line(row.series, row));
  console.log(line('all', whole));
  for (const why of new Set(skipped)) console.log(`skipped ${skipped.filter((other) => other === why).length}: ${why}`);
  console.log(
    `fitted on ${fit.points} points: MAPE ${percent(fit.meanError)}; the best constants ${percent(fit.best)}`,
  );
  for (const name of Object.keys(source) as (keyof Constants)[]) {
    const text = (value: number) => (name === 'power' ? value.toFixed(2) : `${(value * 1e6).toFixed(1)} µs`);
    console.log(`  ${name.padEnd(13)} ${text(source[name]).padStart(9)}   best ${text(best[name])}`);
  }
}
