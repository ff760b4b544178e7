/**
 * @file What a rank exchanges with whom: for degrees what each kind of parallelism sends, for a compiled program what its
 * instructions do.
 */
import { type Cluster, parseCluster } from '../cost-model/cluster.js';
import { byteLength } from '../ir/dtype.js';
import { elementCount } from '../ir/graph.js';
import { groupOf, STAGE_AXIS, stageAxes } from '../program/mesh.js';
import type { Program, ProgramCollective } from '../program/program.js';
import { clusterSources } from './cluster-sources.js';
import { readCompiled } from './folder.js';
import { type Degrees, type GroupKind, processGroups } from './groups.js';

export interface Exchange {
  readonly kind: Exclude<GroupKind, 'mp'>;
  /** The other ranks of the group; of a pipeline the neighbours. */
  readonly peers: readonly number[];
  readonly what: string;
  /** Whether all of them are on one node; null where the cluster is not known. */
  readonly withinNode: boolean | null;
}

/** What each kind sends, whatever the model. */
const TRAFFIC: Readonly<Record<Exclude<GroupKind, 'mp' | 'pp'>, string>> = {
  tp:
    'all-reduce of activations twice per layer, and of their gradients; all-gather and reduce-scatter where the ' +
    'sequence is sharded too',
  sp:
    'keys and values of attention round the ring, or all-to-all of heads against sequence; all-reduce of ' +
    'gradients once per step',
  dp: 'all-reduce of gradients once per step; reduce-scatter and all-gather where optimizer state is sharded',
  ep: 'all-to-all of tokens to their experts and back, per expert layer',
};

/** What `rank` exchanges with whom under these degrees. Kinds of degree 1 exchange nothing. */
export function exchangesOf(degrees: Degrees, rank: number, cluster?: Cluster): readonly Exchange[] {
  const { groups } = processGroups(degrees);
  const perNode = cluster?.perNode;
  const within = (peers: readonly number[]) =>
    perNode === undefined ? null : peers.every((peer) => Math.floor(peer / perNode) === Math.floor(rank / perNode));
  const collectives = (['tp', 'sp', 'dp', 'ep'] as const).flatMap((kind): readonly Exchange[] => {
    const peers = (groups[kind].find((group) => group.includes(rank)) ?? []).filter((member) => member !== rank);
    return peers.length === 0 ? [] : [{ kind, peers, what: TRAFFIC[kind], withinNode: within(peers) }];
  });
  const stages = groups.pp.find((group) => group.includes(rank)) ?? [];
  const place = stages.indexOf(rank);
  const neighbours = [
    {
      peer: stages[place - 1],
      what: 'receives activations from the stage before and sends it their gradients, per micro-batch',
    },
    {
      peer: stages[place + 1],
      what: 'sends activations to the stage behind and receives their gradients, per micro-batch',
    },
  ].flatMap(({ peer, what }): readonly Exchange[] =>
    peer === undefined ? [] : [{ kind: 'pp', peers: [peer], what, withinNode: within([peer]) }],
  );
  return [...collectives, ...neighbours];
}

/** A cluster's devices; for `groups`, which takes its number of ranks from it. */
export async function clusterDevices(text: string, devices?: number): Promise<Cluster> {
  return parseCluster(text, devices, await clusterSources(text));
}

/** Collectives of one kind over the same axes in a compiled program, as one rank sees them. */
export interface ProgramExchange {
  readonly collective: ProgramCollective['kind'] | 'send' | 'recv';
  readonly axes: readonly string[];
  /** The ranks of the group, in the order of their shards; this one among them. */
  readonly ranks: readonly number[];
  /** Per step. */
  readonly count: number;
  /** Per step, by the bandwidth-optimal algorithms. */
  readonly receivedBytes: number;
}

export interface ProgramExchanges {
  readonly mesh: Readonly<Record<string, number>>;
  readonly exchanges: readonly ProgramExchange[];
}

/** Share of its block that a rank receives from n ranks, by the bandwidth-optimal algorithms. */
const RECEIVED: Readonly<Record<ProgramCollective['kind'], (ranks: number) => number>> = {
  'all-reduce': (ranks) => (2 * (ranks - 1)) / ranks,
  'all-gather': (ranks) => ranks - 1,
  'reduce-scatter': (ranks) => (ranks - 1) / ranks,
  'all-to-all': (ranks) => (ranks - 1) / ranks,
  permute: () => 1,
  broadcast: () => 1,
};

/** What `rank` exchanges in one step of the program in `folder`. @throws AutoparError (input) where there is none */
export async function programExchanges(folder: string, rank: number): Promise<ProgramExchanges> {
  const { program } = await readCompiled(folder);
  return {
    mesh: Object.fromEntries(program.mesh.map(({ axis, size }) => [axis, size])),
    exchanges: exchangesOfProgram(program, rank),
  };
}

function exchangesOfProgram(program: Program, rank: number): readonly ProgramExchange[] {
  const axes = stageAxes(program.mesh, program.stages.length);
  const perStage = axes.reduce((product, { size }) => product * size, 1);
  const outermost = program.mesh[0]?.axis === STAGE_AXIS || program.stages.length === 1;
  if (!outermost) throw new Error('pipeline stages are not the outermost axis');
  const number = Math.floor(rank / perStage);
  const stage = program.stages[number];
  const found = new Map<string, ProgramExchange>();
  for (const instruction of Object.values(stage?.phases ?? {}).flat()) {
    if (instruction.kind !== 'start') continue;
    const { collective, axes: names, input } = instruction;
    const ranks = groupOf(axes, names, rank % perStage).map((member) => member + number * perStage);
    const tensor = stage?.tensors[input];
    const block = tensor ? byteLength(tensor.dtype, elementCount(tensor.localShape)) : 0;
    const receivedBytes = block * RECEIVED[collective.kind](ranks.length);
    const key = `${collective.kind} ${names.join()}`;
    const before = found.get(key);
    found.set(key, {
      collective: collective.kind,
      axes: names,
      ranks,
      count: (before?.count ?? 0) + 1,
      receivedBytes: (before?.receivedBytes ?? 0) + receivedBytes,
    });
  }
  return [...found.values()];
}
