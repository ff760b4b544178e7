/** @file Of what BatchNormalization takes its statistics, by the words of `--batch-statistics`. */
export const BATCH_STATISTICS = ['batch', 'micro-batch', 'shard'] as const;
export type BatchStatistics = (typeof BATCH_STATISTICS)[number];
