/** @file Options of the commands that run a program on ranks of this machine. */
import { COMPUTING_BACKENDS } from '../api/words.js';
import type { CommandOption } from './command.js';
import { byteSize, choiceAmong, integerParser } from './values.js';

export const BACKEND: CommandOption = {
  flags: '--backend <cpu|webgpu|cuda>',
  says: 'backend of the ranks (default: cpu)',
  parse: choiceAmong(COMPUTING_BACKENDS),
};

export const THREADS: CommandOption = {
  flags: '--threads-per-rank <n>',
  says: 'threads of each rank (default: 1)',
  parse: integerParser(1, 1024),
};

export const RANK_MEMORY: readonly CommandOption[] = [
  { flags: '--memory <size>', says: "limit of a rank's device memory, such as 80MB", parse: byteSize },
  { flags: '--offload-dir <dir>', says: "folder for tensors offloaded to disk (default: the system's)" },
];

export const TRACE: CommandOption = {
  flags: '--trace <file>',
  says: 'timeline of the last step, for Perfetto or chrome://tracing',
};
