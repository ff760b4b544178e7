/**
 * @file The families that `--model` generates, by name only: their builders are loaded when a model is built.
 */
export { FAMILY_NAMES } from '../../../models/family-names.js';
