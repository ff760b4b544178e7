/**
 * @file `autopar profile`: measure this machine for `--cluster local`.
 */

import type { ExitKind } from '../api/index.js';
import { profile } from '../api/verbs.js';
import type { Command, CommandContext } from './command.js';
import { bytesText, flopsText, secondsText, shareText } from './quantity.js';
import { numberColumns, tableLines, textColumns } from './table.js';

interface ProfileFlags {
  readonly output?: string;
  readonly quick?: boolean;
}

export const profileCommand: Command<ProfileFlags> = {
  name: 'profile',
  says: 'measure this machine, for --cluster local',
  arguments: [],
  options: [
    { flags: '-o, --output <file>', says: "file to write (default: in the user's cache folder)" },
    { flags: '--quick', says: 'measure for ten seconds instead of two minutes, less exactly' },
  ],
  examples: [
    { line: 'autopar profile --quick', says: 'predict this machine with --cluster local' },
    { line: 'autopar profile --quick -o profile.json', says: 'write a profile for --cluster profile.json' },
  ],
  run: runProfile,
};

async function runProfile(
  { output, signal }: CommandContext,
  _values: readonly string[],
  flags: ProfileFlags,
): Promise<ExitKind> {
  const made = await profile({
    ...flags,
    signal,
    onProgress: ({ done, of, next }) => {
      const what =
        next.subject.kind === 'collective' ? `${next.subject.collective} over ${next.ranks} ranks` : next.subject.kind;
      output.progress(`measuring ${done + 1} of ${of}: ${what}`);
    },
  });
  for (const line of profileLines(made)) output.print(line);
  output.data({ schema: 'autopar-profile-v1', file: made.file, ...made.profile });
  return 'done';
}

type MeasuredProfile = Awaited<ReturnType<typeof profile>>;

function profileLines({
  file,
  profile: { machine, cluster, alone, crowded, errors },
}: MeasuredProfile): readonly string[] {
  const { device } = cluster;
  if (typeof device === 'string') throw new Error('a profile describes its device');
  const { launchSeconds, segmentSeconds, collectiveSeconds, halfDepth } = device.constants ?? {};
  const { packingBandwidth = Infinity, resultBandwidth } = device.constants ?? {};
  const memory = (device.constants?.['memory'] ?? {}) as { readonly cacheBytes?: number; readonly cacheGain?: number };
  const { latency = 0, busBandwidth = {} } = cluster.levels[0] ?? {};
  const rate = (value: unknown) => `${bytesText(Number(value))}/s`;
  const rows: readonly (readonly string[])[] = [
    ['fp32 matmul of one rank', `${flopsText(Number(device.peak?.['fp32']))}/s`],
    ['with the machine to itself', `${alone.compute.toPrecision(3)} ×`],
    ['its memory then', `${alone.memory.toPrecision(3)} ×`],
    ['half of that at depth', String(Math.round(Number(halfDepth)))],
    ['packing of an operand that is not a weight', rate(packingBandwidth)],
    ['memory of one rank', rate(device.memoryBandwidth)],
    [`up to ${bytesText(memory.cacheBytes ?? 0)}`, `${(memory.cacheGain ?? 1).toPrecision(2)} × that`],
    ['handing on of results', rate(resultBandwidth)],
    ['operator', secondsText(Number(launchSeconds))],
    ['segment of operators', secondsText(Number(segmentSeconds))],
    ['collective', secondsText(Number(collectiveSeconds))],
    ['round of a collective', secondsText(Number(latency))],
    ...Object.entries(busBandwidth).map(([kind, value]) => [kind, rate(value)] as const),
    [`with ${crowded.ranks} ranks that share the cores`, `${shareText(crowded.speed)} of a share`],
    ['memory of these', `${shareText(crowded.memorySpeed)} of a share`],
    ['collective of these', secondsText(crowded.collectiveSeconds)],
    ['round of these', secondsText(crowded.latency)],
    ['all-reduce of these', rate(crowded.busBandwidth['all-reduce'])],
  ];
  return [
    `${machine.processor}, ${machine.cores} cores`,
    ...tableLines([...textColumns('measured'), ...numberColumns('')], rows),
    `fitted within ${shareText(errors.matmul)} of matmuls, ${shareText(errors.memory)} of memory, ` +
      `${shareText(errors.collectives)} of collectives`,
    `written to ${file}`,
  ];
}
