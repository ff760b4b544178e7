/**
 * @file The backend `emulated`, and its links: a rank waits as long as a segment is predicted to take, and tensors go from rank
 * to rank in the time that a link of a set bandwidth and latency takes. Tensors have sizes and no values.
 *
 * A rank's clock counts seconds of the step: the predicted end of its current action. It waits until that moment, and sends
 * the others that moment, not the time when it woke up. So a machine that wakes it late changes no figure.
 */
import type { Backend } from './backend.js';
import type { Control } from './control.js';
import type { EmulatedLink, Emulation } from './messages.js';
import { bytesSent, type CollectiveCall, type TransferCall, type Transport } from './transport.js';

/** A moment of the machine's steady clock, in seconds, the same in all threads. */
function now(): number {
  return Number(process.hrtime.bigint()) / 1e9;
}

/** Seconds before the end of a wait from which on the thread does not sleep: the system wakes it some 50 µs late. */
const AWAKE_SECONDS = 1e-4;

export class EmulatedClock {
  /** Seconds of the step after which the actions so far end; each step begins at zero on every rank. */
  private time = 0;
  /** When this rank's step began by the machine's clock. */
  private origin = now();
  private waited = 0;
  private begun = 0;

  constructor(
    private readonly control: Control,
    private readonly rank: number,
  ) {}

  get current(): number {
    return this.time;
  }

  /** Milliseconds that it has waited in `reach` so far. */
  get milliseconds(): number {
    return this.waited;
  }

  /** How many steps have begun. */
  get steps(): number {
    return this.begun;
  }

  begin(): void {
    this.time = 0;
    this.origin = now();
    this.begun++;
  }

  /** Advances by an action of this duration. Throws Stopped. */
  pass(seconds: number): void {
    this.time += seconds;
    this.sleep();
  }

  /** Waits until a moment that may be over already. Throws Stopped. */
  reach(time: number): void {
    const from = performance.now();
    this.time = Math.max(this.time, time);
    this.sleep();
    this.waited += performance.now() - from;
  }

  private sleep(): void {
    for (let left = this.left(); left > 0; left = this.left())
      if (left > AWAKE_SECONDS) this.control.pause(this.rank, (left - AWAKE_SECONDS) * 1000);
  }

  private left(): number {
    return this.origin + this.time - now();
  }
}

/** The empty placeholder that it uses for a tensor. */
type NoValue = Readonly<Record<string, never>>;

/** `seconds` of each segment, by its structure's hash. */
export function makeEmulatedBackend(
  clock: EmulatedClock,
  seconds: Readonly<Record<string, number>>,
  moves: Emulation['moves'],
): Backend<NoValue> {
  return {
    name: 'emulated',
    hasValues: false,
    writesInPlace: false,
    beginStep: () => clock.begin(),
    stepSeconds: () => clock.current,
    passMove: (memory, bytes) => clock.pass(moves ? bytes / moves[memory] : 0),
    tensor: () => ({}),
    bytes: () => NOTHING,
    load: async ({ id, outputs }) => ({
      run: async () => {
        clock.pass(seconds[id] ?? 0);
        return outputs.map(() => ({}));
      },
      release: async () => undefined,
    }),
  };
}

const NOTHING = new Uint8Array();

/**
 * Ranks send each other the time, by their clocks, when they began; all members of a collective then know when it ends. A link
 * between two ranks sends one tensor at a time, and a group runs one collective at a time; those of one bucket are one message,
 * whose latency counts once.
 */
export class EmulatedTransport implements Transport {
  /** When the line to a rank is free again, in seconds of the clock's step. */
  private readonly freeAt = new Map<number, number>();
  private readonly groups = new Map<string, GroupLine>();
  private step = 0;

  constructor(
    private readonly carrier: Transport,
    private readonly clock: EmulatedClock,
    private readonly link: EmulatedLink,
  ) {}

  start(call: CollectiveCall, _input: Uint8Array): number {
    this.enterStep();
    this.groupOf(call).begun.push(call);
    this.carrier.start(meeting(call), bytesOfTime(this.clock.current));
    return bytesSent(call);
  }

  wait(call: CollectiveCall, _result: Uint8Array): void {
    const line = this.groupOf(call);
    // Collectives that began before it run before it, whenever they are waited for.
    while (!line.ends.has(call)) {
      const next = line.begun.shift();
      if (!next) throw new Error('a collective is waited for before it begins');
      const times = new Float64Array(next.members.length);
      this.carrier.wait(meeting(next), new Uint8Array(times.buffer));
      const [first] = line.message;
      const isJoined = next.bucket !== undefined && next.bucket === first?.bucket && !line.message.has(next);
      if (!isJoined) line.message.clear();
      line.message.add(next);
      line.freeAt = Math.max(...times, line.freeAt) + this.secondsOf(next, isJoined);
      line.ends.set(next, line.freeAt);
    }
    this.clock.reach(line.ends.get(call) ?? 0);
    line.ends.delete(call);
  }

  send(call: TransferCall, _tensor: Uint8Array): void {
    this.enterStep();
    const begins = Math.max(this.clock.current, this.freeAt.get(call.peer) ?? 0);
    const ends = begins + call.bytes / this.link.bytesPerSecond;
    this.freeAt.set(call.peer, ends);
    this.carrier.send(call, bytesOfTime(ends + this.link.latency));
  }

  receive(call: TransferCall): Uint8Array {
    const [time = 0] = new Float64Array(this.carrier.receive(call).slice().buffer);
    this.clock.reach(time);
    return NOTHING;
  }

  blocked(): number {
    return this.carrier.blocked() + this.clock.milliseconds;
  }

  /**
   * By ring algorithms: one latency of the link per ring step; a reduce or broadcast is a star, all over the first rank's line.
   */
  private secondsOf(call: CollectiveCall, isJoined: boolean): number {
    const { kind } = call.collective;
    const others = call.members.length - 1;
    const isStar = kind === 'reduce' || kind === 'broadcast';
    const turns = kind === 'all-reduce' ? 2 * others : kind === 'permute' || isStar ? Math.min(1, others) : others;
    const latency = isJoined ? 0 : turns * this.link.latency;
    return latency + (isStar ? others * call.inputBytes : bytesSent(call)) / this.link.bytesPerSecond;
  }

  /** All lines are free when a step begins. */
  private enterStep(): void {
    if (this.step === this.clock.steps) return;
    this.step = this.clock.steps;
    this.freeAt.clear();
    this.groups.clear();
  }

  private groupOf({ members }: CollectiveCall): GroupLine {
    const key = members.join();
    const line = this.groups.get(key) ?? { begun: [], ends: new Map(), freeAt: 0, message: new Set() };
    this.groups.set(key, line);
    return line;
  }
}

/** The line of a group of ranks. */
interface GroupLine {
  /** Collectives not known to have ended yet, in the order in which they began. */
  readonly begun: CollectiveCall[];
  /** End times of collectives that are not waited for yet. */
  readonly ends: Map<CollectiveCall, number>;
  freeAt: number;
  /** The collectives of the last message. */
  readonly message: Set<CollectiveCall>;
}

/** Bytes that a rank's message of a time takes. */
export const TIME_BYTES = Float64Array.BYTES_PER_ELEMENT;

function bytesOfTime(time: number): Uint8Array {
  return new Uint8Array(Float64Array.of(time).buffer);
}

/** The collective as the times travel: all to all members. */
function meeting(call: CollectiveCall): CollectiveCall {
  return {
    ...call,
    collective: { kind: 'all-gather', outer: 1, inner: 1 },
    dtype: 'float64',
    inputBytes: TIME_BYTES,
    outputBytes: TIME_BYTES * call.members.length,
  };
}
