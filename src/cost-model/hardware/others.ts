/**
 * @file Huawei Ascend and AWS Trainium of the catalogue (`../hardware.ts` explains the figures).
 */
import type { DeviceSpec } from '../device.js';

export const OTHERS: readonly DeviceSpec[] = [
  {
    id: 'ascend-910b',
    name: 'Huawei Ascend 910B (B2/B3 class)',
    vendor: 'huawei',
    peakFlops: { fp32: 9.4e13, bf16: 3.76e14, fp16: 3.76e14 },
    memoryBytes: 6.4e10,
    memoryBandwidth: 1.6e12,
    scaleUp: {
      bandwidth: 2.8e10,
      latencySeconds: 4.5e-6,
      domainSize: 8,
      topology: 'HCCS full mesh 8 (7 links x ~28 GB/s per direction, 196 GB/s aggregate)',
      links: 'mesh',
    },
    scaleOut: { bandwidth: 2.5e10, latencySeconds: 1.55e-5 },
    host: { linkBandwidth: 1.25e10, memoryBytes: 1.28e11, memoryBandwidth: 9.4e10 },
    source: {
      flops: 'general knowledge (B2 376, B3 313, B4 280 TFLOPS; B1 ~400) - LOW CONFIDENCE',
      memory: 'general knowledge',
      scaleUp: 'general knowledge LOW CONFIDENCE',
      scaleOut: 'general knowledge (200Gb RoCE per NPU)',
      latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
      host:
        'general knowledge: Atlas 800T A2, 8 devices on four Kunpeng 920 (32 channels of DDR4-2933, 750 GB/s) ' +
        'with 1 TB; two devices share PCIe 4 x16, 25 of 31.5 GB/s',
    },
    notes: 'not verifiable here; verify before use',
  },
  {
    id: 'trainium2',
    name: 'AWS Trainium2 (chip)',
    vendor: 'aws',
    peakFlops: { fp32: 1.81e14, tf32: 6.67e14, bf16: 6.67e14, fp16: 6.67e14, fp8: 1.299e15 },
    memoryBytes: 9.6e10,
    memoryBandwidth: 2.9e12,
    scaleUp: {
      bandwidth: 1.28e11,
      latencySeconds: 4.5e-6,
      domainSize: 16,
      topology:
        '4x4 2D torus per instance (128 GB/s per neighbour); Ultra: 64 chips 3D torus with 64 GB/s inter-instance ' +
        'links; 640 GB/s aggregate',
      links: 'torus',
      dimensions: 2,
    },
    scaleOut: { bandwidth: 2.5e10, latencySeconds: 1.55e-5 },
    source: {
      flops: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      memory: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      scaleUp: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md',
      scaleOut:
        'verified: stas00/ml-engineering@744d01e18b79:network/README.md (Trn2 16x200Gb EFA per 16 chips = 25 GB/s per chip)',
      latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
    },
  },
];
