/**
 * @file plan.json of version 1 as version 2: classes of layers, partial sums and reductions have other names. A pipeline of
 * version 1 does not state the stage of its operators, so that there is nothing to convert.
 */
import { isRecord } from '../ir/schema-check.js';
import { withoutUndefined } from '../ir/without-undefined.js';
import { STAGE_AXIS } from '../sharding-propagation/mesh.js';

/** The plan in the form of version 2; null where it has stages. Whether it is a plan at all is checked afterwards. */
export function fromVersion1(plan: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> | null {
  const { layers, operators, degrees, ...others } = plan;
  const entries = isRecord(operators) ? Object.entries(operators) : [];
  const hasStages =
    (isRecord(degrees) && degrees[STAGE_AXIS] !== 1) ||
    entries.some(([, entry]) => isRecord(entry) && entry['stage'] !== 0);
  if (hasStages) return null;
  return {
    ...others,
    ...(degrees === undefined ? {} : { degrees }),
    ...(layers === undefined ? {} : { layerClasses: layers }),
    ...(operators === undefined ? {} : { operators: isRecord(operators) ? renamed(entries) : operators }),
    version: 2,
  };
}

function renamed(entries: readonly (readonly [string, unknown])[]): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    entries.map(([name, entry]) => {
      if (!isRecord(entry)) return [name, entry];
      const { carried: partialOperands, owed, ...others } = entry;
      return [
        name,
        {
          ...others,
          ...withoutUndefined({ partial: partialOperands, reduction: owed }),
        },
      ];
    }),
  );
}
