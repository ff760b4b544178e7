/**
 * @file The software whose kernels, launches and collectives a published run has, from its table's software or source.
 */

import type { CsvRow } from '../../src/api/calibration/csv.js';
import type { DeviceSpec } from '../../src/cost-model/device.js';
import type { SoftwareName } from '../../src/cost-model/step/constants.js';
import { zeroLevel } from './sharding.js';

/**
 * Megatron's layers under DeepSpeed's engine: it sends whole activations, and reduces gradients after the backward. They run like
 * eager software: see BigScience's runs, and those of Megatron-Turing NLG beside Megatron's own on the same machine, model and
 * degrees.
 */
export const IN_DEEPSPEED = /BigScience|NeoX|Megatron.*DeepSpeed|DeepSpeed.*Megatron/i;

/** The first match counts. */
const NAMES: readonly (readonly [pattern: RegExp, software: SoftwareName])[] = [
  [/(?<!(no|not|without|un)[ -]?(torch\.)?)compiled?\b|JAX|XLA|PAX|MaxText|Levanter|EasyLM|\bAlpa\b/i, 'compiled'],
  [IN_DEEPSPEED, 'eager'],
  [/Megatron-?Core|\bMCore\b/i, 'megatron-core'],
  [
    /\beager\b|llm-foundry|Hagemann|ml-engineering|AutoModel|torchtitan|InternEvo|LitGPT|XTuner|Hugging ?Face/i,
    'eager',
  ],
  [/LLaMA-Factory|Axolotl|Colossal|nanotron|\bOLMo\b|metaseq|FairScale|fms-fsdp|Accelerate|Composer/i, 'eager'],
  [/NeMo|Bridge|MLPerf|MegaScale|H100|functional/i, 'megatron-core'],
];

/** Megatron as its papers of 2020 to 2022 measured it, on V100 and A100. */
const MEGATRON = /vTrain|SC21|SC'21|Korthikanti|Megatron/i;

/** A run's software. Devices with 8-bit matmuls came with Transformer Engine, which Megatron's layers use there. */
export function softwareOf(row: CsvRow, device: DeviceSpec): SoftwareName {
  const text = [row['software'], row['source'], row['overlap']].join(' ');
  const named = NAMES.find(([pattern]) => pattern.test(text))?.[1];
  if (named) return named;
  if (MEGATRON.test(text)) return device.peakFlops.fp8 === undefined ? 'megatron' : 'megatron-core';
  return zeroLevel(row['zero'] ?? '') === 3 ? 'eager' : 'megatron-core';
}
