/**
 * @file The cost of each pin of a plan: the model is planned again without the pin, and without all pins.
 */
import type { MeshDegrees } from '../../search/degrees.js';
import { type PlanOptions, plan as search } from '../../search/plan.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import type { PinSource } from '../../sharding-propagation/pin.js';
import { innerMesh } from '../../sharding-propagation/roles.js';
import type { Replanning } from '../planning/replan.js';

export interface DroppedPin {
  /** As the user wrote it; null for all pins at once. */
  readonly pin: string | null;
  readonly file: string | null;
  readonly line: number | null;
  /** Seconds by which a step would be shorter without it. */
  readonly savedSeconds: number;
  /** Upper bound of the seconds that any plan without it saves. */
  readonly atMostSeconds: number;
  /** Degrees of the plan without it. */
  readonly degrees: MeshDegrees;
}

/** A pin that is left out, and the options of the search without it. */
interface Omission extends Pick<DroppedPin, 'pin' | 'file' | 'line'> {
  readonly options: PlanOptions;
}

/** Plans without each pin in turn, without the given degrees, and without all of these. */
export async function droppedPins(
  replanning: Replanning,
  signal: AbortSignal | undefined,
  onProgress: (text: string) => void,
): Promise<readonly DroppedPin[]> {
  const { plan, imported, cluster } = replanning;
  const omissions = await omissionsOf(replanning);
  const dropped: DroppedPin[] = [];
  for (const [index, { options, ...what }] of omissions.entries()) {
    onProgress(`pins: without ${what.pin ?? 'any'}, ${index + 1} of ${omissions.length}`);
    const found = await search(imported.graph, cluster, { ...options, ...(signal ? { signal } : {}) });
    const savedSeconds = plan.predicted.stepSeconds - found.prediction.stepSeconds;
    dropped.push({
      ...what,
      savedSeconds,
      atMostSeconds: savedSeconds + (found.costNanoseconds - found.boundNanoseconds) / 1e9,
      degrees: found.degrees,
    });
  }
  return dropped.sort((a, b) => b.savedSeconds - a.savedSeconds);
}

async function omissionsOf({ plan, options, pinsOfFreeDegrees }: Replanning): Promise<readonly Omission[]> {
  const { operatorPins, degrees = {}, request, ...others } = options;
  // The sp method of attention is part of the degree of sp.
  const { spMethod: _, ...words } = request ?? {};
  const free = { ...others, request: words };
  // Meshes of stages are left unchanged: without them the pipeline would be another.
  const given = plan.meshes ? [] : Object.entries(degrees).map(([axis, size]) => `${axis}=${size}`);
  const mesh = innerMesh(plan.degrees);
  const sources = new Map((operatorPins?.(mesh) ?? []).map(({ source }) => [sourceKey(source), source]));
  const pinsOfFree = await pinsOfFreeDegrees();
  const single = [
    ...(given.length > 0
      ? [
          {
            ...{ pin: given.join(' · '), file: null, line: null },
            options: { ...free, ...(pinsOfFree ? { operatorPins: pinsOfFree } : {}) },
          },
        ]
      : []),
    ...[...sources].map(([key, { text, file, line }]): Omission => {
      const left = (on: Mesh) => (operatorPins?.(on) ?? []).filter(({ source }) => sourceKey(source) !== key);
      return { pin: text, file, line, options: { ...options, degrees, operatorPins: left } };
    }),
  ];
  return single.length > 1 ? [...single, { pin: null, file: null, line: null, options: free }] : single;
}

function sourceKey({ file, line, text }: PinSource): string {
  return JSON.stringify([file, line, text]);
}
