/**
 * @file Emulated time that runs slower, so that other work of the machine counts little.
 */
import type { Emulation } from '../src/runtime/messages.js';

export const SLOWED = 20;

export function slowed({ seconds, link }: Emulation): Emulation {
  return {
    seconds: seconds.map((stage) =>
      Object.fromEntries(Object.entries(stage).map(([segment, each]) => [segment, SLOWED * each])),
    ),
    link: { bytesPerSecond: link.bytesPerSecond / SLOWED, latency: SLOWED * link.latency },
  };
}

export function milliseconds(seconds: number): string {
  return (seconds * 1000).toFixed(2);
}
