/**
 * @file ONNX's multi-device fields (IR 11 and later): on which devices a file wants its nodes' tensors, and in which pipeline
 * stage its nodes. They are hints; nothing that is computed depends on them.
 */
import type { MultiDevice, NodePlacement } from './device-annotations.js';
import type { GraphProto, Integer64, ModelProto, NodeProto } from './schema.js';
import { integerOf } from './tensors.js';

/** The file's device annotations; null where it has none. */
export function multiDeviceOf(model: ModelProto): MultiDevice | null {
  const configurations = (model.configuration ?? []).map((item) => ({
    name: item.name ?? '',
    devices: item.num_devices ?? 0,
  }));
  const placements = placementsOf(model.graph ?? {});
  return configurations.length === 0 && placements.length === 0 ? null : { configurations, placements };
}

function placementsOf(graph: GraphProto): readonly NodePlacement[] {
  return (graph.node ?? []).flatMap((node) =>
    (node.device_configurations ?? []).map((item) => placementOf(node, item)),
  );
}

type NodeConfiguration = NonNullable<NodeProto['device_configurations']>[number];

function placementOf(node: NodeProto, item: NodeConfiguration): NodePlacement {
  return {
    node: node.name ?? '',
    op: node.op_type ?? '',
    outputs: (node.output ?? []).filter((output) => output !== ''),
    configuration: item.configuration_id ?? '',
    // In proto2 an unwritten stage is absent: stage 0 is always written.
    stage: Object.hasOwn(item, 'pipeline_stage') ? (item.pipeline_stage ?? null) : null,
    tensors: (item.sharding_spec ?? []).map((spec) => ({
      tensor: spec.tensor_name ?? '',
      devices: (spec.device ?? []).map(integerOf),
      groups: new Map(
        (spec.index_to_device_group_map ?? []).map((entry) => [
          integerOf(entry.key),
          (entry.value ?? []).map(integerOf),
        ]),
      ),
      dims: (spec.sharded_dim ?? []).map((dim) => ({
        axis: integerOf(dim.axis),
        pieces: (dim.simple_sharding ?? []).map((piece) => ({
          size: sizeOf(piece.dim_value),
          parts: integerOf(piece.num_shards),
        })),
      })),
    })),
  };
}

function sizeOf(value: Integer64 | undefined): number | null {
  const size = integerOf(value);
  return size > 0 ? size : null;
}
