/**
 * @file A driver that WebGPU runs on: the one that is configured, or SwiftShader, which needs no GPU, where Debian's packages put
 * it.
 */
import { existsSync } from 'node:fs';

const SWIFTSHADER = '/usr/lib/chromium/vk_swiftshader_icd.json';
const LOADERS = ['/usr/lib/x86_64-linux-gnu/libvulkan.so.1', '/usr/lib/aarch64-linux-gnu/libvulkan.so.1'];

/** Why there is none; null where there is one. Processes that are started from here on find it. */
export function vulkanAbsence(): string | null {
  if (process.env['VK_ICD_FILENAMES']) return null;
  if (!existsSync(SWIFTSHADER) || !LOADERS.some((file) => existsSync(file)))
    return "WebGPU without a GPU (Debian's packages chromium-common and libvulkan1)";
  process.env['VK_ICD_FILENAMES'] = SWIFTSHADER;
  return null;
}
