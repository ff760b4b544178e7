/** @file The samples that BatchNormalization computes its statistics over: the values of `--batch-statistics`. */
export const BATCH_STATISTICS = ['batch', 'micro-batch', 'shard'] as const;
export type BatchStatistics = (typeof BATCH_STATISTICS)[number];
