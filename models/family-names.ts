/**
 * @file The names of the families that `--model` generates. They are apart from the code that builds them, so that help names all
 * without loading any: the table of models/families.ts is typed by them.
 */
export const FAMILY_NAMES = [
  'gpt',
  'llama',
  'bert',
  'moe',
  'hybrid',
  'vit',
  'resnet',
  'alexnet',
  'vgg',
  'unet',
  'densenet',
  'swin',
  'mlp',
] as const;

export type FamilyName = (typeof FAMILY_NAMES)[number];
