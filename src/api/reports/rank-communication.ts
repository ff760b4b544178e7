/**
 * @file Communication of a rank with its peers: for degrees, the traffic of each kind of parallelism; for a compiled program,
 * the communication of its instructions.
 */
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { type Cluster, parseCluster } from '../../cost-model/cluster.js';
import type { Degrees } from '../../cost-model/step/configuration.js';
import { byteLength } from '../../ir/dtype.js';
import { elementCount } from '../../ir/graph.js';
import { insideFolder } from '../../program/inside-folder.js';
import { groupOf, STAGE_AXIS, stageAxes } from '../../program/mesh.js';
import type { Program, ProgramCollective } from '../../program/program.js';
import { stageOfRank } from '../../program/rank-stage.js';
import { namesOn } from '../../sharding-propagation/stage-meshes.js';
import type { Plan } from '../../strategy/plan.js';
import { readPlan } from '../../strategy/plan-json.js';
import { type GroupKind, processGroups, type StageDegrees } from '../groups.js';
import { checkArguments, integerFrom, leftOut, object, text as textKind } from '../options/kinds.js';
import { readCompiled } from '../output/folder.js';
import { clusterSources } from '../requests/cluster-sources.js';

export interface GroupCommunication {
  readonly kind: Exclude<GroupKind, 'mp'>;
  /** The other ranks of the group; for a pipeline, the neighbours. */
  readonly peers: readonly number[];
  readonly what: string;
  /** Whether all of them are on one node; null where the cluster is not known. */
  readonly withinNode: boolean | null;
}

/** Traffic of each kind of parallelism, for any model. */
const TRAFFIC: Readonly<Record<Exclude<GroupKind, 'mp' | 'pp'>, string>> = {
  tp:
    'all-reduce of activations twice per layer, and of their gradients; all-gather and reduce-scatter where the ' +
    'sequence is sharded too',
  sp:
    'ring of keys and values of attention, or all-to-all between heads and sequence; all-reduce of ' +
    'gradients once per step',
  dp: 'all-reduce of gradients once per step; reduce-scatter and all-gather where optimizer state is sharded',
  ep: 'all-to-all of tokens to their experts and back, per expert layer',
};

/**
 * Communication of `rank` with its peers under these degrees. Kinds of degree 1 do not communicate.
 * @param order of the mesh's axes, where it is not the usual one
 * @param ofStages the sizes of each stage's axes, where stages differ
 */
export function groupCommunication(
  degrees: Degrees,
  rank: number,
  cluster?: Cluster,
  order?: readonly string[],
  ofStages: StageDegrees | null = null,
): readonly GroupCommunication[] {
  checkArguments('groupCommunication', { degrees: [degrees, object] });
  const { groups } = processGroups(degrees, order, ofStages);
  const perNode = cluster?.perNode;
  const within = (peers: readonly number[]) =>
    perNode === undefined ? null : peers.every((peer) => Math.floor(peer / perNode) === Math.floor(rank / perNode));
  const collectives = (['tp', 'sp', 'dp', 'ep'] as const).flatMap((kind): readonly GroupCommunication[] => {
    const peers = (groups[kind].find((group) => group.includes(rank)) ?? []).filter((member) => member !== rank);
    return peers.length === 0 ? [] : [{ kind, peers, what: TRAFFIC[kind], withinNode: within(peers) }];
  });
  const stages = groups.pp.find((group) => group.includes(rank)) ?? [];
  const place = stages.indexOf(rank);
  const neighbours = [
    {
      peer: stages[place - 1],
      what: 'receives activations from the previous stage and sends their gradients back, per micro-batch',
    },
    {
      peer: stages[place + 1],
      what: 'sends activations to the next stage and receives their gradients, per micro-batch',
    },
  ].flatMap(({ peer, what }): readonly GroupCommunication[] =>
    peer === undefined ? [] : [{ kind: 'pp', peers: [peer], what, withinNode: within([peer]) }],
  );
  return [...collectives, ...neighbours];
}

/** A cluster's devices; for `groups`, which takes its number of ranks from it. */
export async function clusterDevices(text: string, devices?: number): Promise<Cluster> {
  checkArguments('clusterDevices', { text: [text, textKind], devices: [devices, leftOut(integerFrom(1))] });
  return parseCluster(text, devices, await clusterSources(text));
}

/** Collectives of one kind over the same axes in a compiled program, or transfers with one other stage, as one rank sees them. */
export interface ProgramCommunication {
  readonly collective: ProgramCollective['kind'] | 'send' | 'recv';
  /** The mesh axes; `pp` for transfers. */
  readonly axes: readonly string[];
  /** The ranks of the group, including this one, in the order of their shards, or of the stages. */
  readonly ranks: readonly number[];
  /** Per step. */
  readonly count: number;
  /** Per step, by the bandwidth-optimal algorithms. */
  readonly receivedBytes: number;
}

/**
 * Bytes that a rank receives from n ranks, relative to its shard, by the bandwidth-optimal algorithms. In a reduce only the
 * first rank receives, and in a broadcast all others do.
 */
const RECEIVED: Readonly<Record<ProgramCollective['kind'], (ranks: number, isFirst: boolean) => number>> = {
  'all-reduce': (ranks) => (2 * (ranks - 1)) / ranks,
  'all-gather': (ranks) => ranks - 1,
  'reduce-scatter': (ranks) => (ranks - 1) / ranks,
  'all-to-all': (ranks) => (ranks - 1) / ranks,
  permute: () => 1,
  reduce: (ranks, isFirst) => (isFirst ? ranks - 1 : 0),
  broadcast: (_, isFirst) => (isFirst ? 0 : 1),
};

/** A plan's degrees, and the communication of its program; null where there is only the plan. */
export interface FolderCommunication {
  readonly degrees: Degrees;
  /** Axes of the mesh, outermost first. */
  readonly order: readonly string[];
  /** The sizes of each stage's axes, where stages differ. */
  readonly stages: StageDegrees | null;
  readonly program: readonly ProgramCommunication[] | null;
}

/**
 * Communication of `rank` in one step of a compiled plan.
 * @param file the folder, or its plan.json alone
 * @throws AutoparError (input) where there is no plan, or the program beside it belongs to another plan
 */
export async function compiledCommunication(file: string, rank: number): Promise<FolderCommunication> {
  checkArguments('compiledCommunication', { file: [file, textKind], rank: [rank, integerFrom(0)] });
  const isFolder = (await stat(file).catch(() => null))?.isDirectory() ?? false;
  const plan = await readPlan(isFolder ? await insideFolder(file, 'plan.json') : file);
  const hasProgram = isFolder && (await stat(path.join(file, 'program')).catch(() => null)) !== null;
  const { program = null } = hasProgram ? await readCompiled(file) : {};
  return {
    degrees: plan.degrees,
    order: plan.mesh.map(({ axis }) => axis),
    stages: plan.meshes?.map(sizesIn) ?? null,
    program: program && communicationOfProgram(program, rank),
  };
}

function sizesIn(axes: Plan['mesh']): StageDegrees[number] {
  return { dp: 1, sp: 1, tp: 1, ep: 1, ...Object.fromEntries(axes.map(({ axis, size }) => [axis, size])) };
}

function communicationOfProgram(program: Program, rank: number): readonly ProgramCommunication[] {
  const axes = stageAxes(program.mesh, program.stages.length);
  const perStage = axes.reduce((product, { size }) => product * size, 1);
  const outermost = program.mesh[0]?.axis === STAGE_AXIS || program.stages.length === 1;
  if (!outermost) throw new Error('pipeline stages are not the outermost axis');
  const number = Math.floor(rank / perStage);
  const whole = program.stages[number];
  const stage = whole && stageOfRank(whole, axes, rank % perStage);
  const ownAxes = (stage?.mesh ?? []).map(({ axis, ...sizes }) => ({ name: axis, ...sizes }));
  const bytesOf = (name: string) => {
    const tensor = stage?.tensors[name];
    return tensor ? byteLength(tensor.dtype, elementCount(tensor.localShape)) : 0;
  };
  const found = new Map<string, ProgramCommunication>();
  const add = (key: string, times: number, { receivedBytes, ...entry }: Omit<ProgramCommunication, 'count'>) => {
    const before = found.get(key) ?? { count: 0, receivedBytes: 0 };
    found.set(key, {
      ...entry,
      count: before.count + times,
      receivedBytes: before.receivedBytes + times * receivedBytes,
    });
  };
  for (const [phase, times] of runsOfPhases(program, number)) {
    for (const instruction of stage?.phases[phase] ?? []) {
      if (instruction.kind === 'start') {
        const { collective, axes: names, input, last } = instruction;
        const ranks = groupOf(axes, names, rank % perStage).map((member) => member + number * perStage);
        const receivedBytes = bytesOf(input) * RECEIVED[collective.kind](ranks.length, rank === ranks[0]);
        const own = namesOn({ axes: ownAxes }, names);
        add(`${collective.kind} ${names.join()}`, last ? 1 : times, {
          ...{ collective: collective.kind, axes: own, ranks, receivedBytes },
        });
      } else if (instruction.kind === 'send' || instruction.kind === 'recv') {
        const { kind, stage: other, tensor } = instruction;
        const ranks = [rank, rank + (other - number) * perStage].sort((a, b) => a - b);
        const receivedBytes = kind === 'recv' ? bytesOf(tensor) : 0;
        add(`${kind} ${other}`, times, { collective: kind, axes: [STAGE_AXIS], ranks, receivedBytes });
      }
    }
  }
  return [...found.values()];
}

/** How often a step runs each phase of a stage. */
function runsOfPhases({ schedule }: Program, stage: number): ReadonlyMap<string, number> {
  const runs = new Map<string, number>();
  for (const action of schedule) if (action.stage === stage) runs.set(action.phase, (runs.get(action.phase) ?? 0) + 1);
  return runs;
}
