/**
 * @file The progress of a training run in one line, for a terminal.
 */
import type { StepMetrics } from './metrics.js';

export function progressText({ step, loss, tokensPerSecond }: StepMetrics, steps: number, meanSeconds: number): string {
  const left = durationText((steps - step) * meanSeconds);
  return `step ${step} of ${steps}, loss ${loss.toPrecision(5)}, ${Math.round(tokensPerSecond)} tokens/s, ${left} left`;
}

/** The two largest units of hours, minutes and seconds. */
function durationText(seconds: number): string {
  const whole = Math.round(seconds);
  const parts = [
    [Math.floor(whole / 3600), 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ] as const;
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return '0 s';
  return parts
    .slice(first, first + 2)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(' ');
}
