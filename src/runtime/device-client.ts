/**
 * @file The backend of a GPU as its rank has it: segments run in a process beside the rank's thread, which receives the operands
 * and returns the results.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { ProgramNode } from '../program/program.js';
import { AutoparError } from '../program/values.js';
import type { Backend, BackendTraits, LoadedSegment, SegmentSource } from './backend.js';
import type { DeviceAnswer, DeviceCommand, HostTensor } from './device-messages.js';
import type { PlainError } from './messages.js';
import { withoutKernel } from './no-kernel.js';
import { nodePosition } from './ort-backend.js';

/** A backend whose process ends when its rank does. */
export interface DeviceBackend extends Backend<HostTensor> {
  readonly close: () => Promise<void>;
}

/**
 * Starts the process.
 * @param device which of several, counted from 0
 * @param isStopped called ten times a second: where it returns true, a caller that waits gives up
 * @throws AutoparError `backend-absent`
 */
export async function openDevice(
  traits: BackendTraits,
  device: number,
  isStopped: () => boolean,
): Promise<DeviceBackend> {
  const connection = new Connection(isStopped);
  await connection.ask({ kind: 'open', backend: traits.name, device, explain: false });
  let loaded = 0;
  let copying = 0;
  const load = async (source: SegmentSource, threads: number): Promise<LoadedSegment<HostTensor>> => {
    const segment = loaded++;
    const ask = (wanted: SegmentSource) => connection.ask({ kind: 'load', segment, source: sendable(wanted), threads });
    const loadedAs = async (wanted: SegmentSource): Promise<readonly string[]> => {
      const refusal = await ask(wanted).then(() => null, refusalOf);
      if (refusal === null) return [];
      if (refusal.where.node !== undefined) throw refusal;
      const onHost = asideOnHost(traits, wanted, await placementsOf(traits, device, wanted, isStopped));
      await ask({ ...wanted, mayUseHost: true });
      return onHost.map((operator) => `${operator}, on the CPU`);
    };
    const substitutes = await loadedAs(source).catch(async (error: unknown) => {
      const refusal = refusalOf(error);
      if (!source.plain) throw refusal;
      // ONNX Runtime does not name a node that it has replaced by its function's body.
      const named = source.nodes.filter(({ name }) => name === refusal.where.node);
      const lacking = new Set((named.length > 0 ? named : source.nodes).map(({ op }) => op));
      const others = await loadedAs({ ...source, model: await source.plain() }).catch((inPlain: unknown) => {
        refusalOf(inPlain);
        throw refusal;
      });
      return [...others, `${[...lacking].join(' or ')}, in plainer operators`];
    });
    return {
      substitutes,
      run: async (inputs) => {
        const from = performance.now();
        const { outputs, milliseconds } = await connection.ask({
          kind: 'run',
          segment,
          inputs: inputs.map(sendableTensor),
        });
        copying += performance.now() - from - milliseconds;
        // Received tensors share the memory of a message.
        return outputs.map(({ dtype, shape, bytes }) => ({ dtype, shape, bytes: Uint8Array.from(bytes) }));
      },
      release: async () => {
        await connection.ask({ kind: 'release', segment });
      },
    };
  };
  return {
    name: traits.name,
    hasValues: true,
    writesInPlace: false,
    tensor: (dtype, shape, bytes) => ({ dtype, shape, bytes }),
    bytes: ({ bytes }) => bytes,
    load,
    copied: () => copying,
    close: () => connection.close(),
  };
}

/** One process, and the callers that wait for its answers. */
class Connection {
  private readonly child: ChildProcess;
  private readonly waiting = new Map<
    number,
    { readonly resolve: (answer: DeviceResult) => void; readonly reject: (error: Error) => void }
  >();
  private readonly exited: Promise<void>;
  private calls = 0;
  private end: Error | null = null;
  /** The end of its standard error. */
  log = '';

  constructor(private readonly isStopped: () => boolean) {
    this.child = fork(fileURLToPath(new URL('./device-process.js', import.meta.url)), {
      serialization: 'advanced',
      execArgv: [],
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    this.child.stderr?.on('data', (text: Buffer) => {
      this.log = (this.log + text.toString()).slice(-MOST_LOG);
    });
    this.child.on('message', (answer: DeviceAnswer) => this.hear(answer));
    this.child.on('error', (error) => this.fail(error));
    const written = new Promise((resolve) => this.child.stderr?.once('close', resolve));
    // In a worker thread the event `close` is not emitted.
    this.exited = new Promise<void>((resolve) => {
      this.child.once('exit', async (code, signal) => {
        await written;
        const lastLine = this.log.trimEnd().split('\n').at(-1);
        const how = signal ? `signal ${signal}` : `code ${code}`;
        this.fail(new Error(`the process of the device ended with ${how}${lastLine ? `: ${lastLine}` : ''}`));
        resolve();
      });
    });
  }

  ask(command: Distributed<DeviceCommand>): Promise<DeviceResult> {
    if (this.end) return Promise.reject(this.end);
    const call = this.calls++;
    const watch = setInterval(() => {
      if (this.isStopped()) this.child.kill('SIGKILL');
    }, LOOK_MILLISECONDS);
    return new Promise<DeviceResult>((resolve, reject) => {
      this.waiting.set(call, { resolve, reject });
      this.child.send({ ...command, call }, (error) => {
        if (error) this.fail(error);
      });
    }).finally(() => clearInterval(watch));
  }

  async close(): Promise<void> {
    this.end ??= new Error('the device is closed');
    if (this.child.connected) this.child.disconnect();
    await this.exited;
  }

  private hear(answer: DeviceAnswer): void {
    const waiting = this.waiting.get(answer.call);
    this.waiting.delete(answer.call);
    if (answer.error) waiting?.reject(errorOf(answer.error));
    else waiting?.resolve(answer);
  }

  private fail(error: Error): void {
    this.end ??= error;
    for (const { reject } of this.waiting.values()) reject(this.end);
    this.waiting.clear();
  }
}

/** The refusal of an operator. @throws any other error */
function refusalOf(error: unknown): AutoparError {
  if (error instanceof AutoparError && error.code === 'unsupported-operator') return error;
  throw error;
}

type DeviceResult = Extract<DeviceAnswer, { error: null }>;

/** `Omit` of each member of a union. */
type Distributed<Command> = Command extends { readonly call: number } ? Omit<Command, 'call'> : never;

const LOOK_MILLISECONDS = 100;

/** Maximum number of characters of a log that are stored. */
const MOST_LOG = 2 ** 24;

function sendable({ plain: _, ...source }: SegmentSource): SegmentSource {
  const weights = source.weights.map(({ name, data }) => ({ name, data: buffer(data) }));
  return { ...source, model: buffer(source.model), weights };
}

function sendableTensor({ dtype, shape, bytes }: HostTensor): HostTensor {
  return { dtype, shape, bytes: buffer(bytes) };
}

/** For a plain view the whole memory behind it would be sent. */
function buffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function errorOf({ message, stack, user }: PlainError): Error {
  if (user) return new AutoparError(user.code, user.exit, message, user.where, user.hint);
  const error = new Error(message);
  error.stack = stack;
  return error;
}

/** Where ONNX Runtime has placed a node; null for all nodes of a segment at once. */
export interface DevicePlacement {
  readonly provider: string;
  readonly node: string | null;
}

/**
 * Where ONNX Runtime places a segment's nodes if it may run them on the CPU as well: a process that loads the segment with all
 * messages writes that. Names are those inside of the segment.
 */
export async function placementsOf(
  traits: BackendTraits,
  device: number,
  source: SegmentSource,
  isStopped: () => boolean,
): Promise<readonly DevicePlacement[]> {
  const connection = new Connection(isStopped);
  try {
    await connection.ask({ kind: 'open', backend: traits.name, device, explain: true });
    await connection.ask({ kind: 'load', segment: 0, source: sendable(source), threads: 1 });
  } finally {
    await connection.close();
  }
  let provider = '';
  return connection.log.split('\n').flatMap((line): readonly DevicePlacement[] => {
    const place = /(All nodes|Node\(s\)) placed on \[(\w+)\]/.exec(line);
    if (place) provider = place[2] ?? '';
    if (place?.[1] === 'All nodes') return [{ provider, node: null }];
    const node = /VerifyEachNodeIsAssignedToAnEp\]\s+\w+ \((.*)\)/.exec(line)?.[1];
    return node === undefined ? [] : [{ provider, node }];
  });
}

/**
 * The operators that are not on the device: those that read or make integers or doubles (positions, the step number and values
 * computed from it) stay on the CPU.
 * @throws AutoparError `unsupported-operator` (exit backendAbsent) for any other
 */
function asideOnHost(
  traits: BackendTraits,
  { nodes }: SegmentSource,
  placements: readonly DevicePlacement[],
): readonly string[] {
  const isAside = ({ dtypes }: ProgramNode) => dtypes.some((dtype) => ASIDE.test(dtype));
  const elsewhere = placements.filter(({ provider }) => provider === 'CPUExecutionProvider');
  return elsewhere.map(({ node: name }) => {
    // Nodes that ONNX Runtime makes from a function's body have no names.
    const node = (name ? nodes[nodePosition(name)] : nodes.find(isAside)) ?? null;
    if (node && isAside(node)) return `${node.op} of ${node.dtypes.join(', ')}`;
    throw withoutKernel(`backend ${traits.name}`, node, 'ONNX Runtime would run it on the CPU', traits.otherwise);
  });
}

/** Types that devices have few kernels for, and models little of. */
const ASIDE = /^(?:u?int\d+|bool|float64)$/;
