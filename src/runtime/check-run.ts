/**
 * @file Checks before ranks are started: the backend has the dtypes, the inputs are those that the program requires.
 */

import type { Program } from '../program/program.js';
import { AutoparError, byteLength, type ConstantTensor, type DType, elementCount } from '../program/values.js';
import type { BackendTraits } from './backend.js';
import { withoutKernel } from './no-kernel.js';

/**
 * Throws AutoparError `unsupported-operator` (exit backendAbsent) naming the node, or else the tensor, of a dtype that the
 * backend lacks.
 */
export function checkSupport(program: Program, backend: BackendTraits): void {
  const lacks = (dtype: string) => !backend.dtypes.has(dtype as DType);
  const hint =
    'choose a backend that has it; a plan with 16-bit --precision runs here if it is compiled without --cluster';
  for (const stage of program.stages) {
    // Inside of a segment a dtype may come and go, as where 16 bit are rounded to; a tensor that leaves one may not.
    const tensors = [...Object.entries(stage.tensors), ...Object.entries(stage.weights)];
    const [tensor, type] = tensors.find(([, { dtype }]) => lacks(dtype)) ?? [];
    if (tensor === undefined) continue;
    const nodes = Object.values(stage.segments).flatMap((segment) => segment.nodes ?? []);
    const node = nodes.find(({ dtypes }) => dtypes.some(lacks));
    if (node) throw withoutKernel(`backend ${backend.name}`, node, `${node.dtypes.find(lacks)}: ${backend.why}`, hint);
    throw new AutoparError(
      'unsupported-operator',
      'backendAbsent',
      `backend ${backend.name} cannot run this program: tensor ${tensor} is ${type?.dtype}, and ${backend.why}`,
      { tensor },
      hint,
    );
  }
}

/** Each rank is a thread with sessions of its own. */
const MOST_RANKS = 256;

/** Throws AutoparError `machine-too-small` (exit backendAbsent) for more ranks than one machine can run. */
export function checkRanks(program: Program): void {
  const ranks = program.mesh.reduce((product, axis) => product * axis.size, 1);
  if (ranks <= MOST_RANKS) return;
  throw new AutoparError(
    'machine-too-small',
    'backendAbsent',
    `the program is for ${ranks} ranks; one machine runs at most ${MOST_RANKS}`,
    {},
    'compile for fewer devices to run here',
  );
}

/** Throws AutoparError (exit input) naming the input that is missing, unknown, or of another dtype or shape. */
export function checkInputs(program: Program, inputs: Readonly<Record<string, ConstantTensor>>): void {
  const wanted = new Map(program.inputs.map((input) => [input.name, input]));
  for (const name of Object.keys(inputs)) {
    if (wanted.has(name)) continue;
    const names = [...wanted.keys()].join(', ') || 'none';
    throw badInput('unknown-input', name, `the model has no input ${name}`, `its inputs are: ${names}`);
  }
  for (const [name, { dtype, shape }] of wanted) {
    const expected = `${dtype} [${shape.join(', ')}]`;
    const given = inputs[name];
    if (!given) throw badInput('missing-input', name, `input ${name} is missing`, `give an array ${name}: ${expected}`);
    const found = `${given.dtype} [${given.shape.join(', ')}]`;
    if (given.dtype !== dtype && PATTERNS[dtype] !== given.dtype) {
      throw badInput(
        'wrong-input',
        name,
        `input ${name} is ${found}, but ${expected} is expected`,
        `convert it to ${dtype}`,
      );
    }
    if (given.shape.join() !== shape.join()) {
      const hint = 'reshape it, or compile the model for this shape with --dim or --global-batch';
      throw badInput('wrong-input', name, `input ${name} is ${found}, but ${expected} is expected`, hint);
    }
    const bytes = byteLength(dtype, elementCount(shape));
    if (given.data.byteLength !== bytes) {
      const what = `input ${name} has ${given.data.byteLength} bytes, but ${expected} takes ${bytes}`;
      throw badInput('wrong-input', name, what, 'write the array again');
    }
  }
}

/** Dtypes that arrays of NumPy hold as integers of the same width. */
const PATTERNS: Readonly<Partial<Record<DType, DType>>> = {
  bfloat16: 'uint16',
  float8e4m3fn: 'uint8',
  float8e4m3fnuz: 'uint8',
  float8e5m2: 'uint8',
  float8e5m2fnuz: 'uint8',
};

function badInput(code: AutoparError['code'], tensor: string, message: string, hint: string): AutoparError {
  return new AutoparError(code, 'input', message, { tensor }, hint);
}
