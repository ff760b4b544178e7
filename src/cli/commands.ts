/**
 * @file All commands, in the order in which help lists them.
 */
import type { Command } from './command.js';
import { compileCommand } from './compile.js';
import { devicesCommand } from './devices.js';
import { groupsCommand } from './groups.js';
import { hardwareCommand } from './hardware.js';
import { laterCommands } from './later.js';
import { runCommand } from './run.js';
import { verifyCommand } from './verify.js';

/** Their option types differ, and each reads only what its own options parsed. */
export const COMMANDS: readonly Command<never>[] = [
  compileCommand,
  runCommand,
  verifyCommand,
  groupsCommand,
  hardwareCommand,
  devicesCommand,
  ...laterCommands,
];
