/**
 * @file A simulation as tables for people and as one object for programs.
 */
import type { ScheduleKind, Simulation } from '../api/index.js';
import { devicesText, kindsJson } from './cluster-text.js';
import { stageLayoutText } from './degrees.js';
import type { Output } from './output.js';
import { PART_NAMES, partText } from './part-text.js';
import { bytesText, countText, flopsText, portionText, secondsText, throughputText } from './quantity.js';
import { numberColumns, tableLines, textColumns } from './table.js';
import { writtenModelJson } from './write-model.js';

export function simulationLines(simulation: Simulation, { colors }: Output): readonly string[] {
  const { configuration, cluster, stepSeconds } = simulation;
  const { dp, tp, pp, sp, ep } = configuration.degrees;
  const kind = configuration.inference ? 'inference' : 'training';
  const parts: Readonly<Record<string, number>> = { ...simulation.parts };
  const bytes: Readonly<Record<string, number>> = simulation.bytes;
  const hidden: Readonly<Record<string, number>> = simulation.hidden;
  return [
    colors.bold(`${simulation.name}, ${kind} on ${devicesText(cluster)}`),
    '',
    `  degrees    dp ${dp} · tp ${tp} · pp ${pp} · sp ${sp}${ep > 1 ? ` · ep ${ep}` : ''}; batch ` +
      `${configuration.globalBatch} in ${countText(simulation.microBatches, 'micro-batch', 'micro-batches')} of ` +
      `${configuration.microBatch}`,
    ...stageLines(simulation),
    `  step       ${secondsText(stepSeconds)} in ${configuration.precision} (${simulation.priceLevel}), ` +
      `${throughputText(simulation)}`,
    `  work       ${flopsText(simulation.modelFlops)}, ${portionText(simulation.utilisation)} of the ` +
      `${simulation.cluster.local ? 'fp32' : '16-bit'} peak`,
    '',
    ...tableLines(
      [...textColumns('part of the step'), ...numberColumns('time', 'share', 'hidden', 'sent per rank')],
      PART_NAMES.filter((part) => (parts[part] ?? 0) > 0 || (hidden[part] ?? 0) > 0).map((part) => [
        partText(part),
        secondsText(parts[part] ?? 0),
        portionText((parts[part] ?? 0) / stepSeconds),
        hidden[part] ? secondsText(hidden[part]) : '',
        bytes[part] ? bytesText(bytes[part]) : '',
      ]),
    ),
    '',
    ...memoryTable(simulation),
    '',
    ...largestLines(simulation),
    ...fitLines(simulation),
    ...hostLines(simulation),
  ];
}

/** The layers of each stage; where devices differ and the layers are spread evenly, that compile may cut them unevenly. */
function stageLines({ stageLayout, configuration, cluster }: Simulation): readonly string[] {
  if (stageLayout === null) return [];
  const isUneven = configuration.stageLayers !== undefined || (cluster.kinds?.length ?? 1) === 1;
  const hint = isUneven ? '' : ' (even; compile may cut otherwise for these devices: --stages)';
  return [`  stages     ${stageLayoutText(stageLayout)}${hint}`];
}

/** Memory of each stage, by kind; one more column where hosts hold something. */
function memoryTable({ stages, host }: Pick<Simulation, 'stages' | 'host'>): readonly string[] {
  const kinds = ['parameters', 'gradients', 'optimizer', 'activations', 'temporaries', 'overhead', 'total'] as const;
  const shown = [...kinds, ...(host ? (['host'] as const) : [])];
  return tableLines(
    [...textColumns('stage'), ...numberColumns(...shown.map((kind) => (kind === 'host' ? 'on the host' : kind)))],
    shownStages(stages).map((stage) => [`${stage.stage}`, ...shown.map((kind) => bytesText(stage[kind]))]),
  );
}

type SettingsShown = Pick<
  Simulation['configuration'],
  | 'degrees'
  | 'schedule'
  | 'virtualStages'
  | 'zero'
  | 'tpSequence'
  | 'offload'
  | 'inference'
  | 'recompute'
  | 'recomputedLayers'
>;

/** The settings of a configuration besides degrees and batches. */
export function configurationText(configuration: SettingsShown): string {
  const { degrees, schedule, virtualStages, zero, tpSequence, offload = 'none', inference } = configuration;
  const kind = schedule ?? (virtualStages > 1 ? 'interleaved-1f1b' : '1f1b');
  const interleaved = INTERLEAVED[kind];
  const order = inference ? 'forwards alone' : kind;
  const pipeline = interleaved ? `${interleaved} in ${virtualStages} chunks` : order;
  const has = [
    ...(degrees.pp > 1 ? [pipeline] : []),
    ...(zero > 0 ? [`ZeRO ${zero}`] : []),
    // Inference keeps nothing that it could recompute.
    ...(inference ? [] : [recomputedText(configuration)]),
    ...(tpSequence ? ['sequence parallelism over tp'] : degrees.tp > 1 ? ['norms replicated over tp'] : []),
    ...(offload === 'none' ? [] : [`${OFFLOADED[offload]} on the host`]),
  ];
  return has.join(', ') || 'one stage';
}

const INTERLEAVED: Readonly<Partial<Record<ScheduleKind, string>>> = {
  'interleaved-1f1b': 'interleaved 1F1B',
  'interleaved-zero-bubble': 'interleaved zero-bubble',
};

const OFFLOADED = { optimizer: 'optimizer', activations: 'activations', all: 'optimizer and activations' } as const;

function recomputedText({ recompute, recomputedLayers }: SettingsShown): string {
  if (recompute === 'none') return 'nothing recomputed';
  if (!recomputedLayers) return `${recompute} recomputation`;
  const [least, most] = [Math.min(...recomputedLayers), Math.max(...recomputedLayers)];
  return `${recompute} recomputation of ${least === most ? countText(most, 'layer') : `${least} to ${most} layers`} a stage`;
}

/** The tensors by name that take most at the peak of the fullest stage. */
function largestLines({ largest, tightestStage, stages, configuration }: Simulation): readonly string[] {
  if (largest.length === 0) return [];
  const total = stages[tightestStage]?.total ?? 1;
  const columns = [
    { title: `largest on stage ${tightestStage}` },
    ...textColumns('kind'),
    ...numberColumns('layers', 'micro-batches', 'bytes', 'share'),
  ];
  const parameter = configuration.inference ? 'parameter' : 'parameter and state';
  const rows = largest.map(({ tensor, kind, layers, microBatches, bytes }) => [
    ...[tensor, kind === 'parameter' ? parameter : kind, `${layers}`],
    ...[
      kind !== 'activation' ? '' : String(Number(microBatches.toPrecision(3))),
      bytesText(bytes),
      portionText(bytes / total),
    ],
  ]);
  return [...tableLines(columns, rows), ''];
}

/** Long pipelines by their ends and the fullest stage. */
function shownStages(stages: Simulation['stages']): Simulation['stages'] {
  if (stages.length <= 6) return stages;
  const fullest = stages.reduce((best, stage) => (stage.total > best.total ? stage : best));
  return [...new Set([stages[0], stages[1], fullest, stages.at(-2), stages.at(-1)])].flatMap((stage) =>
    stage ? [stage] : [],
  );
}

function fitLines(simulation: Simulation): readonly string[] {
  const { fits, memoryBytes, stages, tightestStage } = simulation;
  const fullest = stages[tightestStage] as Simulation['stages'][number];
  if (memoryBytes === null)
    return [`needs ${bytesText(fullest.total)} on stage ${fullest.stage}; local ranks have no limit`];
  const { missingBytes } = simulation;
  if (missingBytes === 0 && !fits)
    return [
      `the devices have room: ${bytesText(fullest.total)} of ${bytesText(memoryBytes)} on stage ${fullest.stage}`,
      ...remedyLines(simulation),
    ];
  if (fits) return [`fits: ${bytesText(fullest.total)} of ${bytesText(memoryBytes)} on stage ${fullest.stage}`];
  return [
    `does not fit: stage ${fullest.stage} needs ${bytesText(fullest.total)}, ${bytesText(missingBytes)} more than ` +
      `the ${bytesText(memoryBytes)} available`,
    ...remedyLines(simulation),
  ];
}

function remedyLines({ remedy }: Simulation): readonly string[] {
  return [
    remedy
      ? `cheapest change that makes it fit: ${remedy.change} (${secondsText(remedy.stepSeconds)} per step)`
      : 'no single change of recompute, ZeRO, offload, micro-batch, tp, pp, sp or ep makes it fit',
  ];
}

/** Memory of the fullest node's host; no lines where hosts hold nothing. */
function hostLines({ host }: Pick<Simulation, 'host'>): readonly string[] {
  if (!host) return [];
  const { node, bytes, memoryBytes } = host;
  return [
    bytes <= memoryBytes
      ? `hosts hold ${bytesText(bytes)} of ${bytesText(memoryBytes)} on node ${node}`
      : `does not fit: the host of node ${node} needs ${bytesText(bytes)}, ${bytesText(bytes - memoryBytes)} more ` +
        `than the ${bytesText(memoryBytes)} available`,
  ];
}

export function simulationJson(simulation: Simulation): Readonly<Record<string, unknown>> {
  const { configuration, cluster, parts, hidden, bytes, remedy } = simulation;
  return {
    schema: 'autopar-simulate-v1',
    model: simulation.name,
    cluster: { nodes: cluster.nodes, perNode: cluster.perNode, device: cluster.device.id, ...kindsJson(cluster) },
    configuration: { ...configuration, microBatches: simulation.microBatches },
    stageLayout: simulation.stageLayout,
    stepSeconds: simulation.stepSeconds,
    priceLevel: simulation.priceLevel,
    samplesPerSecond: simulation.samplesPerSecond,
    tokensPerSecond: simulation.tokensPerSecond,
    modelFlops: simulation.modelFlops,
    utilisation: simulation.utilisation,
    parts: named(parts, 'Seconds'),
    hidden: named(hidden, 'Seconds'),
    sent: named(bytes, 'Bytes'),
    mesh: simulation.axes,
    stages: stagesJson(simulation),
    largest: simulation.largest,
    memoryBytes: simulation.memoryBytes,
    fits: simulation.fits,
    missingBytes: simulation.missingBytes,
    ...(simulation.host
      ? {
          host: {
            node: simulation.host.node,
            ...named({ held: simulation.host.bytes, memory: simulation.host.memoryBytes }, 'Bytes'),
          },
        }
      : {}),
    remedy,
    ...writtenModelJson(simulation),
  };
}

function stagesJson({ stages }: Pick<Simulation, 'stages'>): readonly Readonly<Record<string, number>>[] {
  return stages.map(({ stage, inFlight, ...held }) => ({ stage, inFlight, ...named(held, 'Bytes') }));
}

/** Figures with their unit in their names. */
function named(record: object, unit: string): Readonly<Record<string, number>> {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [`${name}${unit}`, value as number]));
}
