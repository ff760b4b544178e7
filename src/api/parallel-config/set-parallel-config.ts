/**
 * @file The configuration from a program, as MindFormers' `Trainer.set_parallel_config` has it.
 *
 *     const config = setParallelConfig({ dataParallel: 2, modelParallel: 2, pipelineStage: 1, microBatchNum: 1 });
 */
import { AutoparError } from '../../ir/error.js';
import { offer } from '../../ir/nearest.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import { checkArguments, object } from '../options/kinds.js';
import { DEFAULTS, KEY_ROWS } from './config-keys.js';
import { checkConfig } from './config-rules.js';
import type { ConfigKey, ParallelConfig, ParallelMode, ParallelValues } from './parallel-config.js';

/** Any key of the file can be set, by its name in `ParallelValues`; `enableAllToAll` is true by default. */
export type ParallelSettings = Partial<ParallelValues>;

/** The configuration, checked as a file is. @throws AutoparError (input) `bad-config`, `config-rule` */
export function setParallelConfig(settings: ParallelSettings): ParallelConfig {
  checkArguments('setParallelConfig', { settings: [settings, object] });
  const given = new Map<ConfigKey, null>();
  for (const [name, value] of Object.entries(settings)) {
    const key = CHECKS.has(name as ConfigKey) ? (name as ConfigKey) : null;
    if (key === null) throw invalid(`unknown setting '${name}'`, offer(name, [...CHECKS.keys()]));
    if (value === undefined) continue;
    const expected = CHECKS.get(key)?.(value);
    if (expected)
      throw invalid(
        `${key} is ${JSON.stringify(value)}, where ${expected} is expected`,
        'docs/reference/mindformers.md lists the settings',
      );
    given.set(key, null);
  }
  const stated = withoutUndefined(settings);
  const config: ParallelConfig = { ...DEFAULTS, enableAllToAll: true, ...stated, file: null, given, remarks: [] };
  checkConfig(config);
  return config;
}

const MODES: readonly ParallelMode[] = ['data', 'semi-auto', 'auto', 'hybrid', 'stand-alone'];

/** The expected form, for a value that does not have the form of a setting; null for a valid value. */
const CHECKS: ReadonlyMap<ConfigKey, (value: unknown) => string | null> = new Map(
  (Object.keys(DEFAULTS) as ConfigKey[]).map((key) => [key, checkOf(key)]),
);

function checkOf(key: ConfigKey): (value: unknown) => string | null {
  if (key === 'parallelMode')
    return (value) => (MODES.includes(value as ParallelMode) ? null : `one of ${MODES.join(', ')}`);
  if (key === 'optimizerLevel') return (value) => ([1, 2, 3].includes(value as number) ? null : '1, 2 or 3');
  return (value) => {
    if (value === null && DEFAULTS[key] === null) return null;
    const read = KEY_ROWS.find((row) => row.key === key)?.read(value);
    return read && 'expected' in read ? read.expected : null;
  };
}

function invalid(message: string, hint: string): AutoparError {
  return new AutoparError('bad-config', 'input', message, {}, hint);
}
