/**
 * @file Comma-separated values as in RFC 4180: quoted fields may hold commas, line ends and doubled quotes; lines may end
 * in LF, CR or CRLF.
 */

/** A line's fields, by column name. */
export type CsvRow = Readonly<Record<string, string>>;

/**
 * A table as its columns and rows. Empty lines are skipped; missing fields of a row are ''.
 * @throws Error if a quote is opened and never closed, two columns have the same name, or a row has more fields than columns
 */
export function csvTable(text: string): { readonly columns: readonly string[]; readonly rows: readonly CsvRow[] } {
  const [header = [], ...lines] = csvLines(text, ',');
  const columns = header.map((name) => name.trim());
  const twice = columns.find((name, index) => columns.indexOf(name) !== index);
  if (twice !== undefined) throw new Error(`two columns are ${twice || 'without a name'}: leave one of them`);
  const long = lines.findIndex((line) => line.length > columns.length);
  if (long >= 0) throw new Error(`row ${long + 1} has ${lines[long]?.length} fields for ${columns.length} columns`);
  return { columns, rows: lines.map((line) => rowOf(columns, line)) };
}

/** The text of a table of rows, with the columns that any row fills, in their order. */
export function csvText(columns: readonly string[], rows: readonly CsvRow[]): string {
  const used = columns.filter((column) => rows.some((row) => (row[column] ?? '') !== ''));
  const quoted = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = [used, ...rows.map((row) => used.map((column) => row[column] ?? ''))];
  return lines.map((fields) => `${fields.map(quoted).join(',')}\n`).join('');
}

function rowOf(columns: readonly string[], line: readonly string[]): CsvRow {
  return Object.fromEntries(columns.map((name, index) => [name, (line[index] ?? '').trim()]));
}

/**
 * The fields of each line that is not empty, without the byte-order mark that some programs put before the first.
 * @throws Error if a quote is opened and never closed
 */
export function csvLines(text: string, separator: string): readonly (readonly string[])[] {
  return fieldsOf(text.replace(/^\uFEFF/, ''), separator).filter((row) => row.some((field) => field.trim() !== ''));
}

function fieldsOf(text: string, separator: string): string[][] {
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
      // A quote opens only at the beginning of a field: 5" is five inches.
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
