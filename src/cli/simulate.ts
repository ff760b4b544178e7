/**
 * @file `autopar simulate`: the price of a choice of degrees, batches and memory savings, without a search.
 */

import type { DegreeOptions, ExitKind, SimulateOptions } from '../api/index.js';
import { simulate } from '../api/verbs.js';
import { type AutoparError, badOption, dashed, isPlanPath, pricedOffload, withoutUndefined } from '../api/words.js';
import type { Command, CommandContext } from './command.js';
import { predictedJson } from './compile-report.js';
import { degreeOptions } from './degrees.js';
import { clusterOptions } from './machine.js';
import { meshLines } from './mesh-report.js';
import { importOptionsOf, type ModelFlags, modelOptions, modelSource } from './model-options.js';
import type { Output } from './output.js';
import { factsIn, reportLine } from './plan-page.js';
import { bytesText, secondsText } from './quantity.js';
import { simulationPage } from './simulate-page.js';
import { simulationJson, simulationLines } from './simulate-report.js';
import { type StepFlags, stepOptions } from './step-options.js';
import { byteSize, choiceAmong, integerParser } from './values.js';
import { type WriteModelFlags, writeModelIn, writeModelOptions, writtenModelLines } from './write-model.js';

interface SimulateFlags
  extends DegreeOptions,
    ModelFlags,
    WriteModelFlags,
    StepFlags,
    Pick<SimulateOptions, 'cluster' | 'memory' | 'microBatch' | 'microBatches' | 'stages' | 'trace'> {
  readonly mesh?: boolean;
  readonly train?: boolean;
  readonly loss?: 'cross_entropy' | 'mse' | 'model-output';
  readonly lossOutput?: string;
  readonly dtype?: keyof typeof PRECISIONS;
  readonly gradients?: keyof typeof GRADIENT_BYTES;
  readonly report?: string;
}

const PRECISIONS = { float32: 'fp32', bfloat16: 'bf16', float16: 'fp16', float8: 'fp8', float4: 'fp4' } as const;

const GRADIENT_BYTES = { float32: 4, bfloat16: 2 } as const;

export const simulateCommand: Command<SimulateFlags> = {
  name: 'simulate',
  says: 'predict time and memory of given degrees and batches',
  arguments: [{ name: '[model]', says: 'ONNX file, or a plan (DIR or plan.json); or --model' }],
  options: [
    ...modelOptions,
    ...clusterOptions,
    { flags: '--memory <size>', says: 'memory per device, such as 80GB', parse: byteSize },
    ...degreeOptions(),
    { flags: '--mesh', says: 'levels and slowest link of each axis, and its cost' },
    { flags: '--train', says: 'a training step; inference by default' },
    {
      flags: '--loss <kind>',
      says: 'cross_entropy (default), mse, or model-output',
      parse: choiceAmong(['cross_entropy', 'mse', 'model-output']),
    },
    { flags: '--loss-output <name>', says: 'output to take the loss of, if there are several' },
    {
      flags: '--micro-batch <n>',
      says: 'samples per rank and micro-batch (default: 1)',
      parse: integerParser(1),
    },
    {
      flags: '--micro-batches <n>',
      says: 'micro-batches per step (default: pp)',
      parse: integerParser(1),
    },
    ...stepOptions({
      tpSequence: 'auto, on',
      zero: '0',
      recompute: 'none',
      schedule: '1f1b',
      virtualStages: '1, or 2 where the schedule has chunks',
      meshOrder: 'pp,dp,sp,tp',
      offload: 'none',
    }),
    {
      flags: '--stages <layout>',
      says: 'layers of each pipeline stage, such as "E t*3 | t*5 H" (default: even)',
    },
    {
      flags: '--dtype <kind>',
      says: 'matmul type: bfloat16 (default if supported), float32 (local default), float16, float8, float4',
      parse: choiceAmong(Object.keys(PRECISIONS)),
    },
    {
      flags: '--gradients <kind>',
      says: 'gradient type: float32 (default for bfloat16 in megatron, megatron-core) or bfloat16',
      parse: choiceAmong(Object.keys(GRADIENT_BYTES)),
    },
    { flags: '--report <file>', says: 'HTML page of the step, its time and memory' },
    { flags: '--trace <file>', says: "write the pipeline's timeline and memory for Perfetto" },
    ...writeModelOptions,
  ],
  examples: [
    {
      line:
        'autopar simulate --model gpt:layers=96,hidden=12288,heads=96,seq=2048 --cluster 12x8:a100-sxm-80 ' +
        '--train --tp 8 --pp 12 --global-batch 96 --recompute full',
      says: 'GPT-3 on 96 devices: seconds, utilisation, memory per stage',
    },
    {
      line: 'autopar simulate models/gpt-tiny.onnx --cluster 1x8:h100-sxm-80 --dp 4 --tp 2',
      says: 'inference with a model file',
    },
  ],
  run: runSimulate,
};

async function runSimulate(
  { output, signal }: CommandContext,
  [model]: readonly string[],
  flags: SimulateFlags,
): Promise<ExitKind> {
  if (model !== undefined && (await isPlanPath(model))) return runSimulatePlan(output, model, flags);
  checkLoss(flags);
  const source = modelSource(model, flags.model, 'simulate');
  const { globalBatch, ...importing } = await importOptionsOf(flags);
  const options = withoutUndefined({
    cluster: flags.cluster,
    devices: flags.devices,
    memory: flags.memory,
    dp: flags.dp,
    tp: flags.tp,
    pp: flags.pp,
    sp: flags.sp,
    ep: flags.ep,
    meshOrder: flags.meshOrder,
    globalBatch,
    microBatch: flags.microBatch,
    microBatches: flags.microBatches,
    tpSequence: flags.tpSequence,
    zero: flags.zero,
    recompute: flags.recompute,
    schedule: flags.schedule,
    virtualStages: flags.virtualStages,
    stages: flags.stages,
    offload: pricedOffload(flags.offload),
    precision: flags.dtype && PRECISIONS[flags.dtype],
    software: flags.software,
    gradientBytes: flags.gradients && GRADIENT_BYTES[flags.gradients],
    attention: flags.attention,
    trace: flags.trace,
    loss: flags.train
      ? { kind: flags.loss ?? 'cross_entropy', ...withoutUndefined({ output: flags.lossOutput }) }
      : undefined,
  });
  const written = writeModelIn(flags);
  const simulation = await simulate({ ...source, ...importing, ...options, ...written, signal } as SimulateOptions);
  const lines = simulationLines(simulation, output);
  for (const line of lines) output.print(line);
  if (flags.mesh) for (const line of ['', ...meshLines(simulation.axes)]) output.print(line);
  for (const line of writtenModelLines(simulation)) output.print(line);
  const json = simulationJson(simulation);
  if (flags.report !== undefined) {
    const { writePage } = await import('../api/index.js');
    await writePage(flags.report, simulationPage(simulation, factsIn(lines), [], json));
    output.print(reportLine(flags.report));
  }
  output.data(json);
  return 'done';
}

/** A written plan is priced as it is: all that options say is in it. */
async function runSimulatePlan(output: Output, file: string, flags: SimulateFlags): Promise<ExitKind> {
  const [stray] = Object.keys(flags).filter((flag) => !OF_OUTPUT.has(flag));
  if (stray !== undefined) throw strayOption(stray, file);
  const { simulatePlan } = await import('../api/index.js');
  const { plan, prediction } = await simulatePlan(file);
  const { stepSeconds, priceLevel = 'lowered', precision, peakBytes } = prediction;
  output.print(
    `${secondsText(stepSeconds)} per step in ${precision} (${priceLevel}), ${bytesText(Math.max(...peakBytes))} of ` +
      'memory per rank',
  );
  output.data({
    schema: 'autopar-simulate-v1',
    ...predictedJson({ ...plan, predicted: prediction }),
  });
  return 'done';
}

function strayOption(stray: string, file: string): AutoparError {
  const elsewhere = SHOWN_ELSEWHERE[stray];
  const option = `--${dashed(stray)}`;
  const [message, hint] = elsewhere
    ? [`simulate prints the price of the plan in ${file}, and takes no ${option}`, elsewhere]
    : [`${option} contradicts the plan in ${file}`, 'leave it out, or compile another plan'];
  return badOption(message, hint);
}

/** Options of every command, which do not concern a plan. */
const OF_OUTPUT: ReadonlySet<string> = new Set(['json', 'quiet', 'color']);

/** Options for a written plan whose output other commands show. */
const SHOWN_ELSEWHERE: Readonly<Record<string, string>> = {
  trace: 'trace a run instead: autopar run DIR --trace FILE, or autopar train DIR --data F --trace FILE',
  report: 'autopar explain DIR --report FILE',
  mesh: 'autopar explain DIR --mesh',
};

/** A loss that nothing is trained for would change no figure. */
function checkLoss({ train, loss, lossOutput }: SimulateFlags): void {
  const stray = loss !== undefined ? '--loss' : lossOutput !== undefined ? '--loss-output' : null;
  if (train || stray === null) return;
  throw badOption(`${stray} applies to training only`, 'add --train');
}
