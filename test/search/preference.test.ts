/**
 * @file The plan that is taken, against its definition written as a filter and a sort over drawn lists.
 */
import test from 'ava';
import * as fc from 'fast-check';
import { type ComparedAlternative, preferencesOf, preferred } from '../../src/search/preference.js';

const LIMIT = 80;

const DRAWN = fc.array(
  fc.record({
    seconds: fc.oneof(fc.integer({ min: 100, max: 104 }), fc.integer({ min: 100, max: 130 })),
    bytes: fc.integer({ min: 60, max: LIMIT }),
    degrees: fc.record({ dp: fc.constantFrom(1, 4), sp: fc.constantFrom(1, 2, 4), tp: fc.constantFrom(1, 2) }),
    isOffloaded: fc.boolean(),
    liftsRoles: fc.boolean(),
  }),
  { minLength: 1, maxLength: 8 },
);

const same = (one: ComparedAlternative) => one;

/** Least first, as docs/planner.md has the criteria. */
function worth({ degrees, liftsRoles, bytes, isOffloaded, seconds }: ComparedAlternative): readonly number[] {
  const kinds = [degrees.dp, degrees.sp, degrees.tp].filter((degree) => degree !== 1).length;
  return [kinds, degrees.sp ?? 1, liftsRoles ? 1 : 0, Math.max(0, bytes - 72), isOffloaded ? 1 : 0, seconds];
}

function isLess(a: readonly number[], b: readonly number[]): boolean {
  const at = a.findIndex((own, index) => own !== b[index]);
  return at >= 0 && (a[at] as number) < (b[at] as number);
}

test('the simplest of those as fast as the fastest with headroom is taken, the fastest that fits beside it', (t) => {
  fc.assert(
    fc.property(DRAWN, fc.constantFrom(undefined, 0.1), (plans, headroom) => {
      const all = Math.min(...plans.map(({ seconds }) => seconds));
      // Headroom that is not asked for may cost a twentieth of the time.
      const most = headroom === undefined ? 1.05 * all : Number.POSITIVE_INFINITY;
      const roomy = plans.filter(({ bytes }) => bytes <= 0.9 * LIMIT);
      const open = roomy.some(({ seconds }) => seconds <= most) ? roomy : plans;
      const least = Math.min(...open.map(({ seconds }) => seconds));
      const near = open.filter(({ seconds }) => seconds <= 1.02 * least);
      const wish = headroom === undefined ? {} : { headroom };
      const { taken, passed } = preferred(plans, same, preferencesOf(wish, false), LIMIT);
      t.true(near.includes(taken));
      t.false(near.some((other) => isLess(worth(other), worth(taken))));
      if (passed) t.is(passed.plan.seconds, Math.min(...plans.map(({ seconds }) => seconds)));
      if (taken.seconds > Math.min(...plans.map(({ seconds }) => seconds))) t.not(passed, null);
    }),
  );
});

test('--prefer fastest --headroom 0 takes the fastest; a given memory limit may be used whole', (t) => {
  fc.assert(
    fc.property(DRAWN, (plans) => {
      const least = Math.min(...plans.map(({ seconds }) => seconds));
      const wish = { prefer: 'fastest', headroom: 0 } as const;
      t.is(preferred(plans, same, preferencesOf(wish, false), LIMIT).taken.seconds, least);
      t.is(preferred(plans, same, preferencesOf({ prefer: 'fastest' }, true), LIMIT).taken.seconds, least);
    }),
  );
});

test('the reason names the criterion, or the memory that is not left free', (t) => {
  const plan: ComparedAlternative = {
    seconds: 100,
    bytes: 60,
    degrees: { dp: 2, tp: 2, sp: 2 },
    isOffloaded: false,
    liftsRoles: false,
  };
  const because = (fastest: ComparedAlternative, other: ComparedAlternative) =>
    preferred([fastest, other], same, preferencesOf({}, false), LIMIT).passed?.because;
  t.is(
    because(plan, { ...plan, seconds: 101, degrees: { dp: 8 } }),
    'the plan has 1 kind of parallelism instead of 3 (--prefer fastest takes it)',
  );
  t.regex(because(plan, { ...plan, seconds: 102, degrees: { dp: 2, tp: 4, sp: 1 } }) ?? '', /2 kinds/);
  t.is(
    because({ ...plan, bytes: 78 }, { ...plan, seconds: 105 }),
    'leaves 2.5 % of the memory free, less than 10 % (--headroom)',
  );
  t.is(because({ ...plan, bytes: 78 }, { ...plan, seconds: 106 }), undefined);
  t.is(because(plan, { ...plan, seconds: 103, degrees: { dp: 8 } }), undefined);
});

test('a plan whose seconds do not hold is passed over', (t) => {
  const plan: ComparedAlternative = {
    seconds: 100,
    bytes: 60,
    degrees: { dp: 2, tp: 2 },
    isOffloaded: false,
    liftsRoles: false,
  };
  const simpler = { ...plan, seconds: 101, degrees: { dp: 4 } };
  const holds = (is: boolean) => preferred([plan, simpler], same, preferencesOf({}, false), LIMIT, () => is).taken;
  t.is(holds(true), simpler);
  t.is(holds(false), plan);
});
