/**
 * @file `autopar calibrate`: measured runs correct the predictions for a cluster.
 */

import type { Calibration, CalibrationScores, ExitKind, Score } from '../api/index.js';
import { calibrate } from '../api/verbs.js';
import { usageError } from '../api/words.js';
import { devicesText } from './cluster-text.js';
import type { Command, CommandContext } from './command.js';
import { countText, flopsText, integerText, shareText } from './quantity.js';
import { numberColumns, tableLines, textColumns } from './table.js';

interface CalibrateFlags {
  readonly cluster?: string;
  readonly output?: string;
}

export const calibrateCommand: Command<CalibrateFlags> = {
  name: 'calibrate',
  says: 'calibrate the cost model of a cluster with measured runs',
  arguments: [{ name: '<runs...>', says: 'CSV tables of runs (docs/clusters.md lists the columns)' }],
  options: [
    {
      flags: '--cluster <spec>',
      says: 'where they ran: NxM:ID, N nodes of M devices as `autopar hardware` lists them; or a cluster file',
    },
    {
      flags: '-o, --output <file>',
      says: 'cluster file to write, for --cluster (.yaml, .yml or .json)',
    },
  ],
  examples: [
    {
      line: 'autopar calibrate models/pilot-runs.csv --cluster 8x8:h100-sxm-80 -o my-cluster.yaml',
      says: 'then compile, simulate and explain take --cluster my-cluster.yaml',
    },
    {
      line: 'autopar calibrate models/pilot-runs.csv --cluster my-cluster.yaml',
      says: 'print errors before and after calibration; write nothing',
    },
  ],
  run: runCalibrate,
};

async function runCalibrate(
  { output, signal }: CommandContext,
  files: readonly string[],
  flags: CalibrateFlags,
): Promise<ExitKind> {
  const { cluster } = flags;
  if (cluster === undefined)
    throw usageError(
      'missing-argument',
      'calibrate needs the cluster that the runs were made on',
      'give --cluster NxM:ID, or a cluster file',
    );
  const made = await calibrate({
    files,
    cluster,
    ...(flags.output === undefined ? {} : { output: flags.output }),
    signal,
    onProgress: (done, of) => output.progress(`reading run ${done + 1} of ${of}`),
  });
  for (const line of calibrationLines(made, flags.output)) output.print(line);
  const { rows, runs, configurations, models, skipped, scores, layers, description } = made;
  output.data({
    schema: 'autopar-calibration-v1',
    file: flags.output ?? null,
    ...{ rows, runs, configurations, models, skipped, scores, layers, cluster: description },
  });
  return 'done';
}

function calibrationLines(made: Calibration, file: string | undefined): readonly string[] {
  const { cluster, rows, runs, configurations, models, skipped, scores, layers } = made;
  const used = `${countText(configurations, 'configuration')} of ${countText(models, 'model')}`;
  return [
    `${devicesText(cluster)}: ${integerText(runs)} of ${integerText(rows)} runs used, ${used}, ` +
      `${countText(layers.length, 'layer shape')}`,
    ...Object.entries(skipped).map(([reason, count]) => `  ${integerText(count)} not used: ${reason}`),
    '',
    'predictions of these runs',
    ...scoreLines(scores),
    '',
    layers.length > MOST_SHOWN ? `the ${MOST_SHOWN} layers with the largest errors` : 'layers, largest error first',
    ...layerLines(layers),
    '',
    ...adviceLines(made, file),
  ];
}

function scoreLines({ before, given, after, otherModels, otherShapes }: CalibrationScores): readonly string[] {
  const rows = [
    ['from the catalogue', before],
    ...(given ? [['from the cluster file so far', given] as const] : []),
    ['calibrated, same runs', after],
    ["calibrated from other models' runs", otherModels],
    ["calibrated from other shapes' runs", otherShapes],
  ] satisfies readonly (readonly [string, Score | null])[];
  const swept = before.sweeps > 0;
  const sweep = swept ? numberColumns('tau', 'choice', 'at worst') : [];
  const columns = [...textColumns(''), ...numberColumns('off by', 'bias'), ...sweep];
  const lines = tableLines(
    columns,
    rows.map(([name, score]) => {
      if (!score) return [name, '–', '–', ...sweep.map(() => '–')];
      const { mape, bias, tau, regret, worst } = score;
      const ofSweeps = [tau?.toFixed(2) ?? '–', shareText(regret ?? 0), shareText(worst?.regret ?? 0)];
      return [name, shareText(mape), shareText(bias), ...(swept ? ofSweeps : [])];
    }),
  );
  return swept
    ? [
        ...lines,
        '  choice: how much slower the run that is predicted fastest is than the fastest, in ' +
          `${countText(before.sweeps, 'sweep')} of 3 runs or more`,
      ]
    : lines;
}

const MOST_SHOWN = 8;

function layerLines(layers: Calibration['layers']): readonly string[] {
  const off = ({ factor }: Calibration['layers'][number]) => Math.abs(Math.log(factor));
  const columns = [
    ...textColumns('software', 'format', 'degrees'),
    ...numberColumns('tokens', 'products', 'takes', 'runs'),
  ];
  return tableLines(
    columns,
    [...layers]
      .sort((a, b) => off(b) - off(a))
      .slice(0, MOST_SHOWN)
      .map(({ software, precision, tp, sp, ep, tokens, products, factor, runs }) => [
        software,
        precision,
        [`tp ${tp}`, ...(sp > 1 ? [`sp ${sp}`] : []), ...(ep > 1 ? [`ep ${ep}`] : [])].join(' · '),
        integerText(tokens),
        flopsText(products),
        `${factor.toFixed(2)} ×`,
        integerText(runs),
      ]),
  );
}

function adviceLines({ scores, layers }: Calibration, file: string | undefined): readonly string[] {
  const { before, otherShapes } = scores;
  const unknown =
    otherShapes === null || otherShapes.mape > 0.95 * before.mape
      ? [
          'Layers of other shapes are ' +
            `${otherShapes === null ? 'unknown from one shape' : 'not predicted better from these runs'}: measure a run ` +
            'of each width, tp and micro-batch that you plan for.',
        ]
      : [];
  const software = [...new Set(layers.map((layer) => layer.software))];
  const attention = [...new Set(layers.map((layer) => layer.attention))];
  return [
    ...unknown,
    `The runs used ${software.join(' and ')}, with attention ${attention.join(' and ')}: simulate with --software ` +
      'and --attention to match.',
    file === undefined
      ? 'nothing is written: -o my-cluster.yaml saves the calibration'
      : `written to ${file}; next: autopar simulate MODEL --train --cluster ${file}`,
  ];
}
