/**
 * @file Comma-separated values as RFC 4180 has them: quoted fields may hold commas, line ends and doubled quotes. Where the first
 * line has no comma, semicolons or tabs part the fields; lines may end in any of the three ways; spaces around fields are none.
 */

/** Rows as records by the names of the first line; empty lines are none. Fields that a row lacks are ''. */
export function readCsv(text: string): readonly Readonly<Record<string, string>>[] {
  const [header = [], ...rows] = linesOf(text);
  return rows.map((row) =>
    Object.fromEntries(header.map((name, index) => [columnName(name), (row[index] ?? '').trim()])),
  );
}

/** The names of the first line, in small letters. */
export function columnsOf(text: string): readonly string[] {
  return (linesOf(text)[0] ?? []).map(columnName);
}

function columnName(text: string): string {
  return text.trim().toLowerCase();
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
  for (let index = 0; index < text.length; index++) {
    const character = text[index] as string;
    if (quoted) {
      if (character !== '"') field += character;
      else if (text[index + 1] === '"') {
        field += '"';
        index++;
      } else quoted = false;
    } else if (character === '"') quoted = true;
    else if (character === separator) {
      row.push(field);
      field = '';
    } else if (character === '\n' || character === '\r') {
      rows.push([...row, field]);
      row = [];
      field = '';
    } else field += character;
  }
  if (field !== '' || row.length > 0) rows.push([...row, field]);
  return rows;
}
