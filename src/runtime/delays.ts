/**
 * @file A transport in which every collective or transfer begins late by a random time, drawn anew in every step: for tests that
 * results do not depend on which rank is first.
 */
import type { Control } from './control.js';
import type { Delays, RankSetup } from './messages.js';
import type { CollectiveCall, TransferCall, Transport } from './transport.js';

export class DelayedTransport implements Transport {
  /** State of the generator; never set back, so that steps differ. */
  private state: number;

  constructor(
    private readonly carrier: Transport,
    private readonly setup: Pick<RankSetup, 'rank'>,
    private readonly delays: Delays,
    private readonly control: Control,
  ) {
    this.state = (Math.imul(delays.seed + 1, 0x9e3779b1) ^ Math.imul(setup.rank + 1, 0x85ebca6b)) >>> 0;
  }

  start(call: CollectiveCall, input: Uint8Array): number {
    this.delay();
    return this.carrier.start(call, input);
  }

  wait(call: CollectiveCall, result: Uint8Array): void {
    this.delay();
    this.carrier.wait(call, result);
  }

  send(call: TransferCall, tensor: Uint8Array): void {
    this.delay();
    this.carrier.send(call, tensor);
  }

  receive(call: TransferCall): Uint8Array {
    this.delay();
    return this.carrier.receive(call);
  }

  blocked(): number {
    return this.carrier.blocked();
  }

  /** Half of the collectives and transfers begin at once. */
  private delay(): void {
    const drawn = this.draw();
    if (drawn < 0.5) return;
    this.control.pause(this.setup.rank, (2 * drawn - 1) * this.delays.seconds * 1000);
  }

  /** In [0, 1): mulberry32. */
  private draw(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), this.state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }
}
