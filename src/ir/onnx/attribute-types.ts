/**
 * @file The forms of attributes, by name. A Graph keeps attributes as plain values; ONNX distinguishes INT, FLOAT and INTS, so
 * the writer must know which to write, and the registry which to accept. In ONNX's own domain and in those of ONNX Runtime
 * a name nearly always has one form wherever it occurs; an operator for which it has another states it in its entry.
 */
import type { AttributeValue } from '../graph.js';

/** `count`, `counts`: integers of at least 1. Others as ONNX names them. */
export type AttributeForm = 'int' | 'ints' | 'count' | 'counts' | 'float' | 'floats' | 'string' | 'strings' | 'tensor';

const NAMES: Readonly<Record<AttributeForm, string>> = {
  int: `accuracy_level align_corners allowzero antialias axis batch_axis batch_dims bits block_size broadcast causal ceil_mode
    center_point_box channels_last chunk_size count_include_pad default_int64 detect_negative detect_positive dim
    dilation do_rotary dtype end exclude_outside exclusive expert_weight_bits fmod gather_axis ignore_index input_forget
    interleaved inverse is_causal is_packed_batching is_test keepdims kv_cache_bit_width kv_num_heads largest layout
    linear_before_reset local_window_size mask_index_type max_gram_length max_skip_count min_gram_length mrope_layout
    ndim new_axis noop_with_empty_axes normalize_routing_weights normalized num_heads onesided opset output_datatype output_dtype
    output_qk p past_present_share_buffer periodic positive precision q_num_heads qk_matmul_output_mode qk_output quantize_axis
    replaced_value_int64 reverse rotary_embedding_dim rotary_interleaved sampling_ratio saturate select_last_index
    sliding_window_cache smooth_softmax softmax_precision sorted spatial start stash_type state_window storage_order
    swiglu_fusion targets time_axis to training_mode transA transB transBatchA transBatchB unidirectional
    upper use_sparse_mixer value_int weight_prepacked weights_prepacked zeros`,
  ints: `axes class_ids consumed_inputs inputdimensions mrope_section ngram_counts ngram_indexes output_padding
    imputed_value_int64s output_shape pads perm pool_int64s qkv_hidden_sizes shape split value_ints`,
  count:
    'K N blocksize group hidden_size num_groups num_outputs offset_group output_height output_width sample_size size',
  counts: 'dilations kernel_shape pooled_shape strides',
  float: `activation_gamma alpha beta bias clip cubic_coeff_a decay_factor default_float epsilon extrapolation_value gamma
    high lambd low mask_filter_value max mean min momentum norm_coefficient norm_coefficient_post qk_norm_epsilon ratio
    replaced_value_float
    sample_size_ratio scale seed softcap spatial_scale swiglu_limit threshold value_float`,
  floats: `activation_alpha activation_beta activation_params coefficients imputed_value_floats intercepts offset scales
    value_floats weights`,
  string: `activation activation_type approximate auto_pad coordinate_transformation_mode direction equation
    interpolation_mode k_quant_type keep_aspect_ratio_policy kernel_type metric mode nearest_mode norm padding_mode
    post_transform reduction round_mode update_rule v_quant_type value_string`,
  strings: 'activations pool_strings value_strings',
  tensor: 'value',
};

const FORMS: ReadonlyMap<string, AttributeForm> = new Map(
  (Object.keys(NAMES) as AttributeForm[]).flatMap((form) =>
    NAMES[form].split(/\s+/).map((name): [string, AttributeForm] => [name, form]),
  ),
);

/** The forms that an operator's entry states for names that have another meaning elsewhere. */
export type OwnForms = Readonly<Record<string, AttributeForm>>;

/** The form of an attribute; undefined for a name that is not known. */
export function formOfAttribute(name: string, own: OwnForms = {}): AttributeForm | undefined {
  return Object.hasOwn(own, name) ? own[name] : FORMS.get(name);
}

/** Whether numbers under this attribute name are written as FLOAT(S). A number with a fraction always is. */
export function isFloatAttribute(name: string, values: readonly number[], own?: OwnForms): boolean {
  const form = formOfAttribute(name, own);
  return form === 'float' || form === 'floats' || values.some((value) => !Number.isInteger(value));
}

/** Whether a value has the form. An empty list is a list of anything. */
export function hasForm(value: AttributeValue, form: AttributeForm): boolean {
  return CHECKS[form](value);
}

const isInteger = (value: unknown): boolean =>
  typeof value === 'bigint' || (typeof value === 'number' && Number.isInteger(value));
const isCount = (value: unknown): boolean => isInteger(value) && Number(value) >= 1;
const isNumber = (value: unknown): boolean => typeof value === 'number';
const isText = (value: unknown): boolean => typeof value === 'string';
const listOf = (check: (value: unknown) => boolean) => (value: AttributeValue) =>
  Array.isArray(value) && value.every(check);

const CHECKS: Readonly<Record<AttributeForm, (value: AttributeValue) => boolean>> = {
  int: isInteger,
  ints: listOf(isInteger),
  count: isCount,
  counts: listOf(isCount),
  float: isNumber,
  floats: listOf(isNumber),
  string: isText,
  strings: listOf(isText),
  tensor: (value) => typeof value === 'object' && 'data' in value,
};

/** The forms in words, for messages. */
export const FORM_WORDS: Readonly<Record<AttributeForm, string>> = {
  int: 'an integer',
  ints: 'a list of integers',
  count: 'an integer of at least 1',
  counts: 'a list of integers of at least 1',
  float: 'a number',
  floats: 'a list of numbers',
  string: 'a text',
  strings: 'a list of texts',
  tensor: 'a tensor',
};
