/**
 * @file `autopar hardware`: the catalogue of devices that --cluster can name.
 */
import type { ExitKind, hardwareById } from '../api/index.js';
import type { Command, CommandContext } from './command.js';
import { bytesText, rateText } from './quantity.js';
import { numberColumns, tableLines, textColumns } from './table.js';

type Device = ReturnType<typeof hardwareById>;

export const hardwareCommand: Command = {
  name: 'hardware',
  says: 'list devices for --cluster, or one device with sources',
  arguments: [{ name: '[id]', says: 'device of the catalogue' }],
  options: [],
  examples: [
    { line: 'autopar hardware', says: 'all devices' },
    { line: 'autopar hardware h100-sxm-80', says: 'one device with the source of each figure' },
  ],
  run: runHardware,
};

async function runHardware({ output }: CommandContext, [id]: readonly string[]): Promise<ExitKind> {
  const { hardware, hardwareById } = await import('../api/index.js');
  const devices = id === undefined ? hardware() : [hardwareById(id)];
  const lines = id === undefined ? catalogueLines(devices) : devices.flatMap(deviceLines);
  for (const line of lines) output.print(line);
  output.data({ schema: 'autopar-hardware-v1', devices: devices.map(deviceJson) });
  return 'done';
}

function catalogueLines(devices: readonly Device[]): readonly string[] {
  const columns = [
    ...textColumns('id', 'name'),
    ...numberColumns('fp32', '16 bit', 'memory', 'bandwidth', 'links', 'network'),
  ];
  const rows = devices.map((device) => [
    device.id,
    device.name,
    flopRateText(device.peakFlops.fp32),
    flopRateText(device.peakFlops.bf16 ?? device.peakFlops.fp16),
    bytesText(device.memoryBytes),
    rateText(device.memoryBandwidth),
    rateText(device.scaleUp.bandwidth),
    rateText(device.scaleOut.bandwidth),
  ]);
  return tableLines(columns, rows);
}

function deviceLines(device: Device): readonly string[] {
  const { scaleUp, scaleOut, host } = device;
  const facts: readonly (readonly [string, string])[] = [
    ...Object.entries(device.peakFlops).map(([kind, flops]) => [`${kind} peak`, flopRateText(flops)] as const),
    ['memory', `${bytesText(device.memoryBytes)} at ${rateText(device.memoryBandwidth)}`],
    ['links', `${rateText(scaleUp.bandwidth)} each way, groups of ${scaleUp.domainSize}, ${scaleUp.topology}`],
    ['network', `${rateText(scaleOut.bandwidth)} each way per device`],
    ...(host
      ? [
          [
            'host',
            `${bytesText(host.memoryBytes)} at ${rateText(host.memoryBandwidth)} per device, ` +
              `${rateText(host.linkBandwidth)} each way`,
          ] as const,
        ]
      : []),
    ...measuredFacts(device),
    ...Object.entries(device.source).map(([figure, source]) => [`source: ${figure}`, source] as const),
  ];
  const width = Math.max(...facts.map(([name]) => name.length));
  return [
    `${device.name} (--cluster 1x8:${device.id})`,
    ...facts.map(([name, text]) => `  ${name.padEnd(width)}  ${text}`),
  ];
}

/** Rates that somebody measured: of matmuls, and bus bandwidths of collectives. */
function measuredFacts({
  measuredMatmulFlops = {},
  measuredCollectives = {},
}: Device): readonly (readonly [string, string])[] {
  return [
    ...Object.entries(measuredMatmulFlops).map(([kind, flops]) => [`${kind} measured`, flopRateText(flops)] as const),
    ...Object.entries(measuredCollectives).map(([name, value]) => {
      if (typeof value !== 'number') return [`source: ${name === 'source' ? 'collectives' : name}`, value] as const;
      return [MEASURED[name] ?? name, value < 1 ? `${(value * 1e6).toPrecision(2)} µs` : rateText(value)] as const;
    }),
  ];
}

/** Meaning of the catalogue's names; bandwidths are bus bandwidths in NCCL's convention. */
const MEASURED: Readonly<Record<string, string>> = {
  allReduceBusbwIntra: 'all-reduce in a node',
  allReduceBusbwIntraNvls: 'summed in the switch',
  allGatherBusbwIntra: 'all-gather in a node',
  reduceScatterBusbwIntra: 'reduce-scatter in a node',
  allToAllBusbwIntra: 'all-to-all in a node',
  p2pMeasured: 'between two devices',
  allReduceBusbw2gpu: 'all-reduce of two',
  allReduceBusbwInter: 'all-reduce over nodes',
  allReduceBusbwInterSharp: 'summed in the network',
  allToAllBusbwInter: 'all-to-all over nodes',
  alphaAllReduce8Seconds: 'smallest all-reduce of 8',
};

function deviceJson(device: Device): Readonly<Record<string, unknown>> {
  const { peakFlops, memoryBandwidth, scaleUp, scaleOut, host, ...rest } = device;
  return {
    ...rest,
    peakFlopsPerSecond: peakFlops,
    memoryBytesPerSecond: memoryBandwidth,
    scaleUp: {
      bytesPerSecond: scaleUp.bandwidth,
      latencySeconds: scaleUp.latencySeconds,
      devices: scaleUp.domainSize,
      topology: scaleUp.topology,
    },
    scaleOut: { bytesPerSecond: scaleOut.bandwidth, latencySeconds: scaleOut.latencySeconds },
    ...(host
      ? {
          host: {
            bytesPerSecond: host.linkBandwidth,
            memoryBytes: host.memoryBytes,
            memoryBytesPerSecond: host.memoryBandwidth,
          },
        }
      : {}),
  };
}

function flopRateText(flops: number | undefined): string {
  if (flops === undefined) return '–';
  return flops >= 1e12
    ? `${Number((flops / 1e12).toPrecision(3))} TFLOP/s`
    : `${Number((flops / 1e9).toPrecision(3))} GFLOP/s`;
}
