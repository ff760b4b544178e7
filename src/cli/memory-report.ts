/**
 * @file Memory at the fullest moment, as people read it: how much of each kind, and the largest tensors by name.
 */
import type { OutsideBytes, PeakMemory, Server, TrainingStateBytes } from '../api/index.js';
import { bytesText, portionText } from './quantity.js';
import { tableLines } from './table.js';

/** `weight 1.2 MB, optimizer state 800 kB`. */
export function kindsText({ kinds }: PeakMemory): string {
  return Object.entries(kinds)
    .map(([kind, bytes]) => `${kind} ${bytesText(bytes)}`)
    .join(', ');
}

/** `1 over dp: optimizer state 417 kB of 834 kB; gradients, parameters whole`. */
export function stateText({ level, axes, parts }: TrainingStateBytes): string {
  const named = [
    ['optimizer state', parts.state],
    ['gradients', parts.accumulator],
    ['parameters', parts.parameter],
  ] as const;
  const cut = named
    .filter(([, { bytes, wholeBytes }]) => bytes < wholeBytes)
    .map(([name, { bytes, wholeBytes }]) => `${name} ${bytesText(bytes)} of ${bytesText(wholeBytes)}`);
  const whole = named
    .filter(([, { bytes, wholeBytes }]) => bytes === wholeBytes && bytes > 0)
    .map(([name]) => name)
    .join(', ');
  return `${level ?? 'in part'} over ${axes.join(' · ')}: ${[...cut, ...(whole ? [`${whole} replicated`] : [])].join('; ')}`;
}

/** `the first rank of dp: 1.2 MB of memory, others 800 kB; 400 kB sent and received per step, others 100 kB`. */
export function serverText({ axes, peakBytes, passedBytes }: Server): string {
  const memory = `${bytesText(peakBytes.server)} of memory, others ${bytesText(peakBytes.others)}`;
  const passed = `${bytesText(passedBytes.server)} sent and received per step, others ${bytesText(passedBytes.others)}`;
  return `the first rank of ${axes.join(' · ')}: ${memory}; ${passed}`;
}

/** A line per memory in use beside the devices': bytes on the fullest rank, and bytes moved in a step. */
export function outsideLines(outside: readonly OutsideBytes[]): readonly string[] {
  return (['host', 'disk'] as const).flatMap((memory) => {
    const most = (of: keyof OutsideBytes[typeof memory]) => Math.max(0, ...outside.map((own) => own[memory][of]));
    if (most('peakBytes') === 0) return [];
    const moved = `${bytesText(most('storedBytes'))} stored and ${bytesText(most('loadedBytes'))} loaded per step`;
    return [`  on ${memory === 'host' ? 'the host' : 'disk'} ${bytesText(most('peakBytes'))}; ${moved}`];
  });
}

/** The `most` largest tensors, and the total of the others. */
export function liveTensorLines({ held, others, peakBytes }: PeakMemory, most: number): readonly string[] {
  const shown = held.slice(0, most);
  const rest = held.slice(most);
  const count = rest.length + others.count;
  const bytes = rest.reduce((sum, tensor) => sum + tensor.bytes, others.bytes);
  const rows = shown.map((tensor) => [
    tensor.tensor,
    tensor.kind,
    tensor.shape === null ? '' : `${tensor.dtype} [${tensor.shape.join(', ')}]`,
    bytesText(tensor.bytes),
    portionText(tensor.bytes / peakBytes),
  ]);
  const columns = [
    { title: 'tensor' },
    { title: 'kind' },
    { title: 'shard' },
    { title: 'bytes', right: true },
    { title: 'share', right: true },
  ];
  return [...tableLines(columns, rows), ...(count > 0 ? [`  and ${count} smaller, ${bytesText(bytes)}`] : [])];
}
