/**
 * @file Degrees of the public verbs, with `dp` and `tp` next to the other options, and of their implementations, in `degrees`.
 */
import { badOption } from '../../ir/error.js';
import { withoutUndefined } from '../../ir/without-undefined.js';
import { SEARCHED_AXES } from '../../sharding-propagation/roles.js';
import type { NestedCompileOptions } from '../compile.js';
import type { ModelChoice } from '../models/model-choice.js';
import type { NestedPlanningOptions } from '../plan.js';
import { checkDegrees, type DegreeOptions, MULTIPLIED } from '../requests/degrees.js';

type AxisDegreeOptions = Omit<DegreeOptions, 'devices'>;

const SEARCHED: ReadonlySet<string> = new Set(SEARCHED_AXES);

/** Degrees as separate options, as on the command line. */
interface FlatDegrees extends AxisDegreeOptions {
  /** @deprecated older spelling of `dp` and `tp` */
  readonly degrees?: AxisDegreeOptions;
}

export interface PlanningOptions extends Omit<NestedPlanningOptions, 'degrees'>, FlatDegrees {}

export interface CompileOptions extends Omit<NestedCompileOptions, 'degrees' | 'model'>, FlatDegrees, ModelChoice {}

/** Options with degrees as implementations take them. @throws AutoparError (usage) for degrees that contradict each other */
export function nested<
  Options extends FlatDegrees & Pick<NestedPlanningOptions, 'devices' | 'annotations' | 'config'>,
>({
  dp,
  tp,
  pp,
  sp,
  ep,
  degrees,
  ...options
}: Options): Omit<Options, keyof FlatDegrees> & { readonly degrees: AxisDegreeOptions } {
  const flat = withoutUndefined({ dp, tp, pp, sp, ep });
  const twice = Object.keys(flat).find((axis) => degrees?.[axis as keyof AxisDegreeOptions] !== undefined);
  if (twice !== undefined)
    throw badOption(`--${twice} and degrees.${twice} are the same option`, 'give --dp, --tp and --pp alone');
  const all: DegreeOptions = { ...degrees, ...flat };
  // If annotations or a configuration may pin stages or sequences, dp and tp alone need not multiply to the devices.
  const isOpen = options.annotations !== undefined || options.config !== undefined;
  const axes = MULTIPLIED.filter((axis) => isOpen || all[axis] !== undefined || SEARCHED.has(axis));
  const { devices } = options;
  checkDegrees({ ...all, ...withoutUndefined({ devices }) }, axes);
  return { ...options, degrees: all };
}
