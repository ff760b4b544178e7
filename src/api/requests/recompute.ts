/**
 * @file Converts requests for recompute (`full:0-3,6`, `stage:except-last`, pins of annotations) to the forward operators that
 * they select.
 */
import { type RecomputedSet, withClones } from '../../ir/autodiff/recompute.js';
import { operatorsOfKind, repeatedLayers } from '../../ir/autodiff/recompute-kinds.js';
import type { RecomputeKind } from '../../ir/autodiff/recompute-names.js';
import { badOption } from '../../ir/error.js';
import { matchesGlob } from '../../ir/glob.js';
import { type Graph, isBackward } from '../../ir/graph.js';
import { offer } from '../../ir/nearest.js';
import type { Interleave } from '../../partition/sharded-graph.js';
import type { RecomputePin } from '../../sharding-propagation/pin.js';
import { readRecompute } from './recompute-words.js';

/** The forward operators that a training graph recomputes, and notes for the user. */
export interface RecomputedOperators extends RecomputedSet {
  readonly notes: readonly string[];
}

/**
 * @param request as given to `--recompute`; undefined if there is none
 * @param pins these take precedence over the request
 * @param interleave micro-batches of the graph that run at a time, as halves of one
 * @throws AutoparError (usage) `bad-option` for an inference graph, an unknown kind, or layers that do not exist
 */
export function recomputedOperators(
  graph: Graph,
  request: string | undefined,
  pins: readonly RecomputePin[],
  interleave: Interleave = 1,
): RecomputedOperators {
  const { kind, layers, exceptLast } = readRecompute(request ?? 'none');
  const acrossLayers = kind === 'stage';
  const isTrained = graph.nodes.some(({ phase }) => isBackward(phase));
  if (!isTrained) {
    refuseUntrained(request);
    const pin = pins.find(({ recompute }) => recompute);
    return {
      ...{ operators: new Set(), acrossLayers, exceptLast },
      notes: pin ? [`${pin.source.text}: inference stores no activations`] : [],
    };
  }
  const operators = new Set(operatorsOfKind(graph, kind, layersOf(graph, kind, layers, request ?? '')));
  for (const { node, recompute } of pins) {
    if (recompute) operators.add(node);
    else operators.delete(node);
  }
  const isAsked = kind !== 'none' || pins.some(({ recompute }) => recompute);
  const asked = kind === 'none' ? (pins[0]?.source.text ?? '') : `--recompute ${request}`;
  if (exceptLast && (graph.microBatches?.count ?? 1) === interleave)
    return {
      ...{ operators: new Set(), acrossLayers, exceptLast },
      notes: [`${asked} changes nothing: a step has one micro-batch, which is the last`],
    };
  const changes = isAsked && withClones(graph, { operators, acrossLayers, exceptLast }) !== graph;
  return {
    ...{ operators, acrossLayers, exceptLast },
    notes: isAsked && !changes ? [`${asked} changes nothing: no gradient reads these activations`] : [],
  };
}

/** @throws AutoparError (usage) `bad-option` for a request that only applies to training */
export function refuseUntrained(request: string | undefined): void {
  if (request === undefined || readRecompute(request).kind === 'none') return;
  throw badOption(
    `--recompute ${request} applies to training only: inference stores no activations`,
    'add --train, or leave out --recompute',
  );
}

function layersOf(
  graph: Graph,
  kind: RecomputeKind,
  asked: readonly string[] | null,
  request: string,
): ReadonlySet<string | null> | null {
  const layers = repeatedLayers(graph);
  if (kind === 'none' && asked === null) return new Set();
  if (kind === 'stage' && asked === null) return null;
  if (layers.length === 0 && (asked !== null || kind === 'full'))
    throw badOption(
      `--recompute ${request} needs repeated layers, and the model has none`,
      'take --recompute selective, operators or stage, or pin operators in annotations (recompute: true)',
    );
  if (asked === null) return new Set(layers.length === 0 ? [null] : layers);
  return new Set(asked.flatMap((part) => layersNamed(part, layers, request)));
}

function layersNamed(part: string, layers: readonly string[], request: string): readonly string[] {
  const [, from, to = from] = /^(\d+)(?:-(\d+))?$/.exec(part) ?? [];
  if (from === undefined) {
    const found = layers.filter((name) => matchesGlob(part, name));
    if (found.length > 0) return found;
    throw badOption(`--recompute ${request}: no layer has a name that fits '${part}'`, offer(part, layers));
  }
  const [first, last] = [Number(from), Number(to)];
  const range = `the model's layers are 0 to ${layers.length - 1}`;
  if (first > last) throw badOption(`--recompute ${request}: ${part} ends before it begins`, `give ${last}-${first}`);
  if (last >= layers.length)
    throw badOption(
      `--recompute ${request}: there is no layer ${first >= layers.length ? first : last}; ${range}`,
      first >= layers.length ? `the last is ${layers.length - 1}` : `give ${first}-${layers.length - 1}`,
    );
  return layers.slice(first, last + 1);
}
