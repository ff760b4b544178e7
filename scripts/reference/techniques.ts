/**
 * @file Techniques of distributed training: what each does, the commands that show it, and the tests that prove it.
 * docs/reference/coverage.md is written from this table; test/docs/reference.test.ts checks that commands, options and tests
 * exist.
 */

export interface Technique {
  readonly does: string;
  /** Lines of `autopar` or `npm run`. */
  readonly commands: readonly [string, ...string[]];
  /** Files or folders, from the repository root. */
  readonly tests: readonly [string, ...string[]];
}

/** By section of the page. */
export const TECHNIQUES: Readonly<Record<string, readonly Technique[]>> = {
  'Data parallelism and ZeRO': [
    {
      does: 'Data parallelism: the batch is sharded, each device holds the whole model',
      commands: ['autopar compile MODEL --dp 2'],
      tests: ['test/api/techniques.test.ts'],
    },
    {
      does: 'Gradients are all-reduced (DDP)',
      commands: ['autopar compile MODEL --train --dp 2', 'autopar run DIR --steps N'],
      tests: ['test/api/models/training.test.ts'],
    },
    {
      does: 'Parameter server: one rank updates; why it does not scale',
      commands: ['autopar compile MODEL --train --dp 4 --gradient-sync parameter-server'],
      tests: ['test/pipelines/server.test.ts', 'test/docs/server-table.slow.ts'],
    },
    {
      does: 'Each data-parallel group communicates on its own, in parallel with the others',
      commands: ['autopar groups --rank R'],
      tests: ['test/cli/groups.test.ts'],
    },
    {
      does: 'FSDP: reduce-scatter and all-gather; parameters, gradients and state sharded',
      commands: ['autopar compile MODEL --train --dp 8 --zero 3'],
      tests: ['test/pipelines/zero.test.ts'],
    },
    {
      does: 'FSDP on dp and tensor parallelism on tp together',
      commands: ['autopar compile MODEL --train --dp 2 --tp 2 --zero 3 --verify'],
      tests: ['test/pipelines/zero.test.ts', 'test/pipelines/zero.slow.ts'],
    },
    {
      does: 'ZeRO-1 with pipeline and tensor parallelism',
      commands: ['autopar compile MODEL --train --zero 1 --pp 2 --dp 2 --verify'],
      tests: ['test/pipelines/zero.slow.ts'],
    },
    {
      does: 'ZeRO 1 to 3: bytes per parameter, and what they cost',
      commands: ['autopar compile MODEL --train --dp 2 --zero 1'],
      tests: ['test/pipelines/zero.test.ts'],
    },
    {
      does: 'ZeRO-2 and ZeRO-3, and why they cost more with a pipeline',
      commands: ['autopar compile MODEL --train --pp 2 --dp 2 --zero 2', 'autopar simulate --pp 4 --zero 2'],
      tests: ['test/pipelines/zero.slow.ts', 'test/search/behaviour/degrees.test.ts'],
    },
    {
      does: 'Optimizer parallelism (`enable_parallel_optimizer`)',
      commands: ['autopar compile MODEL --train --zero 1', 'autopar compile MODEL --config FILE'],
      tests: ['test/pipelines/zero.test.ts', 'test/api/parallel-config/config.test.ts'],
    },
    {
      does: 'Gradient accumulation',
      commands: ['autopar compile MODEL --train --micro-batches 4'],
      tests: ['test/api/requests/micro-batches.test.ts'],
    },
    {
      does: 'Communication fusion (`gradient_aggregation_group`), overlapped with the backward',
      commands: ['autopar compile MODEL --train --bucket 25MB'],
      tests: ['test/pipelines/buckets.test.ts', 'test/api/parallel-config/config.test.ts'],
    },
    {
      does: 'Several copies in flight (`micro_batch_interleave_num`)',
      commands: ['autopar compile MODEL --train --tp 2 --interleave 2'],
      tests: ['test/pipelines/interleave.test.ts', 'test/api/parallel-config/config.test.ts'],
    },
    {
      does: 'Data-parallel gradient traffic falls with tp and pp',
      commands: ['autopar simulate'],
      tests: ['test/api/simulate.test.ts'],
    },
  ],
  'Tensor parallelism': [
    {
      does: 'Tensor parallelism: tensors of an operator are sharded',
      commands: ['autopar compile MODEL --tp 2'],
      tests: ['test/api/techniques.test.ts'],
    },
    {
      does: 'Row parallelism: X·W = X₁W₁ + X₂W₂',
      commands: ['autopar compile MODEL --tp 2'],
      tests: ['test/api/techniques.test.ts'],
    },
    {
      does: 'Column parallelism: X·W = [XW₁, XW₂]',
      commands: ['autopar compile MODEL --tp 2'],
      tests: ['test/api/techniques.test.ts'],
    },
    {
      does: 'Pairwise: column, then row, one all-reduce',
      commands: ['autopar compile MODEL --tp 2'],
      tests: ['test/api/techniques.test.ts'],
    },
    {
      does: 'Ranks of a tensor-parallel group get the same input',
      commands: ['autopar run DIR'],
      tests: ['test/api/techniques.test.ts'],
    },
    {
      does: 'Some layers cannot be cut; they are named',
      commands: ['autopar compile MODEL --tp 2'],
      tests: ['test/api/techniques.test.ts'],
    },
    {
      does: '`model_parallel` that does not divide a size: the size is padded',
      commands: ['autopar compile MODEL --tp 3'],
      tests: ['test/api/techniques.test.ts'],
    },
    {
      does: "Megatron's sequence parallelism",
      commands: ['autopar compile MODEL --tp 4 --cluster 1x4:a100-sxm-80'],
      tests: ['test/search/plan.test.ts', 'test/search/behaviour/megatron.test.ts'],
    },
    {
      does: 'Column-wise and row-wise parallel styles for chosen modules',
      commands: ['autopar compile MODEL --annotations FILE'],
      tests: ['test/cli/annotations.test.ts', 'test/sharding-propagation/annotations/'],
    },
    {
      does: 'Model parallelism fits models that one device cannot hold',
      commands: ['autopar compile MODEL --tp 2 --memory 80GB'],
      tests: ['test/search/plan.test.ts'],
    },
  ],
  Pipelines: [
    {
      does: 'Pipeline parallelism: the model cut by layers',
      commands: ['autopar compile MODEL --train --pp 4', "autopar compile MODEL --pp 2 --stages 'E | t*2 H'"],
      tests: ['test/pipelines/', 'test/search/pipeline/'],
    },
    {
      does: 'Activations go forward, gradients backward, between neighbours',
      commands: ['autopar compile MODEL --train --pp 2', 'autopar groups --pp 4'],
      tests: ['test/pipelines/counted.test.ts', 'test/cli/groups.test.ts'],
    },
    {
      does: 'Layers partitioned evenly over stages, embedding first and decoder last',
      commands: ['autopar compile MODEL --pp 2'],
      tests: ['test/search/configurations/cut-layers.test.ts'],
    },
    {
      does: 'Naive pipeline',
      commands: ['autopar compile MODEL --train --pp 2 --schedule naive'],
      tests: ['test/schedule/'],
    },
    {
      does: 'F-then-B schedule',
      commands: ['autopar compile MODEL --train --pp 2 --schedule f-then-b'],
      tests: ['test/pipelines/compiled.test.ts'],
    },
    {
      does: '1F1B schedule; kept activations depend on stages only (PipeDream)',
      commands: ['autopar compile MODEL --train --pp 2 --schedule 1f1b'],
      tests: ['test/pipelines/compiled.test.ts', 'test/schedule/schedule.test.ts'],
    },
    {
      does: 'Micro-batch pipeline (GPipe)',
      commands: [
        'autopar compile MODEL --train --pp 4 --micro-batches 8 --schedule f-then-b',
        'autopar simulate --trace FILE',
      ],
      tests: ['test/schedule/schedule.test.ts', 'test/api/simulate.test.ts'],
    },
    {
      does: 'GPipe, gradient accumulation, recomputation of stages',
      commands: ['autopar compile --train --pp 4 --micro-batches 4 --schedule f-then-b --recompute stage'],
      tests: ['test/pipelines/recompute.test.ts', 'test/api/requests/micro-batches.test.ts'],
    },
    {
      does: 'Small micro-batches against pipeline bubbles',
      commands: ['autopar compile MODEL --train --pp 4 --micro-batches 8', 'autopar explain DIR --schedule'],
      tests: ['test/schedule/simulate.test.ts', 'test/cli/explain-schedule.test.ts'],
    },
    {
      does: 'Stages with meshes of their own (tp 2, then dp 2; sp 2 · tp 2, then dp 4; ep)',
      commands: ["autopar compile MODEL --meshes 'tp2 | dp2'"],
      tests: ['test/pipelines/unlike-meshes.test.ts'],
    },
    {
      does: 'A stage on slower nodes, or with less memory, priced and fitted on its own devices',
      commands: ['autopar simulate --pp 2 --cluster FILE'],
      tests: ['test/cost-model/step/stages.test.ts', 'test/api/simulate.test.ts'],
    },
  ],
  'Sequences and experts': [
    {
      does: 'Keys and values gathered over sp',
      commands: ['autopar compile MODEL --sp 2 --sp-method gather --verify'],
      tests: ['test/pipelines/sequence-experts.test.ts'],
    },
    {
      does: 'Ring attention',
      commands: ['autopar compile MODEL --sp 2 --sp-method ring --verify'],
      tests: ['test/pipelines/sequence-experts.test.ts'],
    },
    {
      does: 'DeepSpeed-Ulysses',
      commands: ['autopar compile MODEL --sp 2 --sp-method ulysses --verify'],
      tests: ['test/pipelines/sequence-experts.test.ts'],
    },
    {
      does: '32K tokens as 8 × 4K over devices',
      commands: ['autopar compile MODEL --train --sp 8', 'autopar simulate --model llama:seq=131072 --sp 8'],
      tests: ['test/pipelines/sequence-experts.test.ts', 'test/search/behaviour/degrees.test.ts'],
    },
    {
      does: 'Experts on different devices, all-to-all before and after',
      commands: ['autopar compile --model moe --dp 4 --ep 2'],
      tests: ['test/pipelines/sequence-experts.test.ts'],
    },
    {
      does: 'Top-k gate, capacity, padding, dropped tokens on the residual',
      commands: [
        'autopar compile MODEL --dp 4 --ep 2 --dispatch padded --capacity-factor 1.25',
        'autopar compile MODEL --dp 4 --ep 2 --dispatch variable --capacity-factor 1.25',
      ],
      tests: ['test/ir/experts/dispatch-experts.test.ts', 'test/api/models/dispatch.test.ts'],
    },
    {
      does: 'Load-balancing loss',
      commands: ['autopar compile MODEL --train --moe-balance 0.01'],
      tests: ['test/ir/experts/balance-loss.test.ts'],
    },
    {
      does: 'Top-2 gate: two experts, weighted sum',
      commands: ['autopar compile MODEL --verify'],
      tests: ['test/conformance/models.slow.ts'],
    },
    {
      does: 'Shapes static when compiling, routing dynamic when running',
      commands: ['autopar compile MODEL --verify'],
      tests: ['test/conformance/models.slow.ts'],
    },
    {
      does: 'Attention over windows and with sinks, experts with biases',
      commands: ['autopar compile --model moe:window=128,sinks=1,bias=1,clamp=7 --init random --tp 2 --verify'],
      tests: ['test/models/gpt-oss.test.ts', 'test/models/hybrid.test.ts'],
    },
    {
      does: 'Packed samples and attention sinks under sp, by every method',
      commands: ['autopar compile MODEL --train --sp 2 --sp-method ring --verify'],
      tests: ['test/pipelines/sequence-experts.slow.ts', 'test/ir/fused-regions/causal-mask.test.ts'],
    },
    {
      does: 'Every method on 2 and 4 ranks and beside dp, tp and pp, by how attention is written; activations falling with sp',
      commands: ['autopar compile MODEL --train --sp 4 --sp-method ulysses --verify'],
      tests: ['test/pipelines/sequence-methods.slow.ts', 'test/ir/passes/write-attention.test.ts'],
    },
    {
      does: 'Experts whose tokens are picked out by NonZero, as PyTorch exports Mixtral of transformers',
      commands: ['autopar compile MODEL --train --dp 4 --ep 2 --dispatch padded --verify'],
      tests: ['test/ir/passes/picked-rows.test.ts', 'test/reference/module-exports.slow.ts'],
    },
    {
      does: 'Experts whose weights are gathered by each token’s choice, as transformers 5 exports Mixtral and DeepSeek',
      commands: ['autopar compile MODEL --train --dp 4 --ep 2 --dispatch padded --verify'],
      tests: ['test/ir/experts/dispatch-experts.test.ts', 'test/reference/exported-training.slow.ts'],
    },
    {
      does: 'Models of several kinds of layers in turns: state space, attention, experts',
      commands: ['autopar compile --model hybrid:pattern=M*E --init random --tp 2 --verify'],
      tests: ['test/models/hybrid.test.ts', 'test/models/state-space.test.ts'],
    },
  ],
  'Combinations and process groups': [
    {
      does: 'Hybrid of data and tensor parallelism (2-D device mesh)',
      commands: ['autopar compile MODEL --dp 2 --tp 2'],
      tests: ['test/api/techniques.test.ts'],
    },
    {
      does: '3-D hybrid: data, pipeline and tensor parallelism on at least 8 devices',
      commands: ['autopar compile MODEL --train --pp 2 --dp 2 --tp 2'],
      tests: ['test/pipelines/'],
    },
    {
      does: '2-D mesh `[dp, tp]` of 8 × 8: tp inside a host, dp between hosts',
      commands: ['autopar groups --dp 8 --tp 8'],
      tests: ['test/cli/groups.test.ts'],
    },
    {
      does: 'Groups of one copy of the model (tp and pp together)',
      commands: ['autopar groups --pp 4 --dp 2 --tp 2'],
      tests: ['test/cli/groups.test.ts'],
    },
    {
      does: 'Sixteen devices on two nodes: MP, TP, PP and DP groups',
      commands: ['autopar groups --pp 4 --dp 2 --tp 2'],
      tests: ['test/cli/groups.test.ts'],
    },
    {
      does: 'Topology-aware mapping: tp on the fastest links, then dp, pp between nodes',
      commands: ['autopar groups --pp 4 --dp 2 --tp 2', 'autopar simulate --mesh', 'autopar explain DIR --mesh'],
      tests: ['test/cli/groups.test.ts', 'test/cost-model/step/mesh-order.test.ts'],
    },
    {
      does: "The order of the mesh's axes is part of the search",
      commands: ['autopar simulate --mesh-order AXES'],
      tests: ['test/search/configurations/device-mappings.test.ts'],
    },
    {
      does: 'Communication grows PP < DP < TP',
      commands: ['autopar simulate --model gpt:… --tp 8 --pp 4'],
      tests: ['test/api/simulate.test.ts'],
    },
  ],
  Memory: [
    {
      does: 'Recomputation of activations, by kind and by layer',
      commands: [
        'autopar compile MODEL --train --recompute full',
        'autopar compile MODEL --train --recompute full:0-3',
      ],
      tests: ['test/pipelines/recompute.test.ts', 'test/pipelines/recompute.slow.ts', 'test/search/configurations/'],
    },
    {
      does: 'Recomputation in all micro-batches but the last (`except_last`)',
      commands: ['autopar compile --train --pp 2 --micro-batches 4 --recompute stage:except-last'],
      tests: ['test/pipelines/recompute.test.ts'],
    },
    {
      does: 'Parameters, gradients, optimizer state and activations on the host or on disk, in programs; operators on the host',
      commands: ['autopar compile --offload all'],
      tests: ['test/pipelines/offload.test.ts', 'test/pipelines/offload.slow.ts'],
    },
    {
      does: 'Offload of parameters to the host',
      commands: ['autopar compile MODEL --train --offload parameters'],
      tests: ['test/pipelines/offload.slow.ts'],
    },
    {
      does: 'Host and device together; storage on host or disk',
      commands: ['autopar compile MODEL --train --offload optimizer:disk', 'autopar compile MODEL --annotations FILE'],
      tests: ['test/pipelines/offload.test.ts', 'test/pipelines/offload.slow.ts'],
    },
    {
      does: 'Offload of optimizer state and activations to the host, priced',
      commands: ['autopar simulate --offload all'],
      tests: ['test/cost-model/step/offload.test.ts', 'test/search/configurations/device-mappings.test.ts'],
    },
    {
      does: 'Gradients added up and reduced in fp32 or bf16, the same in memory as on the wire (priced, no program)',
      commands: ['autopar simulate --gradients bfloat16'],
      tests: ['test/cost-model/step/step.test.ts'],
    },
    {
      does: 'What takes most memory at the peak, by name',
      commands: ['autopar simulate', 'autopar explain DIR --memory'],
      tests: ['test/cost-model/step/largest-tensors.test.ts'],
    },
    {
      does: 'Peak memory is estimated before devices are chosen',
      commands: ['autopar compile MODEL --plan-only', 'autopar explain DIR --memory'],
      tests: ['test/api/rank-memory.test.ts'],
    },
    {
      does: 'Parameters, gradients and optimizer state in bytes',
      commands: ['autopar inspect MODEL --train'],
      tests: ['test/cli/inspect.test.ts'],
    },
  ],
  Training: [
    {
      does: 'Cross entropy with labels that do not count, weights of classes, label smoothing',
      commands: ['autopar compile MODEL --train --ignore-index N --class-weights F --label-smoothing E'],
      tests: ['test/ir/autodiff/append-loss.test.ts', 'test/ir/autodiff/torch-training.slow.ts'],
    },
    {
      does: 'SGD, momentum, Nesterov, Adam, AdamW, LAMB',
      commands: ['autopar compile MODEL --train --optimizer KIND'],
      tests: ['test/api/models/training.test.ts', 'test/ir/autodiff/torch-training.slow.ts'],
    },
    {
      does: 'The update of a weight is one operator, fused, and shared out over dp where that costs less (ZeRO-1)',
      commands: ['autopar compile MODEL --train --dp 8', 'autopar explain DIR --op WEIGHT/update'],
      tests: ['test/ir/autodiff/weight-update.test.ts', 'test/search/behaviour/sharded-update.test.ts'],
    },
    {
      does: 'Weight-decay groups',
      commands: ['autopar inspect MODEL --train --undecayed GLOB'],
      tests: ['test/cli/inspect.test.ts', 'test/ir/autodiff/torch-training.slow.ts'],
    },
    {
      does: 'Clipping by the global norm; rates with warm-up that fall linearly or as a cosine',
      commands: ['autopar compile MODEL --train --clip-norm 1 --schedule-lr cosine'],
      tests: ['test/ir/autodiff/torch-training.slow.ts'],
    },
    {
      does: 'Mixed precision: fp16 or bf16 with fp32 master weights',
      commands: ['autopar compile MODEL --train --precision bf16'],
      tests: ['test/ir/autodiff/mixed-precision.test.ts', 'test/api/training-precision.slow.ts'],
    },
    {
      does: 'Loss scaling, static and dynamic',
      commands: ['autopar compile MODEL --train --precision fp16 --loss-scale dynamic'],
      tests: ['test/ir/autodiff/loss-scale.test.ts'],
    },
    {
      does: 'Batch statistics of the whole batch, of each micro-batch, of each shard',
      commands: ['autopar compile MODEL --train --dp 2 --micro-batches 2 --batch-statistics shard'],
      tests: ['test/api/models/batch-statistics.test.ts', 'test/api/requests/micro-batches.test.ts'],
    },
    {
      does: 'A training stops and goes on, to the bit, and under another plan or number of devices',
      commands: [
        'autopar train DIR --data F --checkpoint-every 100',
        'autopar train DIR --data F --resume',
        'npm run checkpoints:pairs',
      ],
      tests: ['test/checkpoints/train.test.ts', 'test/checkpoints/pairs.slow.ts'],
    },
    {
      does: 'A training that is killed loses nothing',
      commands: ['autopar train DIR --data F --resume', 'npm run checkpoints:kills'],
      tests: ['test/checkpoints/kills.slow.ts', 'test/checkpoints/checkpoints.test.ts'],
    },
    {
      does: "Trained weights in the model's ONNX file and in safetensors",
      commands: ['autopar export DIR -o F.onnx'],
      tests: ['test/checkpoints/train.test.ts', 'test/checkpoints/export.slow.ts'],
    },
  ],
  Planner: [
    {
      does: 'Fully automatic: the user writes for one device, the search finds the strategy',
      commands: ['autopar compile MODEL'],
      tests: ['test/search/brute-force.test.ts'],
    },
    {
      does: 'A cost model finds the strategy of least time',
      commands: ['autopar compile MODEL'],
      tests: ['test/search/plan.test.ts'],
    },
    {
      does: "Operator-level parallelism: each operator's tensors cut by its own strategy",
      commands: ['autopar compile MODEL'],
      tests: ['test/partition/lower-operator.test.ts'],
    },
    {
      does: 'Degrees, stage cuts, recomputation, ZeRO and schedule chosen together, each rejected combination with its figure',
      commands: ['autopar explain DIR --rejected'],
      tests: ['test/search/configurations/'],
    },
    {
      does: 'Training steps proven optimal over all even stages, and compared with every cut of small spaces',
      commands: ['autopar compile MODEL --train --cluster NxM:ID', 'npm run bench:search'],
      tests: ['test/search/configurations/at-least.test.ts', 'test/search/configurations/every-cut.slow.ts'],
    },
    {
      does: 'Optimal under a memory limit, with a proof',
      commands: ['autopar compile MODEL --memory 24GB', 'npm run bench:iopddl -- FILES'],
      tests: ['test/search/memory.test.ts', 'test/solver/', 'test/bench/iopddl.test.ts'],
    },
    {
      does: 'Search modes `dynamic_programming`, `recursive_programming`, `sharding_propagation`, and `ilp`',
      commands: ['autopar compile MODEL --search-mode MODE'],
      tests: ['test/search/modes.test.ts', 'test/cli/search.test.ts'],
    },
    {
      does: 'A search that is ended by the clock gives its best plan so far, with the gap; before any, one that takes no search',
      commands: ['autopar compile MODEL --time-limit 10'],
      tests: [
        'test/search/modes.test.ts',
        'test/cli/search.test.ts',
        'test/cli/plan-only.test.ts',
        'test/search/configurations/best-configurations.test.ts',
      ],
    },
    {
      does: 'What was not looked at is named',
      commands: ['autopar compile MODEL'],
      tests: ['test/cli/left-out.test.ts'],
    },
    {
      does:
        'What a pin on each operator costs, what each pin that there is costs; other degrees and other clusters ' +
        "beside the plan's",
      commands: ['autopar explain DIR --pins', 'autopar explain DIR --rejected --sensitivity'],
      tests: [
        'test/api/explanations/explain-pins.test.ts',
        'test/api/explanations/explain-pins.slow.ts',
        'test/api/explanations/explain-choices.test.ts',
      ],
    },
    {
      does: 'Of options that leave no step, or none that fits, and of pins with which nothing fits, a smallest set is named',
      commands: [
        'autopar compile MODEL --train --plan-only --cluster NxM:ID --pp P --micro-batch B',
        'autopar compile MODEL --annotations FILE --memory 24GB',
      ],
      tests: ['test/api/requests/step-conflict.test.ts', 'test/search/smallest-conflict.test.ts'],
    },
    {
      does:
        'The cheapest part of a cluster, or the smallest that is fast enough; of cluster files, of unequal ' +
        'nodes, for inference too',
      commands: [
        'autopar compile MODEL --plan-only --cluster FILE.yaml --objective cost',
        'autopar compile MODEL --plan-only --cluster FILE.yaml --objective devices --within 4',
      ],
      tests: ['test/cli/compile-parts.test.ts', 'test/cost-model/cluster-parts.test.ts'],
    },
    {
      does: 'Of plans that are as fast the simplest, with memory left free',
      commands: ['autopar compile MODEL --plan-only --prefer simple --headroom 10%'],
      tests: ['test/search/preference.test.ts'],
    },
    {
      does: 'A written plan priced anew',
      commands: ['autopar simulate DIR'],
      tests: ['test/api/one-price.test.ts'],
    },
    {
      does: 'Convolutions data-parallel, fully connected layers model-parallel',
      commands: ['autopar compile --model alexnet --train --dp 8 --axes free'],
      tests: ['test/search/behaviour/convolutions.test.ts', 'test/search/behaviour/vgg.slow.ts'],
    },
    {
      does: 'The head flips to model parallelism with many classes (ResNet-50)',
      commands: ['autopar compile --model resnet:classes=65536 --train --axes free'],
      tests: ['test/search/behaviour/resnet-head.slow.ts'],
    },
    {
      does: 'Speed and memory of GPT-3 sized models balanced',
      commands: [
        'autopar compile --model gpt:layers=96,hidden=12288,heads=96 --train --plan-only --cluster 128x8:a100-sxm-80',
      ],
      tests: ['test/api/simulate.test.ts', 'test/search/configurations/'],
    },
    {
      does: 'Devices of unequal speed get unequal shares of the layers',
      commands: ['autopar compile MODEL --train --plan-only --cluster FILE.yaml --pp 2'],
      tests: ['test/search/configurations/cut-layers.test.ts'],
    },
    {
      does: 'Rules of thumb for strategies, each shown by a command',
      commands: ['autopar simulate', 'autopar explain'],
      tests: ['test/docs/guides.test.ts', 'test/docs/guide-claims.test.ts'],
    },
  ],
  'Cost model': [
    {
      does: 'Link bandwidth and latency of every level decide which axis crosses it',
      commands: ['autopar compile MODEL --cluster FILE.yaml'],
      tests: ['test/cost-model/cluster-file.test.ts', 'test/cli/cluster.test.ts'],
    },
    {
      does: 'Communication is priced as measured, small messages included',
      commands: ['npm run bench:collective-fit'],
      tests: ['test/cost-model/collective-fit.test.ts'],
    },
    {
      does: 'The devices at hand are measured for the cost model',
      commands: ['autopar profile'],
      tests: ['test/api/profile/profile.test.ts', 'test/cost-model/fit-profile.test.ts'],
    },
    {
      does:
        'Measured runs correct what layers are predicted to take, in searches too; scored by models and shapes ' +
        'that were left out',
      commands: [
        'autopar calibrate RUNS.csv --cluster NxM:ID -o FILE.yaml',
        'npm run bench:accuracy -- FILES --calibrated',
      ],
      tests: [
        'test/cost-model/measured-layers/',
        'test/cli/calibrate.test.ts',
        'test/bench/published/calibrated.slow.ts',
        'test/search/configurations/device-mappings.test.ts',
      ],
    },
    {
      does: 'Predicted against measured steps on this machine, inference and training',
      commands: ['npm run bench:local'],
      tests: ['bench/local.ts', 'test/api/profile/profile.test.ts'],
    },
    {
      does: 'Attention of exported models is one kernel, whatever its exporter wrote',
      commands: ['autopar simulate MODEL'],
      tests: ['test/api/planning/graph-work.test.ts'],
    },
  ],
  "MindSpore's modes and options": [
    {
      does: 'Data-parallel mode (0)',
      commands: ['autopar compile MODEL --devices N --dp N'],
      tests: ['test/api/techniques.test.ts'],
    },
    {
      does: 'Semi-automatic mode (1): pins, completed automatically',
      commands: ['autopar compile MODEL --mode semi-auto --annotations FILE'],
      tests: ['test/cli/annotations.test.ts', 'test/api/pinned-models.slow.ts'],
    },
    {
      does: 'Hybrid mode (3)',
      commands: ['autopar compile MODEL --mode hybrid --annotations FILE'],
      tests: ['test/cli/annotations.test.ts'],
    },
    {
      does: '`data_parallel`, `model_parallel`',
      commands: ['autopar compile MODEL --dp D --tp T'],
      tests: ['test/api/techniques.test.ts'],
    },
    {
      does: '`data_parallel` · `model_parallel` · `pipeline_stage` fit the devices',
      commands: ['autopar compile MODEL --dp 2 --tp 2 --devices 8'],
      tests: ['test/cli/usage.test.ts'],
    },
    {
      does: '`pipeline_stage`, `micro_batch_num` ≥ `pipeline_stage`, layers over stages',
      commands: ['autopar compile MODEL --train --config FILE'],
      tests: ['test/api/parallel-config/config.test.ts', 'test/cli/plan-only.test.ts'],
    },
    {
      does: '`use_seq_parallel`',
      commands: ['autopar compile MODEL --config FILE', 'autopar compile MODEL --tp 2 --tp-sequence on'],
      tests: ['test/api/tp-sequence.test.ts', 'test/cost-model/step/work.test.ts'],
    },
    {
      does: '`gradients_mean`: the mean of gradients, or their sum over data-parallel ranks',
      commands: [
        'autopar compile MODEL --config FILE',
        'autopar compile MODEL --train --dp 2 --gradient-reduction sum',
      ],
      tests: ['test/ir/autodiff/sum-over-ranks.test.ts', 'test/api/requests/micro-batches.test.ts'],
    },
    {
      does: '`enable_alltoall`',
      commands: ['autopar compile MODEL --tp 2'],
      tests: ['test/sharding-propagation/resharding.test.ts'],
    },
    {
      does: '`full_batch`: inputs in samples over data-parallel ranks, or as the search finds; a rank reads its shard alone',
      commands: ['autopar compile MODEL --config FILE', 'autopar run DIR'],
      tests: ['test/api/parallel-config/config.test.ts', 'test/api/techniques.test.ts'],
    },
    { does: 'Dataset slicing', commands: ['autopar run DIR'], tests: ['test/api/techniques.test.ts'] },
    {
      does: 'Strategy file (`strategy_ckpt_save_file`)',
      commands: ['autopar compile MODEL --plan-only'],
      tests: ['test/strategy/plan.test.ts'],
    },
    {
      does: 'Equal communication subgraphs reused: equal layers, with their collectives, are one class',
      commands: ['autopar compile MODEL --tp 2 --target torch'],
      tests: ['test/codegen/torch/program.test.ts'],
    },
    {
      does: 'Equal layers share one segment file',
      commands: ['autopar compile MODEL'],
      tests: ['test/api/techniques.test.ts'],
    },
  ],
  'Where programs run': [
    {
      does: 'GPUs of this machine through WebGPU or CUDA, a process per rank, proved against the unsharded model',
      commands: ['autopar verify DIR --backend webgpu'],
      tests: ['test/runtime/device.test.ts', 'test/api/webgpu.slow.ts'],
    },
    {
      does: 'Beyond one machine on an existing engine: Python for torchrun from the sharded graph',
      commands: ['autopar compile MODEL --target torch'],
      tests: [
        'test/codegen/torch/program.test.ts',
        'test/codegen/torch/programs.slow.ts',
        'test/codegen/torch/channels.slow.ts',
        'test/codegen/torch/drawn.slow.ts',
      ],
    },
    {
      does: 'A model per rank in ONNX with collectives as operators, and the whole model with multi-device annotations',
      commands: ['autopar compile MODEL --target onnx'],
      tests: ['test/codegen/onnx/program.test.ts', 'test/codegen/onnx/rank-models.slow.ts'],
    },
    {
      does: 'Strategy files, rank tables and configuration for MindSpore',
      commands: ['autopar compile MODEL --target mindspore'],
      tests: ['test/codegen/mindspore/files.test.ts'],
    },
  ],
};
