/**
 * @file AMD Instinct of the catalogue (`../hardware.ts` explains the figures).
 */
import type { DeviceSpec } from '../device.js';

export const AMD: readonly DeviceSpec[] = [
  {
    id: 'mi250x-128',
    name: 'AMD MI250X 128GB (OAM, 2 GCDs)',
    vendor: 'amd',
    peakFlops: { fp32: 4.79e13, bf16: 3.83e14, fp16: 3.83e14 },
    memoryBytes: 1.28e11,
    memoryBandwidth: 3.28e12,
    scaleUp: {
      bandwidth: 5e10,
      latencySeconds: 4.5e-6,
      domainSize: 8,
      topology: 'xGMI partial mesh; per GCD 64GB/191.5TF; GCD-GCD in package 200 GB/s (general knowledge)',
    },
    scaleOut: { bandwidth: 2.5e10, latencySeconds: 1.55e-5 },
    host: { linkBandwidth: 7.2e10, memoryBytes: 1.28e11, memoryBandwidth: 5.1e10 },
    source: {
      flops: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      memory: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      scaleUp:
        'verified: stas00/ml-engineering@744d01e18b79:network/README.md (50 GB/s per link, 7 links, 350 GB/s all-to-all)',
      scaleOut: 'general knowledge (Frontier: 4x200Gb Slingshot per 4 OAM = 25 GB/s per OAM)',
      latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
      host:
        'general knowledge: Frontier, 4 devices on one EPYC 7A53 (8 channels of DDR4-3200, 205 GB/s) with 512 ' +
        'GB; Infinity Fabric, two links of 36 GB/s',
    },
    notes: 'treat one GCD as one device in frameworks; link value is point-to-point per link',
  },
  {
    id: 'mi300x-192',
    name: 'AMD MI300X 192GB',
    vendor: 'amd',
    peakFlops: { fp32: 1.634e14, tf32: 6.537e14, bf16: 1.307e15, fp16: 1.307e15, fp8: 2.61e15 },
    measuredMatmulFlops: { bf16: 6.684e14 },
    memoryBytes: 1.92e11,
    memoryBandwidth: 5.3e12,
    scaleUp: {
      bandwidth: 6.4e10,
      latencySeconds: 4.5e-6,
      domainSize: 8,
      topology: 'fully connected xGMI mesh: 64 GB/s per peer link, 448 GB/s aggregate per direction',
      links: 'mesh',
    },
    scaleOut: { bandwidth: 5e10, latencySeconds: 1.55e-5 },
    host: { linkBandwidth: 2.6e10, memoryBytes: 2.8e11, memoryBandwidth: 1.15e11 },
    measuredCollectives: {
      allReduceBusbwIntra: 3.129e11,
      allReduceBusbw2gpu: 4.77e10,
      source: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md (measured 4GiB)',
    },
    source: {
      flops: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      memory: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      scaleUp: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md',
      scaleOut: 'general knowledge (8x400Gb)',
      latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
      measuredMatmulFlops:
        'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table) (MAMF table)',
      host:
        'general knowledge: 8 devices on two EPYC 9654 (24 channels of DDR5-4800, 922 GB/s) with 2.3 TB; two ' +
        'devices share PCIe 5 x16, 52 of 63 GB/s',
    },
    notes: '2-GPU TP only gets one 64 GB/s link: TP<8 is penalised; model the mesh, not a switch',
  },
];
