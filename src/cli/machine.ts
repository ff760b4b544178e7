/**
 * @file The options for the devices that a model is to run on.
 */
import type { CommandOption } from './command.js';
import { integerParser } from './values.js';

export const clusterOptions: readonly CommandOption[] = [
  {
    flags: '--devices <n>',
    says: 'number of devices (default: one CPU rank per core, two at least, eight at most)',
    parse: integerParser('--devices', 1),
  },
  {
    flags: '--cluster <spec>',
    says: 'NxM:ID, N nodes of M devices as `autopar hardware` lists them; a cluster file; or local',
  },
];
