/**
 * @file Numbers for people: times, sizes, ratios with three significant digits and a unit; and lists of words.
 */

const TIME_UNITS = [
  { unit: 's', scale: 1 },
  { unit: 'ms', scale: 1e-3 },
  { unit: 'µs', scale: 1e-6 },
  { unit: 'ns', scale: 1e-9 },
] as const;

const WORK_UNITS = [
  { unit: 'PFLOP', scale: 1e15 },
  { unit: 'TFLOP', scale: 1e12 },
  { unit: 'GFLOP', scale: 1e9 },
  { unit: 'MFLOP', scale: 1e6 },
  { unit: 'kFLOP', scale: 1e3 },
  { unit: 'FLOP', scale: 1 },
] as const;

const SIZE_UNITS = [
  { unit: 'TB', scale: 1e12 },
  { unit: 'GB', scale: 1e9 },
  { unit: 'MB', scale: 1e6 },
  { unit: 'kB', scale: 1e3 },
  { unit: 'B', scale: 1 },
] as const;

/** `0.00193` → `1.93 ms`. */
export function secondsText(seconds: number): string {
  return inUnits(seconds, TIME_UNITS);
}

/** `1234567` → `1.23 MB`; decimal units, as hardware catalogues use them. */
export function bytesText(bytes: number): string {
  return inUnits(bytes, SIZE_UNITS);
}

/** `6e10` → `60 GB/s`. */
export function rateText(bytesPerSecond: number): string {
  return `${bytesText(bytesPerSecond)}/s`;
}

/** `1.2e9` → `1.2 GFLOP`; none is a dash. */
export function flopsText(flops: number): string {
  return flops === 0 ? '–' : inUnits(flops, WORK_UNITS);
}

/** `1234567` → `1,234,567`. */
export function integerText(count: number): string {
  return count.toLocaleString('en-US');
}

/** `0.518` → `51.8 %`. */
export function shareText(share: number): string {
  return `${significant(share * 100)} %`;
}

/** A share of a whole for people: `51.8 %`, and `< 0.1 %` for what hardly counts. */
export function portionText(share: number): string {
  if (share === 0 || Math.abs(share) >= 0.001) return shareText(share);
  return share > 0 ? '< 0.1 %' : '> -0.1 %';
}

/** `121131.4` → `121,000`. */
export function numberText(value: number): string {
  return Math.abs(value) < 1 ? significant(value) : integerText(Number(value.toPrecision(3)));
}

/** `121,000 tokens/s`; `577 samples/s` where inputs are not tokens. */
export function throughputText({
  samplesPerSecond,
  tokensPerSecond,
}: {
  readonly samplesPerSecond: number;
  readonly tokensPerSecond: number | null;
}): string {
  return tokensPerSecond === null
    ? `${numberText(samplesPerSecond)} samples/s`
    : `${numberText(tokensPerSecond)} tokens/s`;
}

/** An error of a comparison: `1.2e-6`; exactly zero is `0`. */
export function errorText(value: number): string {
  return value === 0 || Number.isNaN(value) ? String(value) : value.toExponential(1);
}

/** `1 rank`, `4 ranks`. */
export function countText(count: number, singular: string, plural = `${singular}s`): string {
  return `${count} ${count === 1 ? singular : plural}`;
}

function inUnits(value: number, units: readonly { readonly unit: string; readonly scale: number }[]): string {
  const chosen = units.find(({ scale }) => Math.abs(value) >= scale) ?? units.at(-1);
  if (value === 0 || !chosen) return `0 ${units === TIME_UNITS ? 's' : 'B'}`;
  return `${significant(value / chosen.scale)} ${chosen.unit}`;
}

function significant(value: number): string {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return String(Number(value.toFixed(Math.min(digits, 20))));
}

/** `a, b and c`. */
export function listText(things: readonly string[], last: 'and' | 'or' = 'and'): string {
  return things.length < 2 ? things.join('') : `${things.slice(0, -1).join(', ')} ${last} ${things.at(-1)}`;
}
