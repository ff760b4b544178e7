/**
 * @file From the description of a cluster (a file, or its record in plan.json) to its devices and links.
 */
import { isDeepStrictEqual } from 'node:util';
import { MOST_DEVICES } from '../sharding-propagation/mesh.js';
import type { Cluster, NodeKind } from './cluster.js';
import {
  type ClusterDescription,
  DEVICE_QUANTITIES,
  type DeviceDescription,
  LEVEL_QUANTITIES,
  type LevelDescription,
  type Quantity,
} from './cluster-schema.js';
import { CPU_RANK, type DeviceSpec, profileOf } from './device.js';
import { findDevice, offerDevices } from './find-device.js';
import { type ClusterLevel, deviceLevels, FITTED_FILL, NETWORK_SHARE } from './levels.js';
import { layerFactors, type MeasuredLayer } from './measured-layers/layer-factors.js';
import { isSameLayer } from './measured-layers/layer-shape.js';
import { slowed, slowestOf } from './node-kinds.js';
import { type QuantityKind, quantityExample, quantityOf } from './quantities.js';

/** A place in the description. */
type Path = readonly (string | number)[];

/** Makes the error for a description that cannot be followed; it knows file and lines. */
export type Refuse = (path: Path, sentence: string, hint: string) => Error;

/**
 * The cluster of a description whose form was checked.
 * @throws the error that `refuse` makes, for unknown devices, invalid quantities, numbers that contradict each other
 */
export function describedCluster(description: ClusterDescription, refuse: Refuse): Cluster {
  const { levels, nodes } = description;
  const device = deviceOf(description.device, ['device'], refuse);
  const devices = levels.reduce((product, { size }) => product * size, 1);
  if (devices > MOST_DEVICES)
    throw refuse(['levels'], `the levels multiply to ${devices} devices`, `autopar plans for at most ${MOST_DEVICES}`);
  for (const [index, { name }] of levels.entries())
    if (levels.findIndex((other) => other.name === name) < index)
      throw refuse(
        ['levels', index, 'name'],
        `levels[${index}] repeats the name "${name}"`,
        'reports identify levels by name: give each level its own name',
      );
  const named = levels.findIndex(({ name }) => name === 'node');
  const node = named >= 0 ? named : Math.max(0, levels.length - 2);
  const perNode = levels.slice(0, node + 1).reduce((product, { size }) => product * size, 1);
  const kinds = nodes ? joined(kindsOf(description, device, devices / perNode, refuse)) : [];
  checkLayers(description.measuredLayers ?? [], refuse);
  const bounding = kinds.length > 0 ? slowestOf(kinds.map((kind) => kind.device)) : device;
  return {
    nodes: devices / perNode,
    perNode,
    device: bounding,
    levels: levels.map((level, index) => levelOf(level, index, node, { description, device: bounding, refuse })),
    local: device.id === CPU_RANK.id,
    ...(kinds.length > 1 ? { kinds } : {}),
    ...(description.measuredLayers ? { layerFactors: layerFactors(description.measuredLayers) } : {}),
    description,
  };
}

/** One layer has one factor. */
function checkLayers(layers: readonly MeasuredLayer[], refuse: Refuse): void {
  for (const [index, layer] of layers.entries()) {
    const first = layers.findIndex((other) => isSameLayer(other, layer));
    if (first < index)
      throw refuse(
        ['measuredLayers', index],
        `measuredLayers[${index}] is the same layer as measuredLayers[${first}]`,
        'remove one of them, or calibrate again with the runs of both',
      );
  }
}

/** The kinds of nodes in their order. */
function kindsOf(
  { nodes = [] }: ClusterDescription,
  usual: DeviceSpec,
  count: number,
  refuse: Refuse,
): readonly NodeKind[] {
  const described = nodes.reduce((sum, node) => sum + node.count, 0);
  if (described !== count)
    throw refuse(
      ['nodes'],
      `nodes describes ${described} nodes, and the levels make ${count}`,
      'let the counts add up to the nodes',
    );
  return nodes.map((node, index) => {
    const device = node.device === undefined ? usual : deviceOf(node.device, ['nodes', index, 'device'], refuse);
    const { speed = 1 } = node;
    return { nodes: node.count, device: speed === 1 ? device : slowed(device, speed) };
  });
}

/** Neighbours that are alike are of one kind: nodes that do not differ are searched and priced as such. */
function joined(kinds: readonly NodeKind[]): readonly NodeKind[] {
  const found: NodeKind[] = [];
  for (const kind of kinds) {
    const last = found.at(-1);
    if (last && isDeepStrictEqual(last.device, kind.device))
      found[found.length - 1] = { ...last, nodes: last.nodes + kind.nodes };
    else found.push(kind);
  }
  return found;
}

function deviceOf(described: string | DeviceDescription, path: Path, refuse: Refuse): DeviceSpec {
  const record = typeof described === 'string' ? { like: described } : described;
  const found = findDevice(record.like);
  if (!found) {
    const place = typeof described === 'string' ? path : [...path, 'like'];
    throw refuse(place, `no device "${record.like}" in the catalogue`, offerDevices(record.like));
  }
  if (typeof described === 'string') return found;
  const { memory, memoryBandwidth, host, peak, constants } = described;
  const read = (value: Quantity, kind: QuantityKind, ...key: Path) => quantity(value, kind, [...path, ...key], refuse);
  const peaks = Object.entries(peak ?? {}).map(
    ([format, value]) => [format, read(value, 'flopsPerSecond', 'peak', format)] as const,
  );
  return {
    ...found,
    ...(described.name === undefined ? {} : { name: described.name }),
    ...(peak === undefined
      ? {}
      : { peakFlops: { ...found.peakFlops, ...Object.fromEntries(peaks) }, measuredMatmulFlops: {} }),
    ...(memory === undefined ? {} : { memoryBytes: read(memory, DEVICE_QUANTITIES.memory, 'memory') }),
    ...(memoryBandwidth === undefined
      ? {}
      : { memoryBandwidth: read(memoryBandwidth, DEVICE_QUANTITIES.memoryBandwidth, 'memoryBandwidth') }),
    ...(host === undefined
      ? {}
      : {
          host: {
            linkBandwidth: read(host.bandwidth, 'bytesPerSecond', 'host', 'bandwidth'),
            memoryBytes: read(host.memory, 'bytes', 'host', 'memory'),
            memoryBandwidth: read(host.memoryBandwidth, 'bytesPerSecond', 'host', 'memoryBandwidth'),
          },
        }),
    ...(constants === undefined ? {} : { profile: { ...profileOf(found), ...constants } }),
  };
}

interface ClusterReading {
  readonly description: ClusterDescription;
  readonly device: DeviceSpec;
  readonly refuse: Refuse;
}

/** A level, with the catalogue's values of its device where the description has none. */
function levelOf(level: LevelDescription, index: number, node: number, around: ClusterReading): ClusterLevel {
  const { description, device, refuse } = around;
  const path: Path = ['levels', index];
  const read = (key: keyof typeof LEVEL_QUANTITIES): number | undefined => {
    const value = level[key];
    return value === undefined ? undefined : quantity(value, LEVEL_QUANTITIES[key], [...path, key], refuse);
  };
  const inside = index <= node;
  if (level.dimensions !== undefined && level.topology !== 'torus')
    throw refuse(
      [...path, 'dimensions'],
      `levels[${index}] has dimensions and is not a torus`,
      'give it topology: torus',
    );
  if (level.cards !== undefined && inside)
    throw refuse(
      [...path, 'cards'],
      `levels[${index}] is inside a node, where devices share no network cards`,
      'give cards to the level that joins nodes',
    );
  const usual = usualLevel(device, inside);
  const { linkCeiling } = profileOf(device);
  const bandwidth = read('bandwidth');
  const shared = level.cards === undefined ? 1 : level.cards / devicesPerNode(description, node);
  if (level.cards !== undefined && bandwidth === undefined)
    throw refuse([...path, 'cards'], `levels[${index}] has cards without a bandwidth`, "give one card's bandwidth");
  const own = bandwidth !== undefined || level.topology !== undefined;
  const buses = Object.entries(level.busBandwidth ?? {}).map(
    ([kind, value]) => [kind, quantity(value, 'bytesPerSecond', [...path, 'busBandwidth', kind], refuse)] as const,
  );
  const reducing = read('reducing');
  return {
    ...(own ? { ...usual, busBandwidth: {}, reducingBandwidth: 0, dimensions: 1 } : usual),
    name: level.name,
    size: level.size,
    ...(level.topology === undefined ? {} : { topology: level.topology }),
    ...(level.topology === 'torus' ? { dimensions: level.dimensions ?? 2 } : {}),
    ...(bandwidth === undefined ? {} : { bandwidth: bandwidth * shared * (inside ? linkCeiling : NETWORK_SHARE) }),
    ...(buses.length === 0 ? {} : { busBandwidth: Object.fromEntries(buses) }),
    ...(reducing === undefined ? {} : { reducingBandwidth: reducing }),
    latencySeconds: read('latency') ?? usual.latencySeconds,
    fill: level.fill === undefined ? usual.fill : { ...FITTED_FILL.node, seconds: read('fill') ?? 0 },
    relayed: !inside,
  };
}

/** The catalogue's links inside a node, or between nodes. */
function usualLevel(device: DeviceSpec, inside: boolean): ClusterLevel {
  const [node, network] = deviceLevels(device, 2, 2);
  return (inside ? node : network) as ClusterLevel;
}

function devicesPerNode({ levels }: ClusterDescription, node: number): number {
  return levels.slice(0, node + 1).reduce((product, { size }) => product * size, 1);
}

function quantity(value: Quantity, kind: QuantityKind, path: Path, refuse: Refuse): number {
  const found = quantityOf(value, kind);
  if (found !== null) return found;
  const place = path.map((key) => (typeof key === 'number' ? `[${key}]` : `.${key}`)).join('');
  throw refuse(
    path,
    `${place.replace(/^\./, '')} is ${JSON.stringify(value)}, where ${quantityExample(kind)} is expected`,
    'docs/clusters.md describes the form',
  );
}
