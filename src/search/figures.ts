/**
 * @file Times and sizes as reasons and hints write them: three digits, a unit of their size, and never an exponent.
 */

/** Units of time, the largest first, with their nanoseconds. */
const UNITS = [
  ['s', 1e9],
  ['ms', 1e6],
  ['µs', 1e3],
] as const;

/** Such as `50.7 s`. */
export function timeWritten(nanoseconds: number): string {
  return timesWritten([nanoseconds, nanoseconds], 3)[0];
}

/** Two times in the unit of the second. */
export function timesWritten(nanoseconds: readonly [number, number], digits: number): readonly [string, string] {
  const [unit, size] = UNITS.find(([, least]) => nanoseconds[1] >= least) ?? ['ns', 1];
  const [one, other] = nanoseconds;
  return [`${toDigits(one / size, digits)} ${unit}`, `${toDigits(other / size, digits)} ${unit}`];
}

/** `1.02 times as long`; `as long` where the difference is less than half a per cent. @param asMuch such as `as long` */
export function multipleWritten(ratio: number, asMuch: string): string {
  return Math.abs(ratio - 1) < 0.005 ? asMuch : `${toDigits(ratio, 3)} times ${asMuch}`;
}

/** So many digits, and all that stand before the point. */
function toDigits(value: number, digits: number): string {
  const written = value.toPrecision(digits);
  return written.includes('e') ? value.toFixed(0) : written;
}

/** Such as `3.5 %`. */
export function shareWritten(share: number): string {
  return `${Number((share * 100).toPrecision(2))} %`;
}

/** Such as `93.1 GB`. */
export function bytesWritten(bytes: number): string {
  const [unit, size] = bytes >= 1e9 ? ['GB', 1e9] : bytes >= 1e6 ? ['MB', 1e6] : ['kB', 1e3];
  return `${(bytes / size).toPrecision(3)} ${unit}`;
}

/** Such as `8 devices`. */
export function devicesWritten(devices: number): string {
  return devices === 1 ? '1 device' : `${devices} devices`;
}
