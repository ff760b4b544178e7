/**
 * @file Memory at the fullest moment, as people read it: how much of each kind, and the largest tensors by name.
 */
import type { OutsideBytes, PeakMemory, Server, TrainingStateBytes } from '../api/index.js';
import { bytesText, portionText } from './quantity.js';
import { numberColumns, printable, shortened, tableLines, textColumns } from './table.js';

/** `weight 1.2 MB, optimizer state 800 kB`. */
export function kindsText({ kinds }: PeakMemory): string {
  return Object.entries(kinds)
    .map(([kind, bytes]) => `${kind} ${bytesText(bytes)}`)
    .join(', ');
}

/** `1 over dp, a rank of stage 0: optimizer state 417 kB of 834 kB; gradients, parameters replicated`. */
export function stateText({ level, axes, stage, parts }: TrainingStateBytes): string {
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
  const whose = stage === undefined ? '' : `, a rank of stage ${stage}`;
  const all = [...cut, ...(whole ? [`${whole} replicated`] : [])].join('; ');
  return `${level ?? 'in part'} over ${axes.join(' · ')}${whose}: ${all}`;
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

/** `fc.weight 128 B; x 32 B; 5 smaller 40 B`. */
export function largestText(memory: PeakMemory, most: number): string {
  const { count, bytes } = smallerThan(memory, most);
  const shown = memory.held
    .slice(0, most)
    .map(({ tensor, bytes: own }) => `${shortened(printable(tensor), WIDEST_NAME)} ${bytesText(own)}`);
  return [...shown, ...(count > 0 ? [`${count} smaller ${bytesText(bytes)}`] : [])].join('; ');
}

/** As wide as names in the tables of reports. */
const WIDEST_NAME = 48;

/** The `most` largest tensors as a table, and the total of the others. */
export function liveTensorLines(memory: PeakMemory, most: number): readonly string[] {
  const { count, bytes } = smallerThan(memory, most);
  const rows = memory.held
    .slice(0, most)
    .map((tensor) => [
      tensor.tensor,
      tensor.kind,
      tensor.shape === null ? '' : `${tensor.dtype} [${tensor.shape.join(', ')}]`,
      bytesText(tensor.bytes),
      portionText(tensor.bytes / memory.peakBytes),
    ]);
  const columns = [...textColumns('tensor', 'kind', 'shard'), ...numberColumns('bytes', 'share')];
  return [...tableLines(columns, rows), ...(count > 0 ? [`  and ${count} smaller, ${bytesText(bytes)}`] : [])];
}

/** The tensors after the `most` largest. */
function smallerThan({ held, others }: PeakMemory, most: number): PeakMemory['others'] {
  const rest = held.slice(most);
  return {
    count: rest.length + others.count,
    bytes: rest.reduce((sum, tensor) => sum + tensor.bytes, others.bytes),
  };
}
