/**
 * @file A table of runs: its rows, if it has the columns that every row needs.
 */
import type { CsvRow } from '../../src/api/calibration/csv.js';
import { columnsOf, readCsv } from './csv.js';
import { NEEDED_COLUMNS, TIME_COLUMNS } from './run.js';

/** The rows of a table. @throws Error with the fault, worded to follow the file's name */
export function tableRows(text: string): readonly CsvRow[] {
  const rows = rowsOf(text);
  const columns = columnsOf(text);
  const missing: string[] = NEEDED_COLUMNS.filter((column) => !columns.includes(column));
  if (!TIME_COLUMNS.some((column) => columns.includes(column))) missing.push(TIME_COLUMNS.join(' or '));
  if (missing.length > 0) throw new Error(`is no table of training runs: it lacks the columns ${missing.join(', ')}`);
  return rows;
}

function rowsOf(text: string): readonly CsvRow[] {
  try {
    return readCsv(text);
  } catch (error) {
    throw new Error(`cannot be read: ${error instanceof Error ? error.message : error}`);
  }
}
