/**
 * @file `autopar groups`: process groups for given degrees.
 */
import type { Degrees, GroupKind } from '../api/groups.js';
import type { ExitKind } from '../ir/error.js';
import type { Command, Context } from './command.js';
import { checkDegrees, type DegreeOptions, degreeOptions } from './degrees.js';
import { countText } from './quantity.js';
import { wholeNumber } from './values.js';

interface GroupsFlags extends DegreeOptions {
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
  says: 'list which ranks communicate with which, for given degrees',
  arguments: [],
  options: [
    {
      flags: '--devices <n>',
      says: 'number of devices; dp takes what the other degrees leave',
      parse: wholeNumber('--devices', 1),
    },
    ...degreeOptions(),
    {
      flags: '--rank <r>',
      says: 'only the groups of this rank, and its place in the mesh',
      parse: wholeNumber('--rank', 0),
    },
  ],
  examples: [
    { line: 'autopar groups --pp 4 --dp 2 --tp 2', says: '16 devices on two nodes of eight' },
    { line: 'autopar groups --devices 16 --tp 4 --rank 5', says: 'with whom rank 5 communicates' },
  ],
  run: runGroups,
};

async function runGroups(context: Context, _values: readonly string[], flags: GroupsFlags): Promise<ExitKind> {
  const { output } = context;
  const { placeOf, processGroups } = await import('../api/groups.js');
  const degrees = degreesOf(flags);
  const { rank } = flags;
  const place = rank === undefined ? undefined : placeOf(degrees, rank);
  const { devices, groups } = processGroups(degrees);
  const shown = Object.fromEntries(
    Object.entries(groups).map(([kind, lists]) => [
      kind,
      rank === undefined ? lists : lists.filter((list) => list.includes(rank)),
    ]),
  );
  const written = (['pp', 'dp', 'sp', 'tp'] as const).map((axis) => `${axis} ${degrees[axis]}`).join(' · ');
  output.print(`${countText(devices, 'device')}: ${written}${degrees.ep > 1 ? `, ep ${degrees.ep}` : ''}`);
  if (place)
    output.print(
      `rank ${rank}: ${Object.entries(place)
        .map(([axis, index]) => `${axis} ${index}`)
        .join(' · ')}`,
    );
  for (const [kind, title] of Object.entries(TITLES)) {
    output.print(
      `  ${kind}  ${title.padEnd(22)} ${(shown[kind] ?? []).map((list) => `[${list.join(' ')}]`).join(' ')}`,
    );
  }
  output.data({ schema: 'autopar-groups-v1', devices, degrees, ...(place ? { rank, place } : {}), groups: shown });
  return 'done';
}

/** dp is what the other degrees leave of the devices, where it is not given. */
function degreesOf(flags: GroupsFlags): Degrees {
  const { devices, pp = 1, sp = 1, tp = 1, ep = 1 } = flags;
  const others = pp * sp * tp;
  const axes = ['pp', 'dp', 'sp', 'tp'] as const;
  const dp = flags.dp ?? (devices !== undefined && devices % others === 0 ? devices / others : 1);
  checkDegrees({ ...(devices === undefined ? {} : { devices }), pp, dp, sp, tp }, axes);
  return { pp, dp, sp, tp, ep };
}
