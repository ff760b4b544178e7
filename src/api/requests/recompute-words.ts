/** @file The words of `--recompute`: a kind, the layers that it applies to, and whether the last micro-batch is left out. */
import { RECOMPUTE_KINDS, type RecomputeKind } from '../../ir/autodiff/recompute-names.js';
import { badOption } from '../../ir/error.js';
import { nearest, offer } from '../../ir/nearest.js';

/** A request in its parts. */
export interface RecomputeRequest {
  readonly kind: RecomputeKind;
  /** Numbers, ranges of them, and globs of layers' names; null for all layers. */
  readonly layers: readonly string[] | null;
  /** Whether the last micro-batch of a step stores the activations that the others recompute. */
  readonly exceptLast: boolean;
}

/** The suffix of a kind, or of its layers. */
const EXCEPT_LAST = 'except-last';

/** @throws AutoparError (usage) `bad-option` for an unknown kind, or an empty set of layers */
export function readRecompute(text: string): RecomputeRequest {
  const exceptLast = text.endsWith(`:${EXCEPT_LAST}`);
  const said = exceptLast ? text.slice(0, -EXCEPT_LAST.length - 1) : text;
  const at = said.indexOf(':');
  const [named, set] = at < 0 ? [said, null] : [said.slice(0, at), said.slice(at + 1)];
  const kind = RECOMPUTE_KINDS.find((name) => name === named);
  if (!kind)
    throw badOption(
      `--recompute ${text}: '${named}' is not a kind of recompute`,
      nearest(named, RECOMPUTE_KINDS) === undefined
        ? `the kinds are ${RECOMPUTE_KINDS.join(', ')}`
        : offer(named, RECOMPUTE_KINDS),
    );
  const layers = set === null ? null : set.split(',').map((part) => part.trim());
  if (layers?.some((part) => part === ''))
    throw badOption(
      `--recompute ${text}: the set of layers has an empty part`,
      'give numbers, ranges and globs of layers with commas between, such as full:0-3,6',
    );
  if (kind === 'none' && text !== kind)
    throw badOption(
      `--recompute ${text}: none recomputes nothing and takes no layers`,
      'give none, or a kind before it, such as full:0-3',
    );
  return { kind, layers, exceptLast };
}
