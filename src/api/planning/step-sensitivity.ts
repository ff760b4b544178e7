/**
 * @file How much a step's plan gains or loses on a changed cluster: one gigabyte more, links twice as fast. Each change is
 * searched again on works that are read already.
 */
import { fasterLinks } from '../../cost-model/faster-links.js';
import { AutoparError } from '../../ir/error.js';
import { fitsIn, type PricedConfiguration } from '../../search/configurations/priced.js';
import { pricingOf } from '../../search/configurations/step-pricing.js';
import { tensorBytes } from './comparison.js';
import { type PreparedStep, type StepSearch, searchPrepared } from './search-step.js';

/** One change of the cluster, and the best plan under it. */
export interface Sensitivity {
  readonly change: string;
  /** With the bytes of its tensors; null where nothing fits then. */
  readonly best: PricedConfiguration | null;
  /** Its seconds over those of the present plan. */
  readonly ratio: number | null;
}

/** The changes, in the order in which they are shown. */
export async function sensitivities(prepared: PreparedStep, found: StepSearch): Promise<readonly Sensitivity[]> {
  const [present] = found.best as readonly [PricedConfiguration];
  const all: Sensitivity[] = [];
  for (const [change, changed] of changesOf(prepared)) {
    const best = await bestOf(changed, present);
    all.push({
      change,
      best: best && { ...best, bytes: tensorBytes(best.bytes, found) },
      ratio: best ? best.seconds / present.seconds : null,
    });
  }
  return all;
}

/** The best plan on a changed cluster, which may be the present one, as a search prices only a limited number of cuts. */
async function bestOf(prepared: PreparedStep, present: PricedConfiguration): Promise<PricedConfiguration | null> {
  const { cluster, works, limitBytes, searching } = prepared;
  try {
    const { best } = await searchPrepared({ ...prepared, searching: { ...searching, top: 1 } });
    const kept: PricedConfiguration = { ...present, ...pricingOf(cluster, works).exactly(present.configuration) };
    const isKept = searching.objective === 'time' && fitsIn(kept, limitBytes);
    const all = [...best.slice(0, 1), ...(isKept ? [kept] : [])];
    return all.reduce((least, own) => (own.seconds < least.seconds ? own : least));
  } catch (error) {
    if (error instanceof AutoparError && error.code === 'nothing-fits') return null;
    throw error;
  }
}

function changesOf(prepared: PreparedStep): readonly (readonly [string, PreparedStep])[] {
  const { cluster, limitBytes } = prepared;
  const withMemory = (bytes: number): PreparedStep => ({ ...prepared, limitBytes: bytes });
  const withLinks = (which: 'inside' | 'between'): PreparedStep => ({
    ...prepared,
    cluster: fasterLinks(cluster, which, 2),
  });
  return [
    ...(limitBytes === null
      ? []
      : [
          ['1 GB more memory per device', withMemory(limitBytes + 1e9)] as const,
          ['twice the memory', withMemory(2 * limitBytes)] as const,
          ['half the memory', withMemory(limitBytes / 2)] as const,
        ]),
    ...(cluster.nodes > 1 ? [['twice the network between nodes', withLinks('between')] as const] : []),
    ['twice the links inside a node', withLinks('inside')],
  ];
}
