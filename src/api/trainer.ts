/**
 * @file A trainer: trains, fine-tunes, evaluates and runs one model under any parallel configuration. Weights are unsharded
 * between its calls, so that each call may run on other ranks than the previous one.
 */

import { AutoparError, usageError } from '../ir/error.js';
import { openSession, type UnshardedTensors } from '../runtime/session.js';
import { familyOf } from './models/model-choice.js';
import type { CompileOptions } from './options/flat-degrees.js';
import { TRAIN_IDLE } from './options/idle.js';
import { defaultFolder, readCompiled } from './output/folder.js';
import type { Training } from './requests/training-request.js';
import type { EvaluateOptions, TrainOptions, TrainReport } from './train.js';
import type { Evaluation } from './training-run/evaluate.js';
import { checked, compile } from './verbs.js';

/** A model and its training, as in `compile`. */
export interface TrainerOptions
  extends Omit<CompileOptions, 'training' | 'planOnly' | 'verify' | 'target' | 'writeModel'> {
  readonly training: Training;
}

/** Degrees and techniques of `compile`: dp, tp, pp, sp, ep, zero, schedule, recompute, … */
export type TrainerConfig = Omit<TrainerOptions, 'model' | 'training'> & { readonly microBatches?: number };

type DataRun = Omit<TrainOptions, 'directory' | 'model'>;

export class Trainer {
  private config: TrainerConfig = {};
  private kept: UnshardedTensors = {};
  private isCompiled = false;

  /** @throws AutoparError (usage) `missing-argument` */
  constructor(private readonly options: TrainerOptions) {
    const lacking = (['model', 'training'] as const).find((name) => options?.[name] === undefined);
    if (lacking) throw usageError('missing-argument', `new Trainer() needs the option ${lacking}`);
  }

  /** Sets the parallel configuration for the next calls. Weights stay unchanged. */
  setParallelConfig(config: TrainerConfig): this {
    this.config = config;
    this.isCompiled = false;
    return this;
  }

  /** Trains from the weights of the model. @throws AutoparError as `compile` and `train` */
  async train(data: DataRun): Promise<TrainReport> {
    return this.run(data, async () => ({}));
  }

  /** Continues training from the weights of the last call, with new optimizer state. */
  async finetune(data: DataRun): Promise<TrainReport> {
    return this.run(data, async () => {
      const { planned } = await this.model();
      return Object.fromEntries(Object.entries(this.kept).filter(([name]) => planned.gradients?.has(name)));
    });
  }

  /** The mean loss of data for the current weights. */
  async evaluate(options: EvaluateOptions): Promise<Evaluation> {
    return checked('evaluate', options, [], async () => {
      const { data, tokenType = 'uint16' } = options;
      const { openEvaluator } = await import('./training-run/evaluate.js');
      const { plan } = await readCompiled(await this.folder());
      const { training } = plan;
      if (!training) throw new Error('the plan is for inference');
      return this.forward('loss', async (program) => {
        const evaluator = openEvaluator(program, { files: data, tokenType }, training);
        try {
          return await evaluator.evaluate();
        } finally {
          evaluator.close();
        }
      });
    });
  }

  /** The model's outputs for one batch of inputs and the current weights. */
  async predict(inputs: UnshardedTensors): Promise<UnshardedTensors> {
    return this.forward('outputs', async ({ session }) => (await session.step(inputs)).outputs);
  }

  private async run(data: DataRun, initial: () => Promise<UnshardedTensors>): Promise<TrainReport> {
    const { directory } = this;
    return checked('train', { ...data, directory }, TRAIN_IDLE, async () => {
      const values = await initial();
      const { trainFrom } = await import('./train.js');
      const { report, kept } = await trainFrom({ ...data, directory: await this.folder() }, values, true);
      this.kept = kept;
      return report;
    });
  }

  private async forward<Result>(
    gives: 'loss' | 'outputs',
    act: (
      program: Awaited<ReturnType<typeof import('./training-run/forward-program.js').openForward>>,
    ) => Promise<Result>,
  ): Promise<Result> {
    const { openForward } = await import('./training-run/forward-program.js');
    const directory = await this.folder();
    const parts = await readCompiled(directory);
    const { signal } = this.options;
    const session = signal ? { signal } : {};
    const { training } = this.options;
    const program = await openForward({ directory, parts, training, batch: null, gives, session });
    try {
      await program.write(await this.weights(directory));
      return await act(program);
    } finally {
      await program.close();
    }
  }

  /** Values by name: those of the last run, or the initial values of the compiled program. */
  private async weights(directory: string): Promise<UnshardedTensors> {
    if (Object.keys(this.kept).length > 0) return this.kept;
    const session = await openSession(directory);
    try {
      return await session.read((session.program.state ?? []).map(({ to }) => to));
    } finally {
      await session.close();
    }
  }

  private async model() {
    const { openCompiled } = await import('./verify.js');
    return openCompiled(await this.folder(), { withValues: false });
  }

  private get directory(): string {
    const { generate = '', model = familyOf(generate) } = this.options;
    return this.config.output ?? this.options.output ?? defaultFolder(model);
  }

  /** The compiled folder; it is compiled again if the configuration has changed since the last call. */
  private async folder(): Promise<string> {
    const { training, ...options } = this.options;
    const { microBatches, ...config } = this.config;
    const { directory } = this;
    if (this.isCompiled) return directory;
    const asked = { ...training, ...(microBatches === undefined ? {} : { microBatches }) };
    const { programWritten, programReason } = await compile({
      ...options,
      ...config,
      training: asked,
      output: directory,
    });
    if (!programWritten)
      throw new AutoparError(
        'no-program',
        'input',
        programReason ?? 'no program was written',
        { file: directory },
        'add initRandom, which makes values',
      );
    this.isCompiled = true;
    return directory;
  }
}
