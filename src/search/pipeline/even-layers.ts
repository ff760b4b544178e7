/**
 * @file Layers of parts that are as even as they go: the first parts have one more where they do not divide.
 */
export function evenLayers(layers: number, parts: number): readonly number[] {
  return Array.from({ length: parts }, (_, part) => Math.floor(layers / parts) + (part < layers % parts ? 1 : 0));
}
