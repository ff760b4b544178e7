/**
 * @file Plans and predictions on record, so that a change that moves one of them is seen: five models on three clusters, for
 * inference and for training, through the command line as a user asks for them.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Plan } from '../../src/strategy/plan.js';
import { autopar, workplace } from '../cli/autopar.js';

const MODELS: Readonly<Record<string, readonly string[]>> = {
  gpt: ['--model', 'gpt:layers=8,hidden=1024,heads=16,seq=512,vocab=50304', '--global-batch', '32'],
  moe: ['--model', 'moe:layers=4,hidden=512,heads=8,seq=256,experts=8,vocab=32000', '--global-batch', '32'],
  resnet: ['--model', 'resnet', '--global-batch', '32'],
  'llama-tiny': ['models/llama-tiny.onnx'],
  mlp: ['models/mlp.onnx'],
};

const CLUSTERS: Readonly<Record<string, readonly string[]>> = {
  'local 4': ['--devices', '4'],
  '1x8 h100': ['--cluster', '1x8:h100-sxm-80'],
  '4x8 a100': ['--cluster', '4x8:a100-sxm-80'],
};

const PURPOSES: Readonly<Record<string, readonly string[]>> = { inference: [], training: ['--train'] };

/** Plans on record are about speed. */
const FASTEST = ['--prefer', 'fastest', '--headroom', '0'];

/** The recorded values of a plan. */
export interface Golden {
  readonly degrees: string;
  readonly schedule: string;
  /** Six significant digits. */
  readonly stepSeconds: number;
  /** Bytes of the fullest stage. */
  readonly peakBytes: number;
  /** First digits of the SHA-256 of plan.json without its predictions, its search and `FASTEST`. */
  readonly plan: string;
}

/** Every case's name and what `autopar compile` is asked. */
export const CASES: readonly { readonly name: string; readonly words: readonly string[] }[] = Object.entries(
  MODELS,
).flatMap(([model, of]) =>
  Object.entries(CLUSTERS).flatMap(([cluster, on]) =>
    Object.entries(PURPOSES).map(([purpose, to]) => ({
      name: `${model}, ${cluster}, ${purpose}`,
      words: ['compile', ...of, ...on, ...to, ...FASTEST, '--plan-only', '--json', '-o', 'golden.autopar'],
    })),
  ),
);

/** @throws Error with the command's own words where it fails */
export async function goldenOf(words: readonly string[]): Promise<Golden> {
  const { folder, remove } = workplace();
  try {
    const { code, stdout } = await autopar(words, { cwd: folder });
    if (code !== 0) throw new Error(`autopar ${words.join(' ')} ended with ${code}: ${stdout}`);
    const plan = JSON.parse(readFileSync(join(folder, 'golden.autopar', 'plan.json'), 'utf8')) as Plan;
    const { degrees, schedule, predicted, search: _, requested = {}, ...others } = plan;
    const { prefer: _prefer, headroom: _headroom, ...rest } = requested;
    const said = Object.keys(rest).length > 0 ? { ...others, requested: rest } : others;
    const { dp, tp, pp, sp, ep } = degrees;
    return {
      degrees: `dp ${dp} · tp ${tp} · pp ${pp} · sp ${sp} · ep ${ep}`,
      schedule: JSON.stringify(schedule),
      stepSeconds: Number(predicted.stepSeconds.toPrecision(6)),
      peakBytes: Math.max(...predicted.peakBytes),
      plan: createHash('sha256').update(JSON.stringify(said)).digest('hex').slice(0, 12),
    };
  } finally {
    remove();
  }
}
