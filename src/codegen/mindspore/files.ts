/**
 * @file The MindSpore target: strategies as MindSpore's checkpoints, tables of ranks, and the configuration that uses them.
 */
import type { Graph } from '../../ir/graph.js';
import { stableJson } from '../../program/atomic.js';
import { coordinatesOf, deviceCount, type Mesh } from '../../sharding-propagation/mesh.js';
import { mindSporeStrategy } from '../../strategy/mindspore/export.js';
import { strategyToJson } from '../../strategy/mindspore/json.js';
import { encodeStrategy } from '../../strategy/mindspore/schema.js';
import type { PlacedPlan } from '../../strategy/placed-operators.js';
import type { Plan, PlanCluster } from '../../strategy/plan.js';
import { mindFormersConfig } from '../../strategy/trainers/mindformers.js';

/** Files by name, and the decisions that they cannot express, a line each. */
export interface MindSporeFiles {
  readonly files: Readonly<Record<string, string | Uint8Array>>;
  readonly lost: readonly string[];
}

const STRATEGY = 'strategy.ckpt';

/** The files of a plan on its graph (strategy/placed-operators.ts). */
export function mindSporeFiles(plan: Plan, model: Graph, placed: PlacedPlan): MindSporeFiles {
  const whole = mindSporeStrategy(model, placed);
  const json = strategyToJson(whole.document);
  const stages = placed.stages === 1 ? [] : Array.from({ length: placed.stages }, (_, stage) => stage);
  const config = mindFormersConfig(plan, placed, `./${STRATEGY}`);
  const mesh = placed.meshes?.[0] ?? placed.assignment.mesh;
  const perStage = deviceCount(mesh);
  const ranks = perStage * placed.stages;
  const lost = [
    ...whole.notes,
    ...json.leftOut.map((name) => `parameter ${name} has two axes on one dimension; ${JSON_FORM} omits it`),
    ...config.lost,
  ];
  const files = {
    [STRATEGY]: encodeStrategy(whole.document),
    [JSON_FORM]: json.text,
    ...Object.fromEntries(
      stages.map((stage) => [stageFile(stage), encodeStrategy(mindSporeStrategy(model, placed, stage).document)]),
    ),
    'parallel.yaml': config.text,
    [rankTable(ranks)]: stableJson(hcclTable(plan.cluster, ranks)),
    'ranks.csv': ranksText(plan.cluster, placed, perStage),
  };
  return { files: { ...files, 'README.md': readme(plan, placed.stages, ranks, lost) }, lost };
}

const JSON_FORM = 'strategy.json';

/** As MindSpore's own stages write theirs. */
function stageFile(stage: number): string {
  return `strategy_stage_${stage}.ckpt`;
}

function rankTable(ranks: number): string {
  return `rank_table_${ranks}pcs.json`;
}

function placeOf({ perNode }: PlanCluster, rank: number): { readonly server: number; readonly device: number } {
  return { server: Math.floor(rank / perNode), device: rank % perNode };
}

/** HCCL's table: which device of which server has which rank. Addresses are the site's, and left to fill in. */
function hcclTable(cluster: PlanCluster, ranks: number): object {
  const servers = new Map<number, object[]>();
  for (let rank = 0; rank < ranks; rank++) {
    const { server, device } = placeOf(cluster, rank);
    const own = servers.get(server) ?? [];
    own.push({ device_id: `${device}`, device_ip: `SERVER_${server}_DEVICE_${device}`, rank_id: `${rank}` });
    servers.set(server, own);
  }
  return {
    version: '1.0',
    server_count: `${servers.size}`,
    server_list: [...servers].map(([server, device]) => ({
      server_id: `SERVER_${server}`,
      device,
      host_nic_ip: 'reserve',
    })),
    status: 'completed',
  };
}

/** A row per rank: its device, its stage and its place on the axes of the stage's mesh. */
function ranksText(cluster: PlanCluster, { meshes, assignment, stages }: PlacedPlan, perStage: number): string {
  const axes = (meshes?.[0] ?? assignment.mesh).axes.filter(({ size }) => size > 1);
  const rows = Array.from({ length: stages * perStage }, (_, rank) => {
    const { server, device } = placeOf(cluster, rank);
    const stage = Math.floor(rank / perStage);
    const places = placesOn(meshes?.[stage] ?? assignment.mesh, rank % perStage);
    return [rank, server, device, stage, ...(meshes ? [places] : axes.map(({ name }) => places.get(name) ?? 0))];
  });
  const names = meshes ? ['place'] : axes.map(({ name }) => name);
  const cell = (value: number | ReadonlyMap<string, number>) =>
    typeof value === 'number' ? value : [...value].map(([axis, place]) => `${axis} ${place}`).join(' ');
  return [['rank', 'server', 'device', 'stage', ...names], ...rows.map((row) => row.map(cell))]
    .map((row) => `${row.join(',')}\n`)
    .join('');
}

/** The place of a rank on each axis: the mixed-radix number of its places on the sub-axes. */
function placesOn(mesh: Mesh, rank: number): ReadonlyMap<string, number> {
  const coordinates = coordinatesOf(mesh, rank);
  return new Map(
    mesh.axes.map(({ name, subAxes }) => [
      name,
      subAxes.reduce((place, sub) => place * sub.size + (coordinates.get(sub.name) ?? 0), 0),
    ]),
  );
}

function readme({ model, degrees }: Plan, stages: number, ranks: number, lost: readonly string[]): string {
  const mesh = Object.entries(degrees)
    .map(([axis, size]) => `${axis} ${size}`)
    .join(' · ');
  const name = model.name.replace(/[\n\r]+/g, ' ');
  const perStage =
    stages > 1 ? `| ${stageFile(0)} … | the same of each stage, as MindSpore's stages write their own |\n` : '';
  return `# ${name} on ${ranks} ${ranks === 1 ? 'rank' : 'ranks'} (${mesh})

| file | holds |
|---|---|
| ${STRATEGY} | how each operator and parameter is split, of all stages |
| ${JSON_FORM} | the same, with shapes, results and layouts of operands |
${perStage}| parallel.yaml | sections for a MindFormers configuration: degrees, stages, schedule, ZeRO level, recompute |
| ${rankTable(ranks)} | HCCL's rank table |
| ranks.csv | server, device, stage and place on the mesh of each rank |

## Use

The network is yours, in MindSpore, with the parameter names of the ONNX model. MindFormers: put the sections of parallel.yaml
into its configuration, and start it where ${STRATEGY} is. Without MindFormers:

    from mindspore.parallel.auto_parallel import AutoParallel

    network = AutoParallel(network, parallel_mode="semi_auto")
    network.load_param_strategy_file("${STRATEGY}")
${stages > 1 ? `    network.pipeline(stages=${stages})\n` : ''}
Start with \`msrun --worker_num=${ranks} …\`, which needs no table; or replace SERVER_n and SERVER_n_DEVICE_m in
${rankTable(ranks)} by the addresses of your servers and devices (\`hccn_tool -i DEVICE -ip -g\`), and set RANK_TABLE_FILE
to it and RANK_ID to each process's rank. MindSpore numbers ranks as the plan does: the ranks of a stage follow one another,
and a neighbour on the last axis is the next rank.

## Not transferred

- the program and its weights; the collectives that were priced: MindSpore inserts its own
- micro-batches' order, predicted times and memory
${lost.map((line) => `- ${line}\n`).join('')}`;
}
