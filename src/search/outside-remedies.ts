/**
 * @file Remedies with memory outside of the devices where no plan fits them: operators on the host, or the smallest offload
 * that fits.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { memoryOf, predict } from '../cost-model/predict.js';
import { type Graph, isBackward, type Node } from '../ir/graph.js';
import { hostedWith, type OffloadPlaces, offloaded } from '../partition/offload.js';
import { localBytes } from '../partition/partition.js';
import type { ShardedGraph } from '../partition/sharded-graph.js';
import { offloadParts } from '../strategy/offload-words.js';
import { lowered, type SolvedDegrees } from './choose-degrees.js';
import { bytesWritten } from './figures.js';

/** Kinds of offload, from the cheapest to the one that frees most. */
const OF_TRAINING = ['optimizer', 'optimizer,activations', 'all'] as const;
const OF_INFERENCE = ['parameters'] as const;

/**
 * Remedies in words, with the memory that a device then holds; none where none fits, or the devices' hosts are not known.
 * @param solved solutions without a memory limit
 * @param asked tensors that are kept outside already
 */
export function outsideRemedies(
  graph: Graph,
  cluster: Cluster,
  limit: number,
  solved: readonly SolvedDegrees[],
  asked: OffloadPlaces,
): readonly string[] {
  if (!cluster.local && !cluster.device.host) return [];
  const whole = solved.map((one) => ({ degrees: one.degrees, sharded: lowered(graph, cluster, one) }));
  const fitting = (places: OffloadPlaces) =>
    whole.flatMap(({ degrees, sharded }) => {
      const own = offloaded(sharded, places);
      const { peakBytes } = memoryOf(own, cluster);
      const [need, allowed] = [peakBytes, limit].map(bytesWritten);
      const text = `a device then holds ${need} of ${allowed} with dp ${degrees.dp} tp ${degrees.tp}`;
      return peakBytes <= limit ? [{ text, own }] : [];
    });
  const hosted = whole
    .flatMap(({ sharded }) => worthHosting(graph, sharded))
    .filter(({ name }, index, all) => all.findIndex((other) => other.name === name) === index)
    .flatMap(({ name }) => {
      const places = {
        ...asked,
        hosted: new Set([...asked.hosted, ...hostedWith(graph, (node) => node.name === name)]),
      };
      return fitting(places).map(({ text, own }) => ({ name, text, seconds: predict(own, cluster).stepSeconds }));
    })
    .sort((a, b) => a.seconds - b.seconds)[0];
  const trains = graph.nodes.some(({ phase }) => isBackward(phase));
  const parts = (trains ? OF_TRAINING : OF_INFERENCE).flatMap((words) =>
    fitting({ ...asked, parts: { ...offloadParts(words), ...asked.parts } }).map(({ text }) => ({ words, text })),
  )[0];
  return [
    ...(hosted ? [`pin ${hosted.name} with place: host in --annotations: ${hosted.text}`] : []),
    ...(parts ? [`add --offload ${parts.words}: ${parts.text}`] : []),
  ];
}

/** How many operators are tried, from the largest weights on. */
const LOOKED_AT = 3;

/** Forward operators with weights larger than the tensors that would cross the link instead, such as lookups. */
function worthHosting(graph: Graph, { tensors }: ShardedGraph): readonly Node[] {
  const parameters = new Set([...graph.weights.keys(), ...graph.state.map(({ input }) => input)]);
  const bytes = (names: readonly (string | null)[]) =>
    names.reduce((sum, name) => {
      const tensor = name === null ? undefined : tensors.get(name);
      return sum + (tensor ? localBytes(tensor) : 0);
    }, 0);
  const isWeight = (name: string | null) => name !== null && parameters.has(name);
  return graph.nodes
    .filter(({ phase }) => phase === 'forward')
    .map((node) => ({
      node,
      kept: bytes(node.inputs.filter(isWeight)),
      crossing: bytes([...node.inputs.filter((name) => !isWeight(name)), ...node.outputs]),
    }))
    .filter(({ kept, crossing }) => kept > crossing)
    .sort((a, b) => b.kept - a.kept)
    .slice(0, LOOKED_AT)
    .map(({ node }) => node);
}
