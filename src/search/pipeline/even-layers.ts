/**
 * @file Layers per part, as even as possible: the first parts have one more where the layers do not divide.
 */
export function evenLayers(layers: number, parts: number): readonly number[] {
  return Array.from({ length: parts }, (_, part) => Math.floor(layers / parts) + (part < layers % parts ? 1 : 0));
}
