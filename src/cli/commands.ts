/**
 * @file All commands, in the order in which help lists them.
 */
import { calibrateCommand } from './calibrate.js';
import type { Command } from './command.js';
import { compileCommand } from './compile.js';
import { devicesCommand } from './devices.js';
import { explainCommand } from './explain.js';
import { exportCommand } from './export.js';
import { groupsCommand } from './groups.js';
import { hardwareCommand } from './hardware.js';
import { inspectCommand } from './inspect.js';
import { plotCommand } from './plot.js';
import { profileCommand } from './profile.js';
import { rehearseCommand } from './rehearse.js';
import { runCommand } from './run.js';
import { simulateCommand } from './simulate.js';
import { strategyCommand } from './strategy.js';
import { trainCommand } from './train.js';
import { verifyCommand } from './verify.js';

/** Their option types differ, and each reads only what its own options parsed. */
export const COMMANDS: readonly Command<never>[] = [
  compileCommand,
  runCommand,
  trainCommand,
  plotCommand,
  verifyCommand,
  rehearseCommand,
  inspectCommand,
  simulateCommand,
  explainCommand,
  exportCommand,
  strategyCommand,
  groupsCommand,
  hardwareCommand,
  devicesCommand,
  profileCommand,
  calibrateCommand,
];
