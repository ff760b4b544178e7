/**
 * @file Text tables: columns as wide as their widest cell, numbers to the right.
 */

export interface Column {
  readonly title: string;
  readonly right?: boolean;
  /** Letters of a cell, where the column has room for more than the others. */
  readonly widest?: number;
  /** Its cells are sentences, which lose their end where they are too long. */
  readonly isProse?: boolean;
}

/** Columns of words, to the left. */
export function textColumns(...titles: readonly string[]): readonly Column[] {
  return titles.map((title) => ({ title }));
}

/** Columns of numbers, to the right. */
export function numberColumns(...titles: readonly string[]): readonly Column[] {
  return titles.map((title) => ({ title, right: true }));
}

/** Lines of a table, indented by two, without trailing blanks. Cells longer than `widest` lose their middle, prose its end. */
export function tableLines(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  widest = 48,
): readonly string[] {
  const cells = [columns.map(({ title }) => title), ...rows].map((row) =>
    row.map((cell, index) => {
      const { widest: own = widest, isProse = false } = columns[index] ?? {};
      return (isProse ? begun : shortened)(printable(cell), own);
    }),
  );
  const widths = columns.map((_, index) => Math.max(...cells.map((row) => (row[index] ?? '').length)));
  return cells.map((row) => {
    const line = columns.map((column, index) => {
      const cell = row[index] ?? '';
      const width = widths[index] ?? 0;
      return column.right ? cell.padStart(width) : cell.padEnd(width);
    });
    return `  ${line.join('  ')}`.trimEnd();
  });
}

/** Names come from files: control characters in them must not reach the terminal. */
export function printable(text: string): string {
  return text.replace(CONTROL, (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`);
}

/** All but the line feed. */
const CONTROL = /(?!\n)\p{Cc}/gu;

/** Names of exporters differ at their ends, so the middle goes. */
export function shortened(text: string, widest: number): string {
  if (text.length <= widest) return text;
  const end = Math.floor((widest - 1) * 0.6);
  return `${text.slice(0, widest - 1 - end)}…${text.slice(-end)}`;
}

/** The first words of a sentence. */
function begun(text: string, widest: number): string {
  if (text.length <= widest) return text;
  return `${text.slice(0, widest - 1).replace(/[\s,;:]*\S*$/, '')}…`;
}
