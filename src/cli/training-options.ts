/**
 * @file Options of training: which loss, which optimizer, which weights.
 */
import type { Training } from '../api/training.js';
import { AutoparError } from '../ir/error.js';
import type { CommandOption } from './command.js';
import { listed, nonNegative, oneOf, wholeNumber } from './values.js';

const LOSSES = ['cross_entropy', 'mse', 'model-output'] as const;
const OPTIMIZERS = ['sgd', 'adam', 'adamw', 'lamb'] as const;

/** Their values, by the names that the parser gives them. */
export interface TrainingFlags {
  readonly train?: boolean;
  readonly loss?: (typeof LOSSES)[number];
  readonly lossOutput?: string;
  readonly optimizer?: (typeof OPTIMIZERS)[number];
  readonly learningRate?: number;
  readonly momentum?: number;
  readonly nesterov?: boolean;
  readonly weightDecay?: number;
  readonly clipNorm?: number;
  readonly warmup?: number;
  readonly trainable?: readonly string[];
  readonly frozen?: readonly string[];
}

export const trainingOptions: readonly CommandOption[] = [
  { flags: '--train', says: 'compile a step of training: loss, gradients and optimizer' },
  {
    flags: '--loss <kind>',
    says: 'cross_entropy, mse, or model-output: an output that is a loss already (default: cross_entropy)',
    parse: oneOf('--loss', LOSSES),
  },
  { flags: '--loss-output <name>', says: 'the output that the loss is of, where there are several' },
  {
    flags: '--optimizer <kind>',
    says: 'sgd, adam, adamw or lamb (default: adamw)',
    parse: oneOf('--optimizer', OPTIMIZERS),
  },
  { flags: '--learning-rate <r>', says: 'default: 1e-3', parse: nonNegative('--learning-rate') },
  { flags: '--momentum <m>', says: "sgd's momentum (default: 0)", parse: nonNegative('--momentum') },
  { flags: '--nesterov', says: "sgd with Nesterov's momentum" },
  {
    flags: '--weight-decay <w>',
    says: 'of matrices; biases and scales have none (default: 0; 0.01 for adamw)',
    parse: nonNegative('--weight-decay'),
  },
  { flags: '--clip-norm <n>', says: 'scale gradients to this global norm at most', parse: nonNegative('--clip-norm') },
  { flags: '--warmup <steps>', says: 'steps in which the rate grows to its height', parse: wholeNumber('--warmup', 1) },
  { flags: '--trainable <glob>', says: 'train these weights as well; repeatable', parse: listed },
  { flags: '--frozen <glob>', says: 'do not train these; repeatable', parse: listed },
];

/** What is asked for. @throws AutoparError (usage) for options of training without --train */
export function trainingOf(flags: TrainingFlags): { readonly training?: Training } {
  const { train, loss, lossOutput, optimizer, learningRate, trainable, frozen } = flags;
  const { momentum, nesterov, weightDecay, clipNorm, warmup } = flags;
  const given = { loss, lossOutput, optimizer, learningRate, momentum, nesterov, weightDecay, clipNorm, warmup };
  if (!train) {
    const [stray] = Object.entries({ ...given, trainable, frozen }).filter(([, value]) => value !== undefined);
    if (!stray) return {};
    const flag = stray[0].replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    throw new AutoparError('bad-option', 'usage', `--${flag} is an option of training`, {}, 'add --train');
  }
  return {
    training: {
      loss: { kind: loss ?? 'cross_entropy', ...(lossOutput === undefined ? {} : { output: lossOutput }) },
      optimizer: {
        kind: optimizer ?? 'adamw',
        learningRate: learningRate ?? 1e-3,
        ...(momentum === undefined ? {} : { momentum }),
        ...(nesterov === undefined ? {} : { nesterov }),
        ...(weightDecay === undefined ? {} : { weightDecay }),
        ...(clipNorm === undefined ? {} : { clipNorm }),
        ...(warmup === undefined ? {} : { schedule: { warmup } }),
      },
      ...(trainable ? { trainable } : {}),
      ...(frozen ? { frozen } : {}),
    },
  };
}
