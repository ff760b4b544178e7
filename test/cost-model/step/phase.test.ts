/**
 * @file One phase of one part: the cost of adding up gradients, and how host and device make up its time.
 */

import test from 'ava';
import fc from 'fast-check';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { memorySeconds } from '../../../src/cost-model/kernel-price.js';
import type { StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { STEP_CONSTANTS, type StepConstants } from '../../../src/cost-model/step/constants.js';
import { PhasePricing } from '../../../src/cost-model/step/phase-price.js';
import { elapsedSeconds, type PhaseTime } from '../../../src/cost-model/step/phase-time.js';
import type { MatmulWork } from '../../../src/cost-model/step/work.js';
import { trained } from './trained.js';

const cluster = parseCluster('1x8:a100-sxm-80', undefined);
const degrees = { tp: 1, pp: 1, dp: 8 };
const gradient: MatmulWork = {
  kind: 'matmul',
  batch: 1,
  rows: 1024,
  columns: 4096,
  depth: 2048,
  experts: false,
  tokens: 'depth',
};

function phase(changes: Partial<StepConfiguration>, constants: StepConstants = STEP_CONSTANTS): PhaseTime {
  return new PhasePricing(1, { ...trained(degrees), ...changes }, cluster, constants).phase([gradient]);
}

test("a weight's gradient is read and added to its accumulator, except by products that do it and with ZeRO 3", (t) => {
  const elements = gradient.rows * gradient.columns;
  const moved = (bytes: number) => memorySeconds(elements * bytes, cluster.device);
  t.is(phase({ software: 'megatron', precision: 'fp16' }).memory, moved(2 + 2 * 2));
  t.is(phase({ software: 'megatron', gradientBytes: 4 }).memory, moved(2 + 2 * 4));
  t.is(phase({ software: 'megatron', tpSequence: true }).memory, 0);
  t.is(phase({ software: 'megatron-core' }).memory, 0);
  t.is(phase({ software: 'eager', zero: 3 }).memory, 0);
});

test('a phase takes as long as the longer of host and device, at most as both, and a quarter more where they are alike', (t) => {
  const busy = elapsedSeconds(phase({ software: 'megatron-core' }, withHost(0)));
  t.is(phase({ software: 'megatron-core' }, withHost(0)).launch, 0);
  const alike = elapsedSeconds(phase({ software: 'megatron-core' }, withHost(busy)));
  t.true(Math.abs(alike / (busy * 2 ** (1 / STEP_CONSTANTS.hostPower)) - 1) < 1e-9);
  fc.assert(
    fc.property(fc.double({ min: 0, max: 100, noNaN: true }), (ratio) => {
      const seconds = elapsedSeconds(phase({ software: 'megatron-core' }, withHost(ratio * busy)));
      const [longer, both] = [Math.max(1, ratio) * busy, (1 + ratio) * busy];
      t.true(seconds > longer * (1 - 1e-9) && seconds < both * (1 + 1e-9));
    }),
  );
});

test('experts that are multiplied one by one cost the host a launch each, those of one kernel none', (t) => {
  const experts: MatmulWork = { ...gradient, batch: 64, rows: 64, experts: true, tokens: 'rows' };
  const bound = { ...STEP_CONSTANTS, expertSeconds: 1 };
  const launched = (software: StepConfiguration['software'], ep: number) => {
    const own = trained(degrees);
    const configuration = { ...own, software, degrees: { ...own.degrees, ep } };
    return Math.round(new PhasePricing(2, configuration, cluster, bound).phase([experts]).launch);
  };
  t.deepEqual(
    [1, 2, 8].map((ep) => launched('megatron-core', ep)),
    [64, 32, 8],
  );
  t.is(launched('eager', 8), 0);
});

/** The matmul's one kernel takes the host so long. */
function withHost(hostSeconds: number): StepConstants {
  const { software } = STEP_CONSTANTS;
  return {
    ...STEP_CONSTANTS,
    software: { ...software, 'megatron-core': { ...software['megatron-core'], hostSeconds } },
  };
}
