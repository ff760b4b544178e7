/**
 * @file NVIDIA GPUs of the catalogue (`../hardware.ts` explains the figures).
 */
import type { DeviceSpec } from '../device.js';

const A100_SXM_40: DeviceSpec = {
  id: 'a100-sxm-40',
  name: 'NVIDIA A100 SXM4 40GB',
  vendor: 'nvidia',
  peakFlops: { fp32: 1.95e13, tf32: 1.56e14, bf16: 3.12e14, fp16: 3.12e14 },
  measuredMatmulFlops: { bf16: 2.712e14 },
  memoryBytes: 4e10,
  memoryBandwidth: 1.555e12,
  scaleUp: {
    bandwidth: 3e11,
    latencySeconds: 4.5e-6,
    domainSize: 8,
    topology: 'NVSwitch',
  },
  scaleOut: { bandwidth: 2.5e10, latencySeconds: 1.55e-5 },
  host: { linkBandwidth: 1.25e10, memoryBytes: 1.25e11, memoryBandwidth: 5.1e10 },
  measuredCollectives: {
    allReduceBusbwIntra: 2.32e11,
    allToAllBusbwIntra: 2.1e11,
    allReduceBusbwInter: 1.92e11,
    allToAllBusbwInter: 2.4e10,
    p2pMeasured: 2.74e11,
    alphaAllReduce8Seconds: 4.4e-5,
    source:
      'verified: NVIDIA GTC24 S62129/GTC25 S72583 slides in stas00/ml-engineering@744d01e18b79:network/images; ' +
      'p2p+alpha verified: stas00/ml-engineering@744d01e18b79:network/README.md',
  },
  smCount: 108,
  l2Bytes: 40_000_000,
  source: {
    flops: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
    memory: 'verified: cli99/llm-analysis@d841e40aec8c:llm_analysis/gpu_configs',
    scaleUp: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md',
    scaleOut:
      'verified: stas00/ml-engineering@744d01e18b79:network/README.md (8x200Gb HDR per DGX A100); AWS p4d only ' +
      '50GB/s per node = 6.25 per GPU',
    latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
    measuredMatmulFlops:
      'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table) (MAMF table)',
    host:
      'general knowledge: DGX A100, 8 devices on two EPYC 7742 (16 channels of DDR4-3200, 410 GB/s) with 1 ' +
      'TB; two devices share PCIe 4 x16, 25 of 31.5 GB/s',
  },
};

const A100_PCIE_40: DeviceSpec = {
  id: 'a100-pcie-40',
  name: 'NVIDIA A100 PCIe 40GB',
  vendor: 'nvidia',
  peakFlops: { fp32: 1.95e13, tf32: 1.56e14, bf16: 3.12e14, fp16: 3.12e14 },
  measuredMatmulFlops: { bf16: 2.529e14 },
  memoryBytes: 4e10,
  memoryBandwidth: 1.555e12,
  scaleUp: {
    bandwidth: 3.1e10,
    latencySeconds: 4.5e-6,
    domainSize: 8,
    topology: 'PCIe4 x16 (optional NVLink bridge pairs 300 GB/s)',
  },
  scaleOut: { bandwidth: 1.25e10, latencySeconds: 1.55e-5 },
  host: { linkBandwidth: 1.25e10, memoryBytes: 1.25e11, memoryBandwidth: 5.1e10 },
  measuredCollectives: {
    allReduceBusbwIntra: 2.4e10,
    source:
      'verified: NVIDIA GTC24 S62129/GTC25 S72583 slides in stas00/ml-engineering@744d01e18b79:network/images (PCI Gen4)',
  },
  smCount: 108,
  l2Bytes: 40_000_000,
  source: {
    flops: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
    memory: 'verified: cli99/llm-analysis@d841e40aec8c:llm_analysis/gpu_configs',
    scaleUp: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md (PCIe4 31 GB/s)',
    scaleOut: 'general knowledge',
    latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
    measuredMatmulFlops:
      'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table) (MAMF table)',
    host:
      'general knowledge: 8 devices on two sockets (16 channels of DDR4-3200, 410 GB/s) with 1 TB; two ' +
      'devices share PCIe 4 x16, 25 of 31.5 GB/s',
  },
  notes: '250W: lower sustained clocks (MAMF 81%)',
};

export const NVIDIA: readonly DeviceSpec[] = [
  {
    id: 'v100-sxm2-32',
    name: 'NVIDIA V100 SXM2 32GB',
    vendor: 'nvidia',
    peakFlops: { fp32: 1.57e13, fp16: 1.25e14 },
    memoryBytes: 3.2e10,
    memoryBandwidth: 9e11,
    scaleUp: {
      bandwidth: 1.5e11,
      latencySeconds: 4.5e-6,
      domainSize: 8,
      topology: 'hybrid cube mesh (DGX-1) / NVSwitch 16 (DGX-2)',
      links: 'mesh',
    },
    scaleOut: { bandwidth: 1.25e10, latencySeconds: 1.55e-5 },
    host: { linkBandwidth: 6e9, memoryBytes: 9.6e10, memoryBandwidth: 1.6e10 },
    measuredCollectives: {
      allReduceBusbwIntra: 1.22e11,
      source: 'verified: NVIDIA GTC24 S62129/GTC25 S72583 slides in stas00/ml-engineering@744d01e18b79:network/images',
    },
    smCount: 80,
    l2Bytes: 6_000_000,
    attention: 'early',
    source: {
      attention: 'general knowledge: FlashAttention 2 is written for Ampere and newer',
      flops: 'fp16 verified: cli99/llm-analysis@d841e40aec8c:llm_analysis/gpu_configs; fp32 general knowledge',
      memory: 'verified: cli99/llm-analysis@d841e40aec8c:llm_analysis/gpu_configs',
      scaleUp: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md',
      scaleOut: 'general knowledge (4x100Gb EDR per 8 GPUs typical)',
      latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
      host:
        'general knowledge: DGX-2, 16 devices on two Xeon 8168 (12 channels of DDR4-2666, 256 GB/s) with 1.5 ' +
        'TB; two devices share PCIe 3 x16, 12 of 15.8 GB/s',
    },
    notes: 'no bf16/tf32; busbw on 8xV100 LUT 137 GB/s (vTrain trace, see nccl_busbw.csv)',
  },
  A100_SXM_40,
  {
    ...A100_SXM_40,
    id: 'a100-sxm-80',
    name: 'NVIDIA A100 SXM4 80GB',
    memoryBytes: 8e10,
    memoryBandwidth: 2.039e12,
    host: { linkBandwidth: 1.25e10, memoryBytes: 2.5e11, memoryBandwidth: 5.1e10 },
    source: {
      ...A100_SXM_40.source,
      memory:
        'verified: cli99/llm-analysis@d841e40aec8c:llm_analysis/gpu_configs; ml-engineering table rounds to 2.00 TB/s',
      host:
        'general knowledge: DGX A100 640GB, 8 devices on two EPYC 7742 (16 channels of DDR4-3200, 410 GB/s) ' +
        'with 2 TB; two devices share PCIe 4 x16, 25 of 31.5 GB/s',
    },
  },
  A100_PCIE_40,
  {
    ...A100_PCIE_40,
    id: 'a100-pcie-80',
    name: 'NVIDIA A100 PCIe 80GB',
    memoryBytes: 8e10,
    memoryBandwidth: 1.935e12,
  },
  {
    id: 'h100-sxm-80',
    name: 'NVIDIA H100 SXM5 80GB',
    vendor: 'nvidia',
    peakFlops: { fp32: 6.7e13, tf32: 4.945e14, bf16: 9.89e14, fp16: 9.89e14, fp8: 1.979e15 },
    measuredMatmulFlops: { bf16: 7.945e14, fp8: 1.4026e15 },
    memoryBytes: 8e10,
    memoryBandwidth: 3.35e12,
    scaleUp: {
      bandwidth: 4.5e11,
      latencySeconds: 4.5e-6,
      domainSize: 8,
      topology: 'NVSwitch (SHARP/NVLS)',
    },
    scaleOut: { bandwidth: 5e10, latencySeconds: 1.55e-5 },
    host: { linkBandwidth: 2.6e10, memoryBytes: 2.5e11, memoryBandwidth: 7.7e10 },
    measuredCollectives: {
      allReduceBusbwIntra: 3.7e11,
      allReduceBusbwIntraNvls: 4.8e11,
      allGatherBusbwIntra: 3.614e11,
      reduceScatterBusbwIntra: 3.629e11,
      allToAllBusbwIntra: 3.2e11,
      allReduceBusbwInter: 3.7e11,
      allReduceBusbwInterSharp: 4.8e11,
      allToAllBusbwInter: 4.8e10,
      p2pMeasured: 3.76e11,
      source:
        'verified: NVIDIA GTC24 S62129/GTC25 S72583 slides in stas00/ml-engineering@744d01e18b79:network/images; ' +
        'AG/RS/p2p verified: stas00/ml-engineering@744d01e18b79:network/README.md (AG/RS measured on H200, same ' +
        'NVLink4)',
    },
    smCount: 132,
    l2Bytes: 50_000_000,
    source: {
      flops: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      memory: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      scaleUp: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md',
      scaleOut: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md (8x400Gb NDR per DGX H100)',
      latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
      measuredMatmulFlops:
        'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table) (MAMF table)',
      host:
        'general knowledge: DGX H100, 8 devices on two Xeon 8480C (16 channels of DDR5-4800, 614 GB/s) with 2 ' +
        'TB; two devices share PCIe 5 x16, 52 of 63 GB/s',
    },
  },
  {
    id: 'h100-pcie-80',
    name: 'NVIDIA H100 PCIe 80GB',
    vendor: 'nvidia',
    peakFlops: { fp32: 5.1e13, tf32: 3.78e14, bf16: 7.56e14, fp16: 7.56e14, fp8: 1.513e15 },
    memoryBytes: 8e10,
    memoryBandwidth: 2e12,
    scaleUp: {
      bandwidth: 6.3e10,
      latencySeconds: 4.5e-6,
      domainSize: 8,
      topology: 'PCIe5 x16 (optional NVLink bridge pairs 300 GB/s, general knowledge)',
    },
    scaleOut: { bandwidth: 2.5e10, latencySeconds: 1.55e-5 },
    host: { linkBandwidth: 2.6e10, memoryBytes: 1.25e11, memoryBandwidth: 7.7e10 },
    measuredCollectives: {
      allReduceBusbwIntra: 4.8e10,
      source:
        'verified: NVIDIA GTC24 S62129/GTC25 S72583 slides in stas00/ml-engineering@744d01e18b79:network/images (PCI Gen5)',
    },
    smCount: 114,
    l2Bytes: 50_000_000,
    source: {
      flops: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      memory: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      scaleUp: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md (PCIe5 63 GB/s)',
      scaleOut: 'general knowledge',
      latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
      host:
        'general knowledge: 8 devices on two sockets (16 channels of DDR5-4800, 614 GB/s) with 1 TB; two ' +
        'devices share PCIe 5 x16, 52 of 63 GB/s',
    },
  },
  {
    id: 'h200-sxm-141',
    name: 'NVIDIA H200 SXM 141GB',
    vendor: 'nvidia',
    peakFlops: { fp32: 6.7e13, tf32: 4.945e14, bf16: 9.89e14, fp16: 9.89e14, fp8: 1.979e15 },
    measuredMatmulFlops: { bf16: 7.945e14, fp8: 1.4534e15 },
    memoryBytes: 1.41e11,
    memoryBandwidth: 4.8e12,
    scaleUp: {
      bandwidth: 4.5e11,
      latencySeconds: 4.5e-6,
      domainSize: 8,
      topology: 'NVSwitch (SHARP/NVLS)',
    },
    scaleOut: { bandwidth: 5e10, latencySeconds: 1.55e-5 },
    host: { linkBandwidth: 2.6e10, memoryBytes: 2.5e11, memoryBandwidth: 7.7e10 },
    measuredCollectives: {
      allReduceBusbwIntra: 3.676e11,
      allReduceBusbwIntraNvls: 4.82e11,
      allGatherBusbwIntra: 3.614e11,
      reduceScatterBusbwIntra: 3.629e11,
      allToAllBusbwIntra: 3.2e11,
      allReduceBusbwInter: 3.65e11,
      p2pMeasured: 3.96e11,
      alphaAllReduce8Seconds: 4e-5,
      source: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md (measured 8x and 32x H200)',
    },
    smCount: 132,
    l2Bytes: 60_000_000,
    source: {
      flops: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      memory: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      scaleUp: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md',
      scaleOut: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md',
      latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
      measuredMatmulFlops:
        'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table) (MAMF table)',
      host:
        'general knowledge: DGX H200, 8 devices on two Xeon 8480C (16 channels of DDR5-4800, 614 GB/s) with 2 ' +
        'TB; two devices share PCIe 5 x16, 52 of 63 GB/s',
    },
    notes: 'L2_cache_size=60MB & 132 SMs printed by torch on the measured box (verified)',
  },
  {
    id: 'b200-sxm-180',
    name: 'NVIDIA B200 SXM (HGX) 180GB',
    vendor: 'nvidia',
    peakFlops: { fp32: 8e13, tf32: 1.125e15, bf16: 2.25e15, fp16: 2.25e15, fp8: 4.5e15, fp4: 9e15 },
    measuredMatmulFlops: { bf16: 1.745e15, fp8: 3.4325e15 },
    memoryBytes: 1.8e11,
    memoryBandwidth: 8e12,
    scaleUp: {
      bandwidth: 9e11,
      latencySeconds: 4.5e-6,
      domainSize: 8,
      topology: 'NVSwitch (SHARP/NVLS)',
    },
    scaleOut: { bandwidth: 5e10, latencySeconds: 1.55e-5 },
    host: { linkBandwidth: 2.6e10, memoryBytes: 2.5e11, memoryBandwidth: 9e10 },
    measuredCollectives: {
      allReduceBusbwIntra: 6.82e11,
      allReduceBusbwIntraNvls: 8.38e11,
      allToAllBusbwIntra: 6.4e11,
      allReduceBusbwInter: 3.818e11,
      source:
        'verified: stas00/ml-engineering@744d01e18b79:network/README.md + verified: NVIDIA GTC24 S62129/GTC25 ' +
        'S72583 slides in stas00/ml-engineering@744d01e18b79:network/images',
    },
    smCount: 148,
    source: {
      flops: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      memory: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      scaleUp: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md',
      scaleOut: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md (8x400Gb; B300 800Gb)',
      latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
      measuredMatmulFlops:
        'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table) (MAMF table)',
      host:
        'general knowledge: DGX B200, 8 devices on two Xeon 8570 (16 channels of DDR5-5600, 717 GB/s) with 2 ' +
        'TB; two devices share PCIe 5 x16, 52 of 63 GB/s',
    },
    notes: 'sm_count general knowledge',
  },
  {
    id: 'gb200-nvl72',
    name: 'NVIDIA GB200 NVL72 (per GPU)',
    vendor: 'nvidia',
    peakFlops: { fp32: 8e13, tf32: 1.25e15, bf16: 2.5e15, fp16: 2.5e15, fp8: 5e15, fp4: 1e16 },
    measuredMatmulFlops: { bf16: 1.822e15, fp8: 3.6156e15 },
    memoryBytes: 1.86e11,
    memoryBandwidth: 8e12,
    scaleUp: {
      bandwidth: 9e11,
      latencySeconds: 4.5e-6,
      domainSize: 72,
      topology: 'NVSwitch rack domain (4 GPUs per tray)',
    },
    scaleOut: { bandwidth: 5e10, latencySeconds: 1.55e-5 },
    host: { linkBandwidth: 2.25e11, memoryBytes: 2.4e11, memoryBandwidth: 2.56e11 },
    measuredCollectives: {
      allReduceBusbwIntra: 6.8e11,
      allReduceBusbwIntraNvls: 8.5e11,
      allToAllBusbwIntra: 6.4e11,
      p2pMeasured: 7.46e11,
      source:
        'verified: NVIDIA GTC24 S62129/GTC25 S72583 slides in stas00/ml-engineering@744d01e18b79:network/images; ' +
        'p2p verified: stas00/ml-engineering@744d01e18b79:network/README.md',
    },
    smCount: 148,
    source: {
      flops: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      memory: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      scaleUp: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md',
      scaleOut: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md (4x400Gb CX7 per 4-GPU tray)',
      latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
      measuredMatmulFlops:
        'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table) (MAMF table)',
      host: 'general knowledge: a Grace with 480 GB at 512 GB/s and NVLink-C2C of 450 GB/s each way for every two devices',
    },
    notes: 'collective numbers are for 32 GPUs inside the NVL72 domain',
  },
  {
    id: 'gb300-nvl72',
    name: 'NVIDIA GB300 NVL72 (per GPU)',
    vendor: 'nvidia',
    peakFlops: { fp32: 8e13, tf32: 1.25e15, bf16: 2.5e15, fp16: 2.5e15, fp8: 5e15, fp4: 1.5e16 },
    memoryBytes: 2.88e11,
    memoryBandwidth: 8e12,
    scaleUp: {
      bandwidth: 9e11,
      latencySeconds: 4.5e-6,
      domainSize: 72,
      topology: 'NVSwitch rack domain',
    },
    scaleOut: { bandwidth: 1e11, latencySeconds: 1.55e-5 },
    host: { linkBandwidth: 2.25e11, memoryBytes: 2.4e11, memoryBandwidth: 2.56e11 },
    source: {
      flops: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      memory:
        'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table) (B300 row)',
      scaleUp: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md',
      scaleOut: 'general knowledge (800Gb CX8 per GPU)',
      latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
      host: 'general knowledge: a Grace with 480 GB at 512 GB/s and NVLink-C2C of 450 GB/s each way for every two devices',
    },
    notes: 'usable HBM ~279-288 GB',
  },
  {
    id: 'l40s',
    name: 'NVIDIA L40S 48GB',
    vendor: 'nvidia',
    peakFlops: { fp32: 9.16e13, tf32: 1.83e14, bf16: 3.62e14, fp16: 3.62e14, fp8: 7.33e14 },
    memoryBytes: 4.8e10,
    memoryBandwidth: 8.64e11,
    scaleUp: {
      bandwidth: 3.1e10,
      latencySeconds: 4.5e-6,
      domainSize: 8,
      topology: 'PCIe4 x16, no NVLink',
    },
    scaleOut: { bandwidth: 1.25e10, latencySeconds: 1.55e-5 },
    host: { linkBandwidth: 1.25e10, memoryBytes: 1.25e11, memoryBandwidth: 7.7e10 },
    measuredCollectives: {
      allReduceBusbwIntra: 2.4e10,
      source:
        'verified: NVIDIA GTC24 S62129/GTC25 S72583 slides in stas00/ml-engineering@744d01e18b79:network/images (PCI Gen4)',
    },
    smCount: 142,
    l2Bytes: 96_000_000,
    source: {
      flops: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      memory: 'verified: stas00/ml-engineering@744d01e18b79:compute/accelerator/README.md (vendor-spec table)',
      scaleUp: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md (PCIe4)',
      scaleOut: 'general knowledge',
      latency: 'fitted to NCCL all-reduces on A100, H100, H200 and B200 (npm run bench:collective-fit)',
      host:
        'general knowledge: 8 devices on two sockets (16 channels of DDR5-4800, 614 GB/s) with 1 TB; two ' +
        'devices share PCIe 4 x16, 25 of 31.5 GB/s',
    },
    notes: 'sm/L2 general knowledge; sustained matmul throttles on power (350W)',
  },
  {
    id: 'rtx4090',
    name: 'NVIDIA GeForce RTX 4090 24GB',
    vendor: 'nvidia',
    peakFlops: { fp32: 8.26e13, tf32: 8.26e13, bf16: 1.652e14, fp16: 1.652e14, fp8: 3.303e14 },
    memoryBytes: 2.4e10,
    memoryBandwidth: 1.008e12,
    scaleUp: {
      bandwidth: 3.1e10,
      latencySeconds: 1.5e-5,
      domainSize: 8,
      topology: 'PCIe4 x16, no NVLink, P2P disabled in stock driver',
    },
    scaleOut: { bandwidth: 3.1e9, latencySeconds: 1.55e-5 },
    host: { linkBandwidth: 1.25e10, memoryBytes: 6.4e10, memoryBandwidth: 5.1e10 },
    measuredCollectives: {
      allReduceBusbwIntra: 2e10,
      source: 'general knowledge (host-staged, 10-22 GB/s)',
    },
    smCount: 128,
    l2Bytes: 72_000_000,
    source: {
      flops: 'general knowledge (dense, fp32 accumulate)',
      memory: 'general knowledge',
      scaleUp: 'verified: stas00/ml-engineering@744d01e18b79:network/README.md (PCIe4)',
      scaleOut: 'general knowledge (25GbE typical)',
      latency: 'general knowledge (typical without peer-to-peer)',
      host:
        'general knowledge: 8 devices on two sockets (16 channels of DDR4-3200, 410 GB/s) with 512 GB; two ' +
        'devices share PCIe 4 x16, 25 of 31.5 GB/s',
    },
  },
];
