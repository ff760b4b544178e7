/**
 * @file Comma-separated values as RFC 4180 has them: quoted fields may hold commas, line ends and doubled quotes. Where the first
 * line has no comma, semicolons or tabs part the fields; lines may end in any of the three ways; spaces around fields are none.
 */

/** A line by the names of the columns, which are `columnName`s. */
export type Row = Readonly<Record<string, string>>;

/** Where a row keeps fields that no column is for: commas between thousands, say, that no quotes hold together. */
export const BEYOND = 'beyond the columns';

/**
 * Rows as records by the names of the first line; empty lines are none. Fields that a row lacks are ''.
 * @throws Error where a quote is opened and never closed, or two columns have one name
 */
export function readCsv(text: string): readonly Row[] {
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

/** In small letters, with one underscore for whatever else is between them; names that mean the same are one. */
function columnName(text: string): string {
  const name = text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '_')
    .replace(/^_|_$/g, '');
  return ALSO[name] ?? name;
}

/** Lines that say something, without the mark that some programs put before the first. */
function linesOf(text: string): string[][] {
  return fieldsOf(text.replace(/^\uFEFF/, '')).filter((row) => row.some((field) => field.trim() !== ''));
}

function fieldsOf(text: string): string[][] {
  const [first = ''] = text.trimStart().split(/[\r\n]/, 1);
  const separator = [',', ';', '\t'].find((character) => first.includes(character)) ?? ',';
  const rows: string[][] = [];
  let row: string[] = [];
  let field = '';
  let quoted = false;
  /** The line in which the last quote was opened. */
  let opened = 0;
  let line = 1;
  for (let index = 0; index < text.length; index++) {
    const character = text[index] as string;
    if (character === '\n' || (character === '\r' && text[index + 1] !== '\n')) line++;
    if (quoted) {
      if (character !== '"') field += character;
      else if (text[index + 1] === '"') {
        field += '"';
        index++;
      } else quoted = false;
      // A quote opens at a field's beginning alone: 5" is five inches.
    } else if (character === '"' && field.trim() === '') {
      quoted = true;
      opened = line;
      field = '';
    } else if (character === separator) {
      row.push(field);
      field = '';
    } else if (character === '\n' || character === '\r') {
      rows.push([...row, field]);
      row = [];
      field = '';
    } else field += character;
  }
  if (quoted) throw new Error(`the quote that line ${opened} opens is never closed`);
  if (field !== '' || row.length > 0) rows.push([...row, field]);
  return rows;
}
