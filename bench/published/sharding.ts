/**
 * @file The sharding of optimizer state, gradients and parameters that a published table states, by the names that systems have
 * for it.
 */
import { UNSTATED } from './numbers.js';

/** Levels of ZeRO; the first match counts. */
const NAMES: readonly (readonly [pattern: RegExp, level: number])[] = [
  [/^\s*(no|none|false|off|without|ddp|replicated)\b|(fsdp|zero)\s*[=:]\s*(0|no|false|off)\b/i, 0],
  [/(?:^|zero\D{0,3}|stage\D{0,3})([0-3])(?!\d)/i, Number.NaN],
  [/shard_grad_op/i, 2],
  [/fsdp|hsdp|full.shard|fully.shard/i, 3],
  [/dist(ributed)?\W?(opt|adam)/i, 1],
];

/** The stated level; undefined if none is stated or the name is unknown. */
export function zeroLevel(text: string): 0 | 1 | 2 | 3 | undefined {
  if (UNSTATED.test(text) && !/^\s*none\s*$/i.test(text)) return undefined;
  for (const [pattern, level] of NAMES) {
    const found = pattern.exec(text);
    if (found) return (Number.isNaN(level) ? Number(found[1]) : level) as 0 | 1 | 2 | 3;
  }
  return undefined;
}
