/**
 * @file The families that `--model` generates, by name alone: what builds them is loaded where one is built.
 */
export { FAMILY_NAMES } from '../../../models/family-names.js';
