/**
 * @file Translates errors to JavaScript. Messages name options as the command line does; only this file converts them to
 * properties: `--dp 2` is `dp: 2`, `--dim batch=8` is `dims: { batch: 8 }`.
 */
import { AutoparError } from '../../ir/error.js';
import { camelCase } from './option-name.js';

const ofTraining = (path: string, names: readonly string[]) =>
  Object.fromEntries(names.map((name) => [`--${name}`, `training.${path}${camelCase(name)}`]));

/** Properties whose names differ from the option's name in camelCase. */
const PROPERTIES: Readonly<Record<string, string>> = {
  '-o': 'output',
  '--dim': 'dims',
  '--shape': 'shapes',
  '--const': 'constants',
  '--init': 'initRandom',
  '--train': 'training',
  '--loss': 'training.loss.kind',
  '--loss-output': 'training.loss.output',
  ...ofTraining('loss.', ['ignore-index', 'class-weights', 'label-smoothing']),
  '--optimizer': 'training.optimizer.kind',
  ...ofTraining('optimizer.', [
    'learning-rate',
    'momentum',
    'nesterov',
    'betas',
    'epsilon',
    'weight-decay',
    'clip-norm',
  ]),
  '--schedule-lr': 'training.optimizer.schedule.shape',
  '--warmup': 'training.optimizer.schedule.warmup',
  '--total-steps': 'training.optimizer.schedule.total',
  '--min-lr-ratio': 'training.optimizer.schedule.floor',
  ...ofTraining('', [
    'decayed',
    'undecayed',
    'precision',
    'loss-scale',
    'gradient-reduction',
    'train-mode',
    'freeze-batch-statistics',
    'batch-statistics',
  ]),
  ...ofTraining('', ['dropout-seed', 'tie', 'untie', 'trainable', 'frozen']),
};

/** Properties that differ from `PROPERTIES` for single verbs. */
const OF_VERBS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  compile: { '--model': 'generate', '--micro-batches': 'training.microBatches' },
  inspect: {
    '--model': 'generate',
    '--tie': 'tie',
    '--untie': 'untie',
    '--trainable': 'trainable',
    '--frozen': 'frozen',
  },
  simulate: {
    '--train': 'loss',
    '--loss': 'loss.kind',
    '--loss-output': 'loss.output',
    '--dtype': 'precision',
    '--gradients': 'gradientBytes',
    '--model': 'generate',
  },
};

/** Options whose value differs from the value of the property. */
const VALUES: Readonly<Record<string, (value: string) => string>> = {
  '--dim': (value) => `{ ${keyed(value, (size) => size)} }`,
  '--const': (value) => `{ ${keyed(value, () => 'ARRAY')} }`,
  '--init': () => 'true',
  '--weights': (value) => `[${quoted(value)}]`,
};

/** Patterns: a command to type, which stays unchanged; or an option, with the text that counts as its value. */
const COMMAND = String.raw`\bautopar [a-z]+(?: (?:[A-Z]{2,}|--?[\w-]+))*`;
const OPTION = String.raw`(?<![\w-])(--[a-z][a-z-]*[a-z]|-o(?= DIR))`;
const WORDS = [
  ...['none', 'auto', 'free', 'random', 'full', 'devices', 'propagate', 'search', 'off', 'on', 'fp16', 'fp32', 'bf16'],
  ...['sgd', 'adamw', 'mse', 'semi-auto', 'data', 'hybrid', 'ilp', 'sharding_propagation', 'dynamic_programming'],
  ...['model-output', 'cross_entropy'],
];
const VALUE = String.raw`\d(?:[\w.,]*\w)?|[\w.]+=[\w.]+|[A-Z][A-Z]+|NxM:ID|(?:${WORDS.join('|')})(?![\w-])`;
const MENTIONED = new RegExp(`${COMMAND}|${OPTION}(?: (${VALUE}))?`, 'g');

/** A sentence of the command line with JavaScript properties, for users of `verb`. */
export function inJavaScript(verb: string, sentence: string): string {
  return sentence
    .replace(/(--plan-only) (?=--)/g, '$1, ')
    .replace(MENTIONED, (whole, option: string | undefined, value: string | undefined) => {
      if (option === undefined) return whole;
      const property = propertyOf(verb, option);
      if (value === undefined) return property;
      return `${property}: ${VALUES[option]?.(value) ?? quoted(value)}`;
    });
}

/** The property of a command line option, such as `training.optimizer.kind`. */
function propertyOf(verb: string, option: string): string {
  return OF_VERBS[verb]?.[option] ?? PROPERTIES[option] ?? camelCase(option.replace(/^-+/, ''));
}

/** An error in JavaScript terms; its cause is the original error in command line terms. Other values stay unchanged. */
export function errorInJavaScript(verb: string, error: unknown): unknown {
  // An error of a verb that another one calls is in these terms already.
  if (!(error instanceof AutoparError) || error.cause instanceof AutoparError) return error;
  const hint = error.hint === undefined ? undefined : inJavaScript(verb, error.hint);
  const said = error.reworded(inJavaScript(verb, error.message), hint);
  return Object.assign(said, { cause: error });
}

/**
 * Runs a function that `signal` ends: parts of it throw the signal's reason, whatever that is, so that no part that survives a
 * refusal goes on, and callers get an AutoparError `interrupted`. Other errors stay unchanged.
 */
export async function endedBy<Result>(
  signal: AbortSignal | undefined,
  name: string,
  run: () => Promise<Result>,
): Promise<Result> {
  try {
    return await run();
  } catch (error) {
    if (!signal?.aborted || error !== signal.reason || error instanceof AutoparError) throw error;
    throw new AutoparError('interrupted', 'interrupted', `${name}() was interrupted by its signal`);
  }
}

function keyed(value: string, second: (text: string) => string): string {
  const [name = '', text = ''] = value.split('=');
  return `${/^\w+$/.test(name) ? name : `'${name}'`}: ${second(text)}`;
}

function quoted(value: string): string {
  return /^\d+(\.\d+)?$|^[A-Z]{1,}$/.test(value) ? value : `'${value}'`;
}
