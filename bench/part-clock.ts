/**
 * @file Time and memory of a program's parts, one after another. Peak memory is the system's own counter where it can be
 * reset (Linux), else the resident memory at the end of each part.
 */
import { readFileSync, writeFileSync } from 'node:fs';

export interface Part {
  readonly name: string;
  readonly seconds: number;
  /** Processor seconds of all threads, those of the garbage collector and the compiler included. */
  readonly processorSeconds: number;
  /** Peak resident memory of the part. */
  readonly peakBytes: number;
  /** Bytes of JavaScript objects at its end, garbage included. */
  readonly heapBytes: number;
}

export class PartClock {
  private readonly found = new Map<string, Part>();
  private current: { readonly name: string; readonly wall: number; readonly cpu: NodeJS.CpuUsage } | null = null;

  /** Ends the current part and begins another; parts of one name are added up. */
  begin(name: string): void {
    this.end();
    resetPeak();
    this.current = { name, wall: performance.now(), cpu: process.cpuUsage() };
  }

  end(): void {
    if (!this.current) return;
    const { name, wall, cpu } = this.current;
    const { user, system } = process.cpuUsage(cpu);
    const before = this.found.get(name);
    this.found.set(name, {
      name,
      seconds: (before?.seconds ?? 0) + (performance.now() - wall) / 1000,
      processorSeconds: (before?.processorSeconds ?? 0) + (user + system) / 1e6,
      peakBytes: Math.max(before?.peakBytes ?? 0, peakBytes()),
      heapBytes: process.memoryUsage().heapUsed,
    });
    this.current = null;
  }

  /** Moves seconds from one part to another. */
  move(from: string, to: string, seconds: number, processorSeconds: number): void {
    const [source, target] = [this.found.get(from), this.found.get(to)];
    if (!source) return;
    const { peakBytes, heapBytes } = source;
    this.found.set(from, {
      ...source,
      seconds: source.seconds - seconds,
      processorSeconds: source.processorSeconds - processorSeconds,
    });
    this.found.set(to, {
      ...(target ?? { name: to, peakBytes, heapBytes }),
      name: to,
      seconds: (target?.seconds ?? 0) + seconds,
      processorSeconds: (target?.processorSeconds ?? 0) + processorSeconds,
    });
  }

  parts(): readonly Part[] {
    return [...this.found.values()];
  }
}

/** All parts as one, for totals. */
export function together(name: string, parts: readonly Part[]): Part {
  const sum = (of: (part: Part) => number): number => parts.reduce((total, part) => total + of(part), 0);
  return {
    name,
    seconds: sum((part) => part.seconds),
    processorSeconds: sum((part) => part.processorSeconds),
    peakBytes: Math.max(...parts.map((part) => part.peakBytes)),
    heapBytes: Math.max(...parts.map((part) => part.heapBytes)),
  };
}

export const PART_HEADER = row('', ['wall', 'processor', 'peak RSS', 'heap']);

export function partLine({ name, seconds, processorSeconds, peakBytes, heapBytes }: Part): string {
  const time = (value: number): string => `${value.toFixed(3)} s`;
  const size = (bytes: number): string => `${(bytes / 1e6).toFixed(0)} MB`;
  return row(name, [time(seconds), time(processorSeconds), size(peakBytes), size(heapBytes)]);
}

function row(name: string, cells: readonly [string, string, string, string]): string {
  const [wall, processor, peak, heap] = cells;
  return `${name.padEnd(24)}${wall.padStart(10)}${processor.padStart(12)}${peak.padStart(12)}${heap.padStart(10)}`;
}

function resetPeak(): void {
  try {
    writeFileSync('/proc/self/clear_refs', '5');
  } catch {
    // Not Linux: the peak is then the resident memory at the end of a part.
  }
}

function peakBytes(): number {
  try {
    const [, kilobytes] = /VmHWM:\s+(\d+) kB/.exec(readFileSync('/proc/self/status', 'utf8')) ?? [];
    if (kilobytes !== undefined) return Number(kilobytes) * 1024;
  } catch {
    // As above.
  }
  return process.memoryUsage().rss;
}
