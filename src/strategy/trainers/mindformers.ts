/**
 * @file A plan as the parallel sections of a MindFormers configuration, which `--config` reads (docs/reference/mindformers.md has
 * the keys).
 */

import type { PlacedPlan } from '../placed-operators.js';
import type { Plan } from '../plan.js';
import { spMethodOf, type TrainerChoices, trainerChoices } from './choices.js';
import type { HandedOver } from './megatron.js';

type MindFormersValue = string | number | boolean;
interface MindFormersSection {
  readonly [key: string]: MindFormersValue | MindFormersSection | undefined;
}

/**
 * The sections' YAML.
 * @param strategy file of the strategies of all stages, relative to where MindSpore is started
 */
export function mindFormersConfig(plan: Plan, placed: PlacedPlan, strategy: string): HandedOver {
  const { degrees } = plan;
  const choices = plan.training && !plan.meshes ? trainerChoices(plan, placed) : null;
  const { schedule, lost } = choices ? scheduleOf(choices) : { schedule: undefined, lost: [] };
  const algorithm = CONTEXT[spMethodOf(plan)];
  const sections: MindFormersSection = {
    use_parallel: true,
    parallel: {
      parallel_mode: SEMI_AUTO,
      full_batch: true,
      ...(plan.training ? { gradients_mean: plan.training.gradientReduction !== 'sum' } : {}),
      ...(choices?.bucketBytes ? { comm_fusion: { allreduce: fusedBy(choices.bucketBytes) } } : {}),
      ...(choices && choices.zero > 0
        ? { enable_parallel_optimizer: true, parallel_optimizer_config: { optimizer_level: `level${choices.zero}` } }
        : {}),
      strategy_ckpt_config: { load_file: strategy },
      pipeline_config: schedule,
    },
    parallel_config: {
      data_parallel: degrees.dp,
      model_parallel: degrees.tp,
      context_parallel: degrees.sp,
      ...(degrees.sp > 1 && algorithm ? { context_parallel_algo: algorithm } : {}),
      expert_parallel: degrees.ep,
      pipeline_stage: degrees.pp,
      ...(choices && degrees.pp > 1 ? { micro_batch_num: choices.microBatches } : {}),
      ...(degrees.tp > 1 && choices ? { use_seq_parallel: choices.tpSequence } : {}),
    },
    ...(choices ? trainingSections(choices, plan) : {}),
  };
  const all = [
    ...lost,
    ...(plan.meshes ? ["the stages' own meshes: the degrees are those of the first stage"] : []),
    ...(degrees.sp > 1 && !algorithm ? ['how attention over sp communicates'] : []),
    ...(plan.server ? ['the parameter server'] : []),
    ...(plan.schedule.recompute?.exceptLast ? ['no recompute in the last micro-batch'] : []),
    ...(choices ? lostOf(choices) : []),
  ];
  return { text: lines(sections, '').join(''), lost: all };
}

const SEMI_AUTO = 1;

/** Whole megabytes, as MindSpore counts them. */
function fusedBy(bytes: number): MindFormersSection {
  return { mode: 'size', config: Math.max(1, Math.round(bytes / 2 ** 20)) };
}

/** Words of `--sp-method`. */
const CONTEXT: Readonly<Record<string, string>> = { gather: 'colossalai_cp', ulysses: 'ulysses_cp' };

function scheduleOf({ schedule, virtualStages }: TrainerChoices): {
  readonly schedule: MindFormersSection | undefined;
  readonly lost: readonly string[];
} {
  switch (schedule) {
    case 'single':
      return { schedule: undefined, lost: [] };
    case '1f1b':
      return { schedule: { pipeline_scheduler: '1f1b' }, lost: [] };
    case 'f-then-b':
      return { schedule: { pipeline_scheduler: 'gpipe' }, lost: [] };
    case 'zbv':
      return { schedule: { pipeline_scheduler: 'zero_bubble_v', pipeline_interleave: true }, lost: [] };
    case 'interleaved-1f1b':
      return { schedule: { pipeline_scheduler: '1f1b', pipeline_interleave: true }, lost: [] };
    default:
      return {
        schedule: { pipeline_scheduler: '1f1b' },
        lost: [`schedule ${schedule}${virtualStages > 1 ? ` of ${virtualStages} chunks` : ''}: 1f1b runs`],
      };
  }
}

function trainingSections(
  { recompute, offload, virtualStages, schedule, degrees, microBatches }: TrainerChoices,
  plan: Plan,
): MindFormersSection {
  return {
    ...(schedule === 'interleaved-1f1b' || schedule === 'zbv'
      ? { model: { model_config: { pp_interleave_num: virtualStages } } }
      : {}),
    ...(degrees.pp === 1 && microBatches > 1 ? { runner_config: { gradient_accumulation_steps: microBatches } } : {}),
    ...(recompute.kind === 'full' ? { recompute_config: { recompute: true } } : {}),
    ...(recompute.kind === 'selective' ? { recompute_config: { select_recompute: true } } : {}),
    ...(plan.schedule.interleave ? { micro_batch_interleave_num: plan.schedule.interleave } : {}),
    ...(offload === 'activations' ? { swap_config: { swap: true } } : {}),
  };
}

function lostOf({ recompute, offload }: TrainerChoices): readonly string[] {
  const isKnown = ['none', 'full', 'selective'].includes(recompute.kind);
  return [
    ...(isKnown ? [] : [`recompute ${recompute.kind}`]),
    ...(recompute.kind === 'full' && !recompute.isOfAllLayers ? ['the layers that recompute: all layers do'] : []),
    ...(offload === 'none' || offload === 'activations' ? [] : [`offload ${offload}`]),
    'the optimizer and its learning rate, which the section optimizer of your configuration sets',
  ];
}

function lines(section: MindFormersSection, indent: string): readonly string[] {
  return Object.entries(section).flatMap(([key, value]) => {
    if (value === undefined) return [];
    if (typeof value === 'object') return [`${indent}${key}:\n`, ...lines(value, `${indent}  `)];
    return [`${indent}${key}: ${valueText(value)}\n`];
  });
}

function valueText(value: MindFormersValue): string {
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  return typeof value === 'string' && /[^\w.-]/.test(value) ? JSON.stringify(value) : String(value);
}
