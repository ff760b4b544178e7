/** @file Records of optional values: exact optional properties are left out where there is no value. */

/** A record without its undefined values; the others keep their order. */
export function withoutUndefined<Given extends object>(
  given: Given,
): { [Key in keyof Given]?: Exclude<Given[Key], undefined> } {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as {
    [Key in keyof Given]?: Exclude<Given[Key], undefined>;
  };
}
