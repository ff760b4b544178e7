/**
 * @file A curve of numbers on a terminal: a dot in each column, the values at both ends of the axis.
 */

const WIDTH = 60;
const HEIGHT = 10;

/** Lines of a curve over its steps (from 1 on); columns that stand for several steps show their mean. */
export function curveLines(values: readonly number[]): readonly string[] {
  const width = Math.min(WIDTH, values.length);
  const columns = Array.from({ length: width }, (_, column) => {
    const from = Math.floor((column * values.length) / width);
    const part = values.slice(from, Math.max(from + 1, Math.floor(((column + 1) * values.length) / width)));
    return part.reduce((sum, value) => sum + value, 0) / part.length;
  });
  const [least, most] = [Math.min(...columns), Math.max(...columns)];
  const span = most - least || 1;
  const rowOf = (value: number) => Math.round(((most - value) / span) * (HEIGHT - 1));
  const label = (row: number) => (row === 0 ? most.toPrecision(4) : row === HEIGHT - 1 ? least.toPrecision(4) : '');
  const margin = Math.max(label(0).length, label(HEIGHT - 1).length);
  const rows = Array.from({ length: HEIGHT }, (_, row) => {
    const dots = columns.map((value) => (rowOf(value) === row ? '•' : ' ')).join('');
    return `${label(row).padStart(margin)} │${dots}`.trimEnd();
  });
  const last = String(values.length);
  const axis = `${' '.repeat(margin)} └${'─'.repeat(width)}`;
  const ends = `${' '.repeat(margin + 2)}1${last.padStart(Math.max(last.length + 1, width - 1))}`;
  return [...rows, axis, ends];
}
