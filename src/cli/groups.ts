/**
 * @file `autopar groups`: process groups for given degrees, and the communication of a rank with each group.
 */

import type {
  DegreeOptions,
  Degrees,
  ExitKind,
  GroupCommunication,
  GroupKind,
  ProgramCommunication,
} from '../api/index.js';
import { AXIS_ORDER, checkDegrees, listedDegrees, PARALLEL_AXES, usageError, withoutUndefined } from '../api/words.js';
import { nodesText } from './cluster-text.js';
import type { Command, CommandContext } from './command.js';
import { degreeOptions } from './degrees.js';
import { stageMeshesText } from './mesh-report.js';
import type { Output } from './output.js';
import { bytesText, countText } from './quantity.js';
import { numberColumns, tableLines, textColumns } from './table.js';
import { integerParser } from './values.js';

interface GroupsFlags extends DegreeOptions {
  readonly cluster?: string;
  readonly rank?: number;
}

const TITLES: Readonly<Record<GroupKind, string>> = {
  tp: 'tensor parallel',
  sp: 'sequence parallel',
  dp: 'data parallel',
  ep: 'expert parallel',
  pp: 'pipeline',
  mp: 'one copy of the model',
};

export const groupsCommand: Command<GroupsFlags> = {
  name: 'groups',
  says: 'list the process groups of degrees or a compiled program',
  arguments: [{ name: '[dir]', says: 'folder that compile wrote, or a plan.json: degrees and communication' }],
  options: [
    {
      flags: '--devices <n>',
      says: 'number of devices; dp fills the rest',
      parse: integerParser(1),
    },
    {
      flags: '--cluster <spec>',
      says: 'NxM:ID or a file: shows which groups cross nodes',
    },
    ...degreeOptions(),
    {
      flags: '--rank <r>',
      says: 'groups, mesh place and communication of this rank only',
      parse: integerParser(0),
    },
  ],
  examples: [
    { line: 'autopar groups --cluster 2x8:a100-sxm-80 --pp 4 --dp 2 --tp 2', says: '16 devices on two nodes of eight' },
    { line: 'autopar groups --devices 16 --tp 4 --rank 5', says: 'the peers of rank 5 and its collectives' },
  ],
  run: runGroups,
};

async function runGroups(
  context: CommandContext,
  [directory]: readonly string[],
  flags: GroupsFlags,
): Promise<ExitKind> {
  const { output } = context;
  if (directory !== undefined) refuseDegrees(flags);
  const { clusterDevices, compiledCommunication, groupCommunication, placeOf, processGroups } = await import(
    '../api/index.js'
  );
  const { rank } = flags;
  const cluster = flags.cluster === undefined ? undefined : await clusterDevices(flags.cluster, flags.devices);
  const compiled = directory === undefined ? undefined : await compiledCommunication(directory, rank ?? 0);
  const program = compiled?.program;
  const degrees = compiled
    ? compiled.degrees
    : degreesOf(cluster ? { ...flags, devices: cluster.nodes * cluster.perNode } : flags);
  const stages = compiled?.stages ?? null;
  const place = rank === undefined ? undefined : placeOf(degrees, rank, compiled?.order, stages);
  const { devices, groups } = processGroups(degrees, compiled?.order, stages);
  const shown = Object.fromEntries(
    Object.entries(groups).map(([kind, lists]) => [
      kind,
      rank === undefined ? lists : lists.filter((list) => list.includes(rank)),
    ]),
  );
  const communication = rank === undefined ? [] : groupCommunication(degrees, rank, cluster, compiled?.order, stages);
  const written = stages
    ? stageMeshesText(stages.map((sizes) => Object.entries(sizes).map(([axis, size]) => ({ axis, size }))))
    : listedDegrees(degrees, AXIS_ORDER);
  const on = cluster ? ` on ${nodesText(cluster)}` : '';
  output.print(`${countText(devices, 'device')}${on}: ${written}`);
  if (place) {
    const axes = Object.entries(place).map(([axis, index]) => `${axis} ${index}`);
    const node = cluster && rank !== undefined ? `, node ${Math.floor(rank / cluster.perNode)}` : '';
    output.print(`rank ${rank}: ${axes.join(' · ')}${node}`);
  }
  for (const [kind, title] of Object.entries(TITLES)) {
    output.print(
      `  ${kind}  ${title.padEnd(22)} ${(shown[kind] ?? []).map((list) => `[${list.join(' ')}]`).join(' ')}`,
    );
  }
  if (rank !== undefined) {
    const lines = program ? programLines(program, output) : groupLines(communication, output);
    for (const line of lines) output.print(line);
  }
  output.data({
    schema: 'autopar-groups-v1',
    devices,
    degrees,
    ...(stages ? { stages } : {}),
    ...(place ? { rank, place } : {}),
    groups: shown,
    // `exchanges` is the older name.
    ...(rank === undefined ? {} : { communication: program ?? communication, exchanges: program ?? communication }),
  });
  return 'done';
}

function groupLines(communication: readonly GroupCommunication[], output: Output): readonly string[] {
  if (communication.length === 0) return ['', 'no communication: the rank is alone on every axis'];
  return [
    '',
    output.colors.bold('communication'),
    ...communication.map(({ kind, peers, what, withinNode }) => {
      const where = withinNode === null ? '' : withinNode ? ' (inside the node)' : ' (across nodes)';
      return `  ${kind}  with ${peers.join(' ')}${where}: ${what}`;
    }),
  ];
}

function programLines(communication: readonly ProgramCommunication[], output: Output): readonly string[] {
  if (communication.length === 0) return ['', 'its program does not communicate'];
  return [
    '',
    output.colors.bold('communication per step'),
    ...tableLines(
      [...textColumns('collective', 'over', 'ranks'), ...numberColumns('times', 'received')],
      communication.map(({ collective, axes, ranks, count, receivedBytes }) => [
        collective,
        axes.join(','),
        ranks.join(' '),
        String(count),
        bytesText(receivedBytes),
      ]),
    ),
  ];
}

/** A compiled program has its degrees. */
function refuseDegrees(flags: GroupsFlags): void {
  const given = (['devices', ...PARALLEL_AXES] as const).find((name) => flags[name] !== undefined);
  if (given === undefined) return;
  throw usageError(
    'bad-usage',
    `--${given} and a compiled folder both state the degrees`,
    `leave out --${given}, or the folder`,
  );
}

/** The default of dp is the number of devices divided by the other degrees. */
function degreesOf(flags: GroupsFlags): Degrees {
  const { devices, pp = 1, sp = 1, tp = 1, ep = 1 } = flags;
  const others = pp * sp * tp;
  const dp = flags.dp ?? (devices !== undefined && devices % others === 0 ? devices / others : 1);
  checkDegrees({ ...withoutUndefined({ devices }), pp, dp, sp, tp }, AXIS_ORDER);
  return { pp, dp, sp, tp, ep };
}
