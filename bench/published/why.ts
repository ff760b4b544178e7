/**
 * @file The origin of a canonical row's values: the words of the published row from which each was read.
 */
import type { CsvRow } from '../../src/api/calibration/csv.js';
import { UNSTATED } from './numbers.js';

/** Canonical columns, the source of a value that a row does not state, and the published columns that they are read from. */
const READ_FROM: readonly (readonly [canonical: string, unstated: string, from: readonly string[]])[] = [
  ['device', 'nothing', ['gpu_type']],
  ['sizes', "the model's name", ['layers', 'hidden', 'heads', 'kv_heads', 'ffn', 'vocab']],
  ['software', 'the device and zero', ['software', 'source', 'overlap']],
  ['attention', "the software's usual kernel", ['attn', 'source']],
  ['precision', 'bf16', ['precision']],
  ['zero', "the software's usual level", ['zero']],
  ['recompute', 'none', ['recompute']],
  ['virtual_stages', 'one', ['vpp']],
  ['tp_sequence', "the software's usual way", ['sp']],
  ['sp', 'the devices that other degrees leave', ['cp']],
  ['ep', 'one', ['ep']],
  ['overlap', "the software's usual way", ['overlap']],
  ['seconds', 'nothing', ['iteration_time_s', 'tokens_per_s_per_gpu', 'status']],
];

/** One clause for each canonical column. */
export function whyOf(row: CsvRow): string {
  const sentences = READ_FROM.map(([canonical, unstated, from]) => {
    const said = from.filter((column) => !UNSTATED.test(row[column] ?? ''));
    const words = said.map((column) => `${column} "${row[column]}"`).join(', ');
    return `${canonical} from ${words === '' ? unstated : words}`;
  });
  return [...sentences, ...(row['source_ref'] ? [`row of ${row['source_ref']}`] : [])].join('; ');
}
