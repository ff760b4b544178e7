/**
 * @file Message types of protobuf's proto2 as data.
 *
 *     field: '[repeated [packed]|required] TYPE NUMBER'
 */

export type Proto2Messages = Readonly<Record<string, Readonly<Record<string, string>>>>;

interface Field {
  readonly id: number;
  readonly type: string;
  readonly rule?: string;
  readonly options: { readonly packed: boolean };
}

/** The types as protobufjs reads them. */
export function proto2Types(
  messages: Proto2Messages,
): Record<string, { edition: string; fields: Record<string, Field> }> {
  return Object.fromEntries(
    Object.entries(messages).map(([message, fields]) => [
      message,
      {
        edition: 'proto2',
        fields: Object.fromEntries(Object.entries(fields).map(([name, text]) => [name, fieldOf(text)])),
      },
    ]),
  );
}

function fieldOf(text: string): Field {
  const words = text.split(' ');
  const id = Number(words.pop());
  const type = words.pop() ?? '';
  const options = { packed: words.includes('packed') };
  const rule = words.find((word) => word === 'repeated' || word === 'required');
  return rule === undefined ? { id, type, options } : { id, type, rule, options };
}
