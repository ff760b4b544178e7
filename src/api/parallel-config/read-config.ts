/**
 * @file Reads MindFormers' YAML as it is. Sections about other things (model, optimizer, callbacks, …) are ignored. In
 * `parallel` and `parallel_config` every key must be known, and so must a top-level key that is close to one of ours.
 */

import { AutoparError } from '../../ir/error.js';
import { nearest, offer } from '../../ir/nearest.js';
import { isRecord } from '../../ir/schema-check.js';
import { readYaml, type YamlSource } from '../../sharding-propagation/annotations/yaml-source.js';
import { DEFAULTS, KEY_ROWS, type KeyRow, NOTED_KEYS, OTHER_TOP_KEYS, SECTIONS } from './config-keys.js';
import { checkConfig } from './config-rules.js';
import type { ConfigKey, ConfigRemark, ParallelConfig, ParallelValues } from './parallel-config.js';

/**
 * Reads and checks a file, as far as it can be checked without devices and model.
 * @throws AutoparError (input): `file-missing`, `bad-yaml`, `bad-config` with file and line, `config-rule`
 */
export async function readParallelConfig(file: string): Promise<ParallelConfig> {
  const source = await readYaml(file, { version: '1.1' });
  const top = source.value ?? {};
  if (!isRecord(top)) throw invalid(source, [], 'the file is not a mapping of keys to values', HOW);
  checkTop(source, top);
  const remarks: ConfigRemark[] = [];
  for (const section of SECTIONS) checkSection(source, [section], top[section], remarks);
  const given = new Map<ConfigKey, number | null>();
  const values: Partial<Record<ConfigKey, unknown>> = {};
  for (const row of KEY_ROWS) {
    const value = valueAt(top, row.path);
    if (value === undefined || value === null) continue;
    values[row.key] = readValue(row, value, source);
    given.set(row.key, source.lineOf(row.path));
  }
  const config = { ...DEFAULTS, ...values, file, given, remarks } as ParallelConfig;
  checkConfig(config);
  return config;
}

const HOW = 'docs/reference/mindformers.md lists the keys with their values';

type ConfigSource = Pick<YamlSource, 'file' | 'value' | 'lineOf'>;

function readValue(row: KeyRow, value: unknown, source: ConfigSource): ParallelValues[ConfigKey] {
  const read = row.read(value);
  if ('value' in read) return read.value;
  const shown = JSON.stringify(value) ?? String(value);
  throw invalid(
    source,
    row.path,
    `${row.path.join('.')} is ${shown.length > 60 ? `${shown.slice(0, 57)}…` : shown}, where ${read.expected} is expected`,
    read.choices && typeof value === 'string' ? offer(value, read.choices) : HOW,
  );
}

/** Rejects files without any of our keys, and top-level keys that are not MindFormers' but close to one of ours. */
function checkTop(source: ConfigSource, top: Readonly<Record<string, unknown>>): void {
  const ours = [...new Set(KEY_ROWS.map(({ path: [first = ''] }) => first))].filter(
    (name) => !OTHER_TOP_KEYS.includes(name),
  );
  if (
    ![...SECTIONS, ...ours].some((name) => Object.hasOwn(top, name)) &&
    Object.keys(top).every((key) => nearest(key, ours) === undefined)
  )
    throw invalid(
      source,
      [],
      'the file has none of the keys use_parallel, parallel, parallel_config',
      'give the YAML file that run_mindformer.py takes as --config',
    );
  for (const key of Object.keys(top)) {
    if (ours.includes(key) || OTHER_TOP_KEYS.includes(key)) continue;
    const meant = nearest(key, [...ours, ...OTHER_TOP_KEYS]);
    if (meant !== undefined && ours.includes(meant))
      throw invalid(source, [key], `${key} is not a key of a configuration`, `did you mean ${meant}?`);
  }
}

/** Checks that every key of a section is read, is noted, or contains such keys. */
function checkSection(source: ConfigSource, path: readonly string[], value: unknown, remarks: ConfigRemark[]): void {
  if (value === undefined || value === null) return;
  const name = path.join('.');
  if (!isRecord(value)) throw invalid(source, path, `${name} is not a mapping of keys to values`, HOW);
  const rows = KEY_ROWS.map((row) => row.path.join('.'));
  const all = [...rows, ...Object.keys(NOTED_KEYS)];
  for (const [key, inner] of Object.entries(value)) {
    const full = `${name}.${key}`;
    const reason = Object.hasOwn(NOTED_KEYS, full) ? NOTED_KEYS[full] : undefined;
    if (rows.includes(full)) continue;
    if (reason !== undefined) remarks.push({ key: full, line: source.lineOf([...path, key]), says: reason });
    else if (all.some((known) => known.startsWith(`${full}.`))) checkSection(source, [...path, key], inner, remarks);
    else throw unknownKey(source, path, key, all);
  }
}

function unknownKey(source: ConfigSource, path: readonly string[], key: string, all: readonly string[]): AutoparError {
  const prefix = `${path.join('.')}.`;
  const siblings = all
    .filter((known) => known.startsWith(prefix))
    .map((known) => known.slice(prefix.length).split('.')[0] ?? '');
  const elsewhere = all.find((known) => known.split('.').at(-1) === key);
  return invalid(
    source,
    [...path, key],
    `${path.join('.')} has no key '${key}'`,
    elsewhere === undefined
      ? offer(key, [...new Set(siblings)])
      : `it belongs in ${elsewhere.split('.').slice(0, -1).join('.')}`,
  );
}

function valueAt(top: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>(
    (value, key) => (isRecord(value) && Object.hasOwn(value, key) ? value[key] : undefined),
    top,
  );
}

function invalid({ file, lineOf }: ConfigSource, path: readonly string[], message: string, hint: string): AutoparError {
  const line = lineOf(path);
  return new AutoparError('bad-config', 'input', message, { file, ...(line === null ? {} : { line }) }, hint);
}
