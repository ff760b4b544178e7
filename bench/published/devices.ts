/**
 * @file The catalogue's device that a published table means: tables write "A100-SXM-80GB", "NVIDIA H100 80GB HBM3" and
 * "AMD Instinct MI300X", and some devices came with other memory than the catalogue's.
 */
import type { DeviceSpec } from '../../src/cost-model/device.js';
import { HARDWARE } from '../../src/cost-model/hardware.js';

/** The device of a name, as the catalogue has it or as tables spell it; undefined where the catalogue has none like it. */
export function deviceOf(text: string): DeviceSpec | undefined {
  const name = text.trim().toLowerCase();
  const [, id = name, also] = DEVICES.find(([pattern]) => pattern.test(name)) ?? [];
  const device = HARDWARE.find((known) => known.id === name) ?? HARDWARE.find((known) => known.id === id);
  return device && also && device.id !== name ? { ...device, ...also } : device;
}

/** A DGX-2 joins its sixteen V100 by a switch, where others have six links each, straight to one another. */
const DGX_2: DeviceSpec['scaleUp'] = {
  bandwidth: 1.5e11,
  latencySeconds: 8e-6,
  domainSize: 16,
  topology: 'NVSwitch',
};

/** The links of a device of the catalogue, if only this share of them is present. */
function linksOf(id: string, share: number): DeviceSpec['scaleUp'] {
  const { scaleUp } = HARDWARE.find((known) => known.id === id) as DeviceSpec;
  return { ...scaleUp, bandwidth: scaleUp.bandwidth * share };
}

/** The first match counts: devices on PCIe cards, and with less memory, come before the common ones. */
const DEVICES: readonly (readonly [pattern: RegExp, id: string, also?: Partial<DeviceSpec>])[] = [
  [/a100.*pcie.*40|a100.*40.*pcie/, 'a100-pcie-40'],
  [/a100.*pcie/, 'a100-pcie-80'],
  [/a100.*\b40( ?g|\b)/, 'a100-sxm-40'],
  // Made for another market, with 8 of its 12 links.
  [/a800/, 'a100-sxm-80', { scaleUp: linksOf('a100-sxm-80', 8 / 12) }],
  [/h800/, 'h100-sxm-80', { scaleUp: linksOf('h100-sxm-80', 8 / 18) }],
  [/a100/, 'a100-sxm-80'],
  [/v100.*dgx-?2/, 'v100-sxm2-32', { scaleUp: DGX_2 }],
  [/v100.*16 ?g/, 'v100-sxm2-32', { memoryBytes: 1.6e10 }],
  [/v100/, 'v100-sxm2-32'],
  [/h100.*pcie/, 'h100-pcie-80'],
  [/h100.*96 ?gb-hbm2e/, 'h100-sxm-80', { memoryBytes: 9.6e10, memoryBandwidth: 2.4e12 }],
  [/(?<!g)h100(?!.*nvl(?!ink))/, 'h100-sxm-80'],
  [/(?<!g)h200/, 'h200-sxm-141'],
  [/gb300/, 'gb300-nvl72'],
  // The same device on boards of eight.
  [/b300/, 'gb300-nvl72', { scaleUp: { ...linksOf('gb300-nvl72', 1), domainSize: 8 } }],
  [/gb200/, 'gb200-nvl72'],
  [/b200/, 'b200-sxm-180'],
  [/l40s/, 'l40s'],
  [/4090/, 'rtx4090'],
  [/mi250/, 'mi250x-128'],
  [/mi300x/, 'mi300x-192'],
  [/tpu.*v4/, 'tpu-v4'],
  [/tpu.*(v5e|v5.?lite)/, 'tpu-v5e'],
  [/tpu.*v5p/, 'tpu-v5p'],
  [/tpu.*v6e|trillium/, 'tpu-v6e'],
  [/910b/, 'ascend-910b'],
  [/trainium-?2|trn2/, 'trainium2'],
];
