/**
 * @file Tables as people publish them: comma-separated values, or semicolons or tabs where the first line has no comma; columns
 * by names that mean the same.
 */
import { type CsvRow, csvLines } from '../../src/api/calibration/csv.js';

/** Key of fields that have no column, for example after an unquoted comma between thousands. */
export const BEYOND = 'beyond the columns';

/**
 * Rows as records by the names of the first line; empty lines are skipped. Fields that a row lacks are ''.
 * @throws Error if a quote is opened and never closed, or two columns have one name
 */
export function readCsv(text: string): readonly CsvRow[] {
  const [header = [], ...rows] = linesOf(text);
  const names = header.map(columnName);
  const twice = names.find((name, index) => name !== '' && names.indexOf(name) !== index);
  if (twice !== undefined) throw new Error(`two columns are ${twice}: leave one of them`);
  return rows.map((row) => {
    const beyond = row.slice(names.length).filter((field) => field.trim() !== '');
    return Object.fromEntries([
      ...names.map((name, index) => [name, (row[index] ?? '').trim()] as const),
      ...(beyond.length > 0 ? [[BEYOND, beyond.join(' | ')] as const] : []),
    ]);
  });
}

/** The names of the first line. */
export function columnsOf(text: string): readonly string[] {
  return (linesOf(text)[0] ?? []).map(columnName);
}

/** Other names that tables have for a column. */
const ALSO: Readonly<Record<string, string>> = {
  ...{ gpu: 'gpu_type', device: 'gpu_type', num_gpus: 'gpus', n_gpus: 'gpus', devices: 'gpus' },
  ...{ num_layers: 'layers', hidden_size: 'hidden', num_heads: 'heads', num_attention_heads: 'heads' },
  ...{ seq_len: 'seq', seq_length: 'seq', seqlen: 'seq', sequence_length: 'seq', vp: 'vpp' },
  ...{ mbs: 'microbatch', micro_batch: 'microbatch', micro_batch_size: 'microbatch' },
  ...{ gbs: 'global_batch', global_batch_size: 'global_batch' },
  ...{ step_time: 'iteration_time_s', step_time_s: 'iteration_time_s', iteration_time: 'iteration_time_s' },
  ...{ tokens_s_gpu: 'tokens_per_s_per_gpu', tokens_sec_gpu: 'tokens_per_s_per_gpu' },
};

/** The name in lower case, with one underscore for each run of other characters; names that mean the same become one. */
function columnName(text: string): string {
  const name = text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '_')
    .replace(/^_|_$/g, '');
  return ALSO[name] ?? name;
}

/** The lines of a table; the first line shows the separator of its fields. */
function linesOf(text: string): readonly (readonly string[])[] {
  const [first = ''] = text.trimStart().split(/[\r\n]/, 1);
  return csvLines(text, [',', ';', '\t'].find((character) => first.includes(character)) ?? ',');
}
