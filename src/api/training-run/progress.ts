/**
 * @file The progress of a training run in one line, for a terminal.
 */
import type { StepMetrics } from './metrics.js';

export function progressText(metrics: StepMetrics, steps: number, meanSeconds: number): string {
  const { step, loss, samplesPerSecond, tokensPerSecond } = metrics;
  const left = durationText((steps - step) * meanSeconds);
  const rate = Number((tokensPerSecond ?? samplesPerSecond).toPrecision(3));
  const counted = tokensPerSecond === null ? 'samples' : 'tokens';
  return `step ${step} of ${steps}, loss ${loss.toPrecision(5)}, ${rate} ${counted}/s, ${left} left`;
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
