/**
 * @file The options for the devices that a model is to run on.
 */
import type { CommandOption } from './command.js';
import { integerParser } from './values.js';

export const clusterOptions: readonly CommandOption[] = [
  {
    flags: '--devices <n>',
    says: 'number of devices (default: one rank per core, 2 to 8)',
    parse: integerParser(1),
  },
  {
    flags: '--cluster <spec>',
    says: 'NxM:ID (N nodes of M devices, see `autopar hardware`), file, or local',
  },
];
