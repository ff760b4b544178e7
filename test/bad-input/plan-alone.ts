/**
 * @file Run as a program of its own: imports and plans the model named, and says what that took. Peak memory is a
 * process's, and tests share theirs.
 */
import { readFileSync } from 'node:fs';
import { importModel } from '../../src/api/models/import.js';
import { plan } from '../../src/api/plan.js';

/** The figures that it prints, as JSON. */
export interface Measured {
  readonly operators: number;
  readonly peakBytes: number;
  /** Bytes read from files, null if the system does not report them. */
  readonly readBytes: number | null;
}

const [file = ''] = process.argv.slice(2);
const before = readSoFar();
const imported = await importModel(file);
await plan(imported, { cluster: '4x8:h100-sxm-80' });
const after = readSoFar();
const measured: Measured = {
  operators: imported.graph.nodes.length,
  peakBytes: peakBytes(),
  readBytes: before === null || after === null ? null : after - before,
};
console.log(JSON.stringify(measured));

/** Peak memory. The figure of resourceUsage includes that of the process which started this one. */
function peakBytes(): number {
  try {
    const [, kilobytes] = /VmHWM:\s+(\d+) kB/.exec(readFileSync('/proc/self/status', 'utf8')) ?? [];
    if (kilobytes !== undefined) return Number(kilobytes) * 1024;
  } catch {
    // Systems other than Linux have no such file.
  }
  return process.resourceUsage().maxRSS * 1024;
}

function readSoFar(): number | null {
  try {
    return Number(/rchar: (\d+)/.exec(readFileSync('/proc/self/io', 'utf8'))?.[1] ?? Number.NaN);
  } catch {
    return null;
  }
}
