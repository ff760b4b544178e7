/**
 * @file Operators that read and write places that other tensors name, and sorting, in torch functions.
 */
import {
  atom,
  axisIn,
  dtypeText,
  has,
  integersIn,
  microsoft,
  numberIn,
  rankOf,
  resultOf,
  shapeOf,
  type TorchNode,
  type TorchOperator,
  textIn,
  torch,
  typeOf,
  wide,
  x,
} from './operator.js';

/** Indexing takes indices below zero, and refuses those outside. */
function gather(node: TorchNode): string {
  const axis = axisIn(node, 0);
  return `${atom(x(node))}[${[...Array.from({ length: axis }, () => ':'), index(node)].join(', ')}]`;
}

/** torch indexes with int64 everywhere, with int32 in places. */
function index(node: TorchNode, operand = 1): string {
  return typeOf(node, operand).dtype === 'int64' ? x(node, operand) : `${atom(x(node, operand))}.long()`;
}

function fromEnd(node: TorchNode, axis: number): string {
  return `from_end(${index(node)}, ${shapeOf(node)[axis]})`;
}

function gatherElements(node: TorchNode): string {
  const axis = axisIn(node, 0);
  return `torch.gather(${x(node)}, ${axis}, ${fromEnd(node, axis)})`;
}

function gatherNd(node: TorchNode): string | null {
  const batch = numberIn(node, 'batch_dims', 0);
  if (batch !== 0) return `gather_nd(${x(node)}, ${index(node)}, ${batch})`;
  return `${atom(x(node))}[tuple(${atom(index(node))}.unbind(-1))]`;
}

const REDUCED: Readonly<Record<string, string>> = { mul: 'prod', max: 'amax', min: 'amin', add: 'sum' };

function comparesUpdates(node: TorchNode): boolean {
  return ['max', 'min'].includes(textIn(node, 'reduction', 'none'));
}

function scatterElements(node: TorchNode): string | null {
  const axis = axisIn(node, 0);
  const reduction = textIn(node, 'reduction', 'none');
  const operands = `${x(node)}, ${axis}, ${fromEnd(node, axis)}, ${x(node, 2)}`;
  if (reduction === 'none') return `torch.scatter(${operands})`;
  if (reduction === 'add') return `torch.scatter_add(${operands})`;
  return `torch.scatter_reduce(${operands}, reduce="${REDUCED[reduction]}")`;
}

function scatterNd(node: TorchNode): string | null {
  const reduction = textIn(node, 'reduction', 'none');
  if (reduction !== 'none' && reduction !== 'add') return null;
  const adds = reduction === 'add' ? ', accumulate=True' : '';
  return `scatter_nd(${x(node)}, ${index(node)}, ${x(node, 2)}${adds})`;
}

function topK(node: TorchNode): string {
  const k = integersIn(node, 'k')?.[0] ?? numberIn(node, 'k', 1);
  const largest = numberIn(node, 'largest', 1) ? '' : ', largest=False';
  const text = `top_k(${x(node)}, ${k}, ${axisIn(node, -1)}${largest})`;
  return node.outputs.length === 1 ? `${text}[0]` : text;
}

function arg(name: string): (node: TorchNode) => string | null {
  return (node) => {
    const axis = axisIn(node, 0);
    const keep = numberIn(node, 'keepdims', 1) ? ', keepdim=True' : '';
    if (!numberIn(node, 'select_last_index', 0)) return `torch.${name}(${x(node)}, dim=${axis}${keep})`;
    const last = (shapeOf(node)[axis] ?? 1) - 1;
    return `${last} - torch.${name}(torch.flip(${x(node)}, [${axis}]), dim=${axis}${keep})`;
  };
}

/** Cumulative sums and products: `exclusive` leaves the element itself out, `reverse` goes from the end. */
function cumulative(name: string, neutral: string): (node: TorchNode) => string {
  return (node) => {
    const axis = axisIn(node, 0);
    const size = shapeOf(node)[axis] ?? 1;
    const isReverse = numberIn(node, 'reverse', 0) !== 0;
    const flipped = (text: string) => (isReverse ? `torch.flip(${text}, [${axis}])` : text);
    const plain = `torch.${name}(${flipped(x(node))}, dim=${axis}, dtype=${dtypeText(resultOf(node).dtype)})`;
    if (!numberIn(node, 'exclusive', 0)) return flipped(plain);
    const ahead = [...Array.from({ length: 2 * (rankOf(node) - 1 - axis) }, () => 0), 1, -1];
    return flipped(size === 0 ? plain : `F.pad(${plain}, (${ahead.join(', ')}), value=${neutral})`);
  };
}

function reverseSequence(node: TorchNode): string {
  const axes = `${numberIn(node, 'time_axis', 0)}, ${numberIn(node, 'batch_axis', 1)}`;
  return `reverse_sequence(${x(node)}, ${index(node)}, ${axes})`;
}

function tensorScatter(node: TorchNode): string {
  const starts = has(node, 2) ? `, ${index(node, 2)}` : '';
  const circular = textIn(node, 'mode', 'linear') === 'circular' ? ', circular=True' : '';
  return `tensor_scatter(${x(node)}, ${x(node, 1)}, ${axisIn(node, -2)}${starts}${circular})`;
}

export const indexingOperators: readonly TorchOperator[] = [
  torch('Gather', gather),
  torch('GatherElements', wide(gatherElements)),
  torch('GatherND', gatherNd),
  microsoft('GatherND', gatherNd),
  torch('ReverseSequence', reverseSequence),
  torch('TensorScatter', tensorScatter),
  torch('ScatterElements', (node) => wide(scatterElements, comparesUpdates(node))(node)),
  torch('ScatterND', wide(scatterNd)),
  torch('TopK', topK),
  torch('ArgMax', arg('argmax')),
  torch('ArgMin', arg('argmin')),
  torch('CumSum', cumulative('cumsum', '0')),
  torch('CumProd', cumulative('cumprod', '1')),
];
