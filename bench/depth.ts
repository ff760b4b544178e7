/**
 * @file `npm run bench:depth`: milliseconds of each station of `compile` for a GPT of 2 and of 96 layers, inference and training,
 * on two ranks of this machine. Every compilation is a process of its own, without the start of Node.
 * `npm run bench:depth -- FILE.onnx OPTIONS…`: the same for one compilation, with the options of `autopar compile`.
 *
 * V8 samples the thread once a millisecond. A sample counts for the innermost function of a station, garbage collection for the
 * code before it. A late sample counts as two milliseconds at most, so that time in which the thread did not run counts little.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { Profiler } from 'node:inspector';
import { Session } from 'node:inspector/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gpt } from '../models/gpt.js';
import { outputFlags, runCommandLine } from '../src/cli/command-line.js';
import { Output } from '../src/cli/output.js';
import { writeOnnx } from '../src/ir/onnx/writer.js';

const SIZES = { batch: 8, sequence: 16, width: 32, heads: 4, vocabulary: 64 };
const LAYERS = [2, 96] as const;
const KINDS = { inference: [], training: ['--train'] } as const;
const RANKS = ['--devices', '2', '--dp', '1', '--tp', '2'];

/** Files of each station; code that several stations call counts for the caller. */
const STATIONS: readonly (readonly [station: string, files: RegExp])[] = [
  ['import', /src\/api\/models\/import\.js/],
  ['training graph', /src\/(api\/models\/training|ir\/autodiff\/)/],
  ['questions', /src\/search\/(operator-facts|factor-families|piece-hints)\.js/],
  ['candidates', /src\/search\/candidates\.js/],
  ['problem', /src\/search\/(mesh-problem|group-graph|edge-costs)\.js/],
  ['elimination', /src\/solver\//],
  ['lowering', /src\/partition\/(partition|lower-)/],
  ['order', /src\/partition\/(order|order-phase|ready-nodes|defer|place-moves|placed-actions|segments)\.js/],
  ['walk, memory', /src\/partition\/(stage-walk|rank-memory|occupancy)\.js/],
  ['price', /src\/cost-model\//],
  ['plan.json', /src\/(strategy\/|search\/reshard-texts\.js)/],
  ['report', /src\/(api\/reports\/(peak-memory|report|training-state)|partition\/tensor-kinds)/],
  ['segments', /src\/codegen\//],
  ['checks', /src\/(partition|program)\/check/],
  ['writing', /src\/program\/atomic\.js/],
];
const REST = 'the rest';

/** Microseconds from one sample to the next. */
const INTERVAL = 1000;

/** Milliseconds by station. */
type Times = ReadonlyMap<string, number>;

const line = process.argv.slice(2);
if (line.length === 0) compareDepths();
else console.log(JSON.stringify([...(await compiled(line))]));

function compareDepths(): void {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-bench-'));
  try {
    const columns = Object.entries(KINDS).flatMap(([kind, options]) =>
      LAYERS.map((layers) => {
        const model = join(folder, `${layers}.onnx`);
        writeFileSync(model, writeOnnx(gpt('gpt', { ...SIZES, layers }, 1)));
        const own = [fileURLToPath(import.meta.url), model, ...RANKS, ...options, '-o', join(folder, 'out'), '--force'];
        const times: Times = new Map(JSON.parse(execFileSync(process.execPath, own, { encoding: 'utf8' })));
        return { title: `${kind}, ${layers}`, times };
      }),
    );
    console.log(
      row(
        'milliseconds, by layers',
        columns.map(({ title }) => title),
      ),
    );
    for (const station of [...STATIONS.map(([name]) => name), REST])
      console.log(
        row(
          station,
          columns.map(({ times }) => (times.get(station) ?? 0).toFixed(0)),
        ),
      );
    console.log(
      row(
        'together',
        columns.map(({ times }) => sum([...times.values()]).toFixed(0)),
      ),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function row(name: string, cells: readonly string[]): string {
  return name.padEnd(24) + cells.map((cell) => cell.padStart(16)).join('');
}

/** Compiles in this process, which is profiled. */
async function compiled(options: readonly string[]): Promise<Times> {
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.setSamplingInterval', { interval: INTERVAL });
  await session.post('Profiler.start');
  const words = ['compile', ...options, '--quiet'];
  const output = new Output({ ...outputFlags(words), onProgress: () => undefined });
  const code = await runCommandLine(words, new AbortController().signal, output);
  const { profile } = await session.post('Profiler.stop');
  if (code !== 0) throw new Error(`compile ended with ${code}`);
  return timesOf(profile);
}

function timesOf({ nodes, samples = [], timeDeltas = [] }: Profiler.Profile): Times {
  const callers = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id] as const)));
  const frames = new Map(nodes.map(({ id, callFrame }) => [id, callFrame]));
  const known = new Map<number, string>();
  const stationOf = (id: number | undefined): string => {
    if (id === undefined) return REST;
    const own = frames.get(id)?.url ?? '';
    const station = known.get(id) ?? STATIONS.find(([, files]) => files.test(own))?.[0] ?? stationOf(callers.get(id));
    known.set(id, station);
    return station;
  };
  const times = new Map<string, number>();
  let station = REST;
  for (const [index, id] of samples.entries()) {
    const name = frames.get(id)?.functionName;
    if (name === '(idle)') continue;
    if (name !== '(garbage collector)' && name !== '(program)') station = stationOf(id);
    const milliseconds = Math.min(timeDeltas[index] ?? 0, 2 * INTERVAL) / 1000;
    times.set(station, (times.get(station) ?? 0) + milliseconds);
  }
  return times;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
